"""A client's memory: files under its state directory, since its process may be killed at any time.

    STATE/RUN/state.safetensors   `before` and `after` of the last round this client worked in
    STATE/RUN/model.safetensors   the personal model: as last trained, and in the end as last merged
    STATE/progress.jsonl          a line per message, for the person at this site

A client cannot know whether the server accepted its last upload. So it keeps both states, and the next
reply, which says which upload it answers, picks one. The same pair makes a repeated round start from
where it started the first time, and yield the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedpurin.errors import RunError
from fedpurin.files import write_atomic

State = dict[str, Tensor]


class LostStateError(RunError):
    """The server counts on a state that this client no longer has."""


@dataclass(frozen=True)
class Saved:
    round: int
    before: State
    after: State

    def rounds(self) -> list[int]:
        """The rounds whose accepted uploads this client could go on from."""
        return [int(self.before["round"]), int(self.after["round"])]


class Store:
    """The files of one client in one run."""

    def __init__(self, folder: Path, run: str, client: int) -> None:
        if not run or not all(c.isalnum() or c == "-" for c in run):
            raise RunError(f"the server names its run {run!r}; a name is made of letters, digits and -")
        self.folder, self.run, self.client = folder / run, run, client
        self.state_file = self.folder / "state.safetensors"
        self.model_file = self.folder / "model.safetensors"

    def load(self) -> Saved | None:
        if not self.state_file.exists():
            return None
        try:
            with safe_open(self.state_file, framework="pt") as file:
                about = file.metadata() or {}
                if about.get("run") != self.run or about.get("client") != str(self.client):
                    raise RunError(
                        f"{self.state_file} is of client {about.get('client')} in run {about.get('run')}, "
                        f"not {self.client} in {self.run}: each client needs a state directory of its own"
                    )
                parts: dict[str, State] = {"before": {}, "after": {}}
                for key in file.keys():  # noqa: SIM118 - safe_open is no mapping
                    part, _, name = key.partition("/")
                    parts[part][name] = file.get_tensor(key)
            return Saved(int(about["round"]), parts["before"], parts["after"])
        except (SafetensorError, KeyError, ValueError) as error:
            raise RunError(
                f"{self.state_file} is damaged ({error}): restore a backup, or delete it to join afresh"
            ) from None

    def save(self, round_: int, before: State, after: State) -> None:
        both = {f"{part}/{k}": v for part, s in (("before", before), ("after", after)) for k, v in s.items()}
        about = {"run": self.run, "client": str(self.client), "round": str(round_)}
        write_tensors(self.state_file, both, about)


def pick(saved: Saved | None, t: int, confirmed: int | None) -> State | None:
    """The state to start round t from; None: the initial one.

    `confirmed` is the round of the upload that the server's reply answers (0: it has none), or None for a
    method that exchanges nothing, whose clients simply go on.
    """
    if saved is None:
        if confirmed:
            raise LostStateError(
                f"the server counts on this client's state of round {confirmed}, but there is none"
            )
        return None
    if t < saved.round:
        raise RunError(
            f"asked for round {t}, but this client has already worked in round {saved.round}: "
            "the server went back in time; start a new run"
        )
    if confirmed is None:
        return saved.after if t > saved.round else saved.before
    # A repeated round does not start from its own outcome. That matters for the last reply: the final model
    # builds on the last upload without being a new one, so both states carry the same round.
    candidates = (saved.after, saved.before) if t > saved.round else (saved.before,)
    for state in candidates:
        if int(state["round"]) == confirmed:
            return state
    if confirmed == 0:  # the server has given up what it knew of this client: it starts like a new one
        return None
    raise LostStateError(
        f"the server counts on this client's state of round {confirmed}; it has those of {saved.rounds()}"
    )


def write_tensors(path: Path, tensors: State, about: dict[str, str] | None = None) -> None:
    """Atomic. Tensors may share memory, as a state and its successor do."""
    own = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, save(own, about))
