"""A client's memory: files under its state directory, since its process may be killed at any time.

    STATE/RUN/state.safetensors   `before` and `after` of the last round this client worked in
    STATE/RUN/earlier.safetensors the same of the round it worked in before that
    STATE/RUN/model.safetensors   the personal model: as last trained, and in the end as last merged
    STATE/progress.jsonl          a line per message, for the person at this site

A client cannot know whether the server accepted its last upload. So it keeps both states, and the next
reply, which says which upload it answers, picks one. The same pair makes a repeated round start from
where it started the first time, and yield the same bytes. The earlier pair does so for a server whose newest
checkpoint is damaged, and which repeats two; and for this client, where its newest file is damaged.

The metadata of both name run, client and round, and, unless an earlier version wrote them, a CRC-32 of all
else in the file. A file that does not match it counts as not there, and the person at this site is told.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedpurin import files
from fedpurin.errors import RunError

State = dict[str, Tensor]


ABOUT = {"run", "client", "round"}  # the metadata of a file without a checksum


class LostStateError(RunError):
    """The server counts on a state that this client no longer has."""


class _DamagedError(Exception):
    """A file is not as it was written."""


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
        self.damaged: list[str] = []  # what is wrong with files that were passed over

    def load(self) -> Iterator[Saved]:
        """What there is and is sound, newest first; the earlier pair is read only where it is asked for."""
        for file in (self.state_file, self.earlier_file):
            if (pair := self._sound(file)) is not None:
                yield pair

    def save(self, round_: int, before: State, after: State) -> None:
        newest = self._sound(self.state_file)
        outdated = False
        if newest is not None and newest.round < round_:
            files.disk.rename(self.state_file, self.earlier_file)  # killed here, `after` is still there
        else:  # a repeated round has another outcome where others take part in it
            earlier = self._sound(self.earlier_file)
            outdated = earlier is not None and earlier.round >= round_
        both = {f"{part}/{k}": v for part, s in (("before", before), ("after", after)) for k, v in s.items()}
        about = {"run": self.run, "client": str(self.client), "round": str(round_)}
        data = _serialised(both, about)
        _write(self.state_file, _serialised(both, about | {"crc32": _checksum(data)}))
        if outdated:
            files.disk.remove(self.earlier_file)

    def _sound(self, path: Path) -> Saved | None:
        """The pair in this file; None where there is none, or none that can be trusted."""
        try:
            return self._read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunError(f"{path} cannot be read ({error.strerror}); nothing was changed") from None
        except _DamagedError as problem:
            self.damaged.append(f"{path.name} is damaged ({problem})")
            return None

    def _read(self, path: Path) -> Saved:
        parts: dict[str, State] = {"before": {}, "after": {}}
        data = files.regular(path).read_bytes()
        try:
            tensors, about = load(data), _header(data)["__metadata__"]
            if about.keys() != ABOUT and about.get("crc32") != _checksum(data):
                raise _DamagedError("its checksum does not fit")
            for key, tensor in tensors.items():
                part, _, name = key.partition("/")
                parts[part][name] = tensor
            pair = Saved(int(about["round"]), parts["before"], parts["after"])
            if any(state["round"].numel() != 1 for state in parts.values()):
                raise _DamagedError("a state's round is no number")
        except (SafetensorError, LookupError, ValueError, RecursionError) as error:
            raise _DamagedError(str(error)) from None
        if (about.get("run"), about.get("client")) != (self.run, str(self.client)):
            raise RunError(
                f"{path} is of client {about.get('client')} in run {about.get('run')}, "
                f"not {self.client} in {self.run}: each client needs a state directory of its own"
            )
        return pair


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


def write_tensors(path: Path, tensors: State) -> None:
    """Atomic."""
    _write(path, _serialised(tensors))


def _serialised(tensors: State, about: dict[str, str] | None = None) -> bytes:
    """Tensors may share memory, as a state and its successor do."""
    return save({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, about)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomic(path, data)


def _header(data: bytes) -> dict[str, dict[str, str]]:
    """The names, types and places of the tensors in these bytes, and the metadata."""
    return dict(json.loads(data[8 : _header_end(data)]))


def _header_end(data: bytes) -> int:
    return 8 + int.from_bytes(data[:8], "little")


def _checksum(data: bytes) -> str:
    """Of everything in a file but the checksum itself."""
    header = _header(data)
    header["__metadata__"].pop("crc32", None)
    crc = zlib.crc32(json.dumps(header, sort_keys=True).encode())
    return f"{zlib.crc32(data[_header_end(data) :], crc):08x}"
