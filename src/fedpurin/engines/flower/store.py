"""A client's memory: files under its state directory, since its process may be killed at any time.

    STATE/RUN/state.safetensors   `before` and `after` of the last round this client worked in
    STATE/RUN/earlier.safetensors the same of the round it worked in before that
    STATE/RUN/model.safetensors   the personal model: as last trained, and in the end as last merged
    STATE/progress.jsonl          a line per message, for the person at this site

A client cannot know whether the server accepted its last upload. So it keeps both states, and the next
reply, which says which upload it answers, picks one. The same pair makes a repeated round start from
where it started the first time, and yield the same bytes. The earlier pair does so for a server whose newest
checkpoint is damaged, and which repeats two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedpurin import files
from fedpurin.errors import RunError

State = dict[str, Tensor]


class LostStateError(RunError):
    """The server counts on a state that this client no longer has."""


@dataclass(frozen=True)
class Saved:
    round: int
    before: State
    after: State


class Store:
    """The files of one client in one run."""

    def __init__(self, folder: Path, run: str, client: int) -> None:
        if not run or not all(c.isalnum() or c == "-" for c in run):
            raise RunError(f"the server names its run {run!r}; a name is made of letters, digits and -")
        self.folder, self.run, self.client = folder / run, run, client
        self.state_file = self.folder / "state.safetensors"
        self.earlier_file = self.folder / "earlier.safetensors"
        self.model_file = self.folder / "model.safetensors"

    def load(self) -> Iterator[Saved]:
        """What there is, newest first; the earlier pair is read only where it is asked for."""
        return (self._read(file) for file in (self.state_file, self.earlier_file) if file.exists())

    def save(self, round_: int, before: State, after: State) -> None:
        if self.state_file.exists() and self._round(self.state_file) < round_:
            files.disk.rename(self.state_file, self.earlier_file)  # killed here, `after` is still there
        both = {f"{part}/{k}": v for part, s in (("before", before), ("after", after)) for k, v in s.items()}
        about = {"run": self.run, "client": str(self.client), "round": str(round_)}
        write_tensors(self.state_file, both, about)

    def _read(self, path: Path) -> Saved:
        parts: dict[str, State] = {"before": {}, "after": {}}
        with self._opened(path) as (file, round_):
            for key in file.keys():  # noqa: SIM118 - safe_open is no mapping
                part, _, name = key.partition("/")
                parts[part][name] = file.get_tensor(key)
        return Saved(round_, parts["before"], parts["after"])

    def _round(self, path: Path) -> int:
        with self._opened(path) as (_, round_):
            return round_

    @contextlib.contextmanager
    def _opened(self, path: Path) -> Iterator[tuple[Any, int]]:
        """The file and the round it is of."""
        try:
            with safe_open(path, framework="pt") as file:
                about = file.metadata() or {}
                if about.get("run") != self.run or about.get("client") != str(self.client):
                    raise RunError(
                        f"{path} is of client {about.get('client')} in run {about.get('run')}, "
                        f"not {self.client} in {self.run}: each client needs a state directory of its own"
                    )
                yield file, int(about["round"])
        except (SafetensorError, KeyError, ValueError) as error:
            raise RunError(
                f"{path} is damaged ({error}): restore a backup, or delete it to join afresh"
            ) from None


def pick(saved: Iterable[Saved], t: int, confirmed: int | None) -> State | None:
    """The state to start round t from; None: the initial one. `saved` as it was loaded, newest first.

    `confirmed` is the round of the upload that the server's reply answers (0: it has none), or None for a
    method that exchanges nothing, whose clients simply go on.
    """
    seen: list[Saved] = []
    for pair in saved:
        seen.append(pair)
        for state in _candidates(pair, t):
            if confirmed is None or int(state["round"]) == confirmed:
                return state
    if confirmed == 0 or not (seen or confirmed):  # the server knows nothing of it: it starts like a new one
        return None
    if seen and t < seen[0].round:
        raise RunError(
            f"asked for round {t}, but this client has already worked in round {seen[0].round}: "
            "the server went back in time; start a new run"
        )
    known = sorted({int(state["round"]) for pair in seen for state in (pair.before, pair.after)})
    raise LostStateError(
        f"the server counts on this client's state of round {confirmed}; "
        + (f"it has those of {known}" if known else "there is none")
    )


def _candidates(pair: Saved, t: int) -> Iterator[State]:
    """States from which round t can start, newest first: not from its own outcome, nor from a later one's.

    The round that a state carries does not tell: the final model builds on the last upload without being a
    new one, so it carries the same.
    """
    if pair.round < t:
        yield pair.after
    if int(pair.before["round"]) < t:
        yield pair.before


def write_tensors(path: Path, tensors: State, about: dict[str, str] | None = None) -> None:
    """Atomic. Tensors may share memory, as a state and its successor do."""
    own = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomic(path, save(own, about))
