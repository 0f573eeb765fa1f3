"""Append-only JSON lines in experiments/results/, one file per kind. The last line of a cell counts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Hashable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from fedpurin.config import Config
from fedpurin.errors import RunError
from fedpurin.files import append_line
from fedpurin.reproduce.scales import option
from fedpurin.runs.parsing import parse_lines
from fedpurin.runs.run import Floats, row_means
from fedpurin.runs.same_setting import ConfigTable, cell_key, config_of, seeds, setting_key

PATIENCE = 60  # seconds to wait for another process that is writing a line
ACCURACY_UNIT = 1e4  # per-client accuracies are whole ten-thousandths


def identity(config: Config) -> dict[str, Any]:
    """How every line begins. Where the data lay is left out: it decides nothing."""
    table = config.as_dict()
    return {"key": cell_key(config), "config": table | {"data": table["data"] | {"dir": ""}}}


class Record:
    """One finished (or, if so imported, unfinished) cell of the store."""

    def __init__(self, line: dict[str, Any]) -> None:
        self.line = line

    @cached_property
    def config(self) -> Config:
        return config_of(self.line["config"])

    @property
    def column(self) -> tuple[str, float]:
        """Data set and alpha."""
        return self.config.data.dataset, self.config.data.alpha

    @property
    def beta(self) -> int | None:
        """None for a method without one."""
        return option(self.config, "beta")  # type: ignore[no-any-return]

    @property
    def seeds(self) -> dict[str, int]:
        """Of split, initial model and order of samples."""
        return seeds(self.line["config"])

    @property
    def is_replicate(self) -> bool:
        """A seed of its own for split, model or order: it shows the size of noise, and is no further seed."""
        return set(self.seeds.values()) != {self.config.run.seed}

    @cached_property
    def setting(self) -> Hashable:
        return setting_key(self.line["config"])

    @property
    def complete(self) -> bool:
        return bool(self.line["complete"])

    @property
    def done(self) -> int:
        """Rounds that were recorded."""
        return int(self.line["done"])

    @property
    def split(self) -> str:
        return str(self.line["split"])

    def curve(self, moment: str = "upload") -> Floats:
        """[T]: mean accuracy over clients, NaN where it was not measured."""
        return row_means(self.clients(moment))

    def clients(self, moment: str = "upload") -> Floats:
        """[T, N] accuracies. Where nothing is sent or merged (Separate), those after training."""
        raw = self.line["clients"][moment] or self.line["clients"]["trained"]
        values = np.array([[np.nan if v is None else v for v in row] for row in raw], dtype=np.float64)
        return values / ACCURACY_UNIT

    def best(self, moment: str = "upload") -> float:
        """The paper's figure: the best round's mean, picked on test data; in percent."""
        return float(100 * np.nanmax(self.curve(moment)))

    def mean(self, moment: str, window: slice) -> float:
        """Mean accuracy over these rounds, in percent."""
        return float(100 * np.nanmean(self.curve(moment)[window]))

    def mib(self, name: str) -> Floats:
        """[T] MiB per client in each round: up, down, up_paper or down_paper.

        An unfinished run has not sent the replies of its last round yet; these are left out.
        """
        values = np.array(self.line["bytes"][name], dtype=np.float64) / 2**20
        return values if self.complete or not name.startswith("down") else values[:-1]

    def first(self, rounds: int) -> Record:
        """What a run of so many rounds would have recorded: T decides nothing but where a run ends."""
        config, line = self.line["config"], self.line

        def cut(table: dict[str, list[Any] | None]) -> dict[str, list[Any] | None]:
            return {name: values and values[:rounds] for name, values in table.items()}

        shorter = {
            "config": {**config, "run": {**config["run"], "rounds": rounds}},
            "complete": self.complete or self.done > rounds,
            "done": rounds,
            "digest": None,
            "accuracy": {},
            "groups": line["groups"] and line["groups"][:rounds],
        }
        return Record(line | shorter | {name: cut(line[name]) for name in ("clients", "bytes", "kept")})


def finished_first(records: list[Record]) -> list[Record]:
    """The finished ones; unfinished runs count only where there is nothing else."""
    return [record for record in records if record.complete] or records


class Shelf:
    """The lines of one file by cell. The file only grows, so what came since is all that is read."""

    def __init__(self, file: Path) -> None:
        self.file, self.read = file, 0
        self.records: dict[str, Record] = {}
        self.families: dict[str, list[str]] = {}  # cells that differ in nothing but the number of rounds

    def current(self) -> dict[str, Record]:
        size = self.file.stat().st_size if self.file.exists() else 0
        if size < self.read:
            self.read, self.records, self.families = 0, {}, {}
        if size > self.read:
            with self.file.open("rb") as file:
                file.seek(self.read)
                raw = file.read()
            whole = raw[: raw.rfind(b"\n") + 1]
            for line in parse_lines(self.file, whole):
                try:
                    self._add(line)
                except (KeyError, TypeError, ValueError, AttributeError) as problem:
                    raise RunError(
                        f"{self.file} is damaged: a line is no record of a run ({problem!r}): "
                        f"{str(line)[:80]}; take the line out, or restore the file"
                    ) from problem
            self.read += len(whole)
        return self.records

    def _add(self, line: dict[str, Any]) -> None:
        """Keys are derived anew, so that a setting added later does not orphan old lines."""
        key = cell_key(line["config"])
        before = self.records.get(key)
        if before is not None and before.line.get("complete") and not line.get("complete", True):
            return  # an unfinished copy never hides a finished one
        if before is None:
            self.families.setdefault(_family(line["config"]), []).append(key)
        self.records[key] = Record(line)


class ResultStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = FileLock(folder / ".lock", thread_local=False)
        self._shelves: dict[str, Shelf] = {}

    def _shelf(self, kind: str) -> Shelf:
        return self._shelves.setdefault(kind, Shelf(self.folder / f"{kind}.jsonl"))

    def lines(self, kind: str) -> list[dict[str, Any]]:
        return [record.line for record in self._shelf(kind).current().values()]

    def get(self, kind: str, config: Config | ConfigTable) -> dict[str, Any] | None:
        record = self._shelf(kind).current().get(cell_key(config))
        return None if record is None else record.line

    def record(self, config: Config) -> Record | None:
        """The record of this configuration, or the first rounds of one with more of them."""
        shelf = self._shelf("runs")
        exact = shelf.current().get(cell_key(config))
        if exact is not None and exact.complete:
            return exact
        family = [shelf.records[key] for key in shelf.families.get(_family(config.as_dict()), [])]
        longer = [r for r in family if r.done >= config.run.rounds < r.line["config"]["run"]["rounds"]]
        if longer:
            return max(longer, key=lambda record: record.done).first(config.run.rounds)
        return exact

    def finished(self, config: Config) -> bool:
        record = self.record(config)
        return record is not None and record.complete

    def records(self) -> list[Record]:
        return list(self._shelf("runs").current().values())

    def append(self, kind: str, line: dict[str, Any]) -> None:
        with self.locked():
            append_line(self.folder / f"{kind}.jsonl", json.dumps(line, separators=(",", ":")))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes meanwhile."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._lock.acquire(timeout=PATIENCE):
                yield
        except Timeout:
            raise RunError(
                f"the results in {self.folder} are being written by another process; wait for it or stop it"
            ) from None
        except OSError as problem:
            raise RunError(f"cannot write to the results in {self.folder}: {problem.strerror}") from problem


def _family(config: ConfigTable) -> str:
    return cell_key({**config, "run": {**config["run"], "rounds": 1}})
