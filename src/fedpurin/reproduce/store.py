"""Append-only JSON lines in experiments/results/, one file per kind. The last line of a cell counts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpurin.config import Config
from fedpurin.errors import RunError
from fedpurin.report.files import read_lines
from fedpurin.report.load import row_means
from fedpurin.reproduce.cells import cell_key, config_of

Floats = NDArray[np.float64]
KINDS = ("runs", "coverage", "perturbation")
ACCURACY_UNIT = 1e4  # per-client accuracies are whole ten-thousandths


class Record:
    """One finished (or, if so imported, unfinished) cell of the store."""

    def __init__(self, line: dict[str, Any]) -> None:
        self.line = line

    @cached_property
    def config(self) -> Config:
        return config_of(self.line["config"])

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

    def best(self, moment: str = "upload", rounds: int | None = None) -> float:
        """The paper's figure: the best round's mean, picked on test data; in percent."""
        return float(100 * np.nanmax(self.curve(moment)[:rounds]))

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
            "clients": cut(line["clients"]),
            "bytes": cut(line["bytes"]),
            "kept": cut(line["kept"]),
            "groups": line["groups"] and line["groups"][:rounds],
        }
        return Record(line | shorter)


class Store:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._index: dict[str, dict[str, dict[str, Any]]] = {}

    @cached_property
    def _families(self) -> dict[str, list[Record]]:
        """Runs that differ in nothing but the number of rounds."""
        families: dict[str, list[Record]] = {}
        for record in self.records():
            families.setdefault(_family(record.config), []).append(record)
        return families

    def lines(self, kind: str) -> Iterator[dict[str, Any]]:
        yield from self._load(kind).values()

    def _load(self, kind: str) -> dict[str, dict[str, Any]]:
        """Lines by key. Keys are derived anew, so that a setting added later does not orphan old lines."""
        if kind not in self._index:
            index: dict[str, dict[str, Any]] = {}
            for line in read_lines(self.folder / f"{kind}.jsonl"):
                key = cell_key(config_of(line["config"]))
                if index.get(key, {}).get("complete") and not line.get("complete", True):
                    continue  # an unfinished copy never hides a finished one
                index[key] = line
            self._index[kind] = index
        return self._index[kind]

    def get(self, kind: str, config: Config) -> dict[str, Any] | None:
        return self._load(kind).get(cell_key(config))

    def record(self, config: Config) -> Record | None:
        """The record of this configuration, or the first rounds of one with more of them."""
        line = self.get("runs", config)
        if line is not None and line["complete"]:
            return Record(line)
        longer = [
            record
            for record in self._families.get(_family(config), [])
            if record.done >= config.run.rounds < record.config.run.rounds
        ]
        if longer:
            return max(longer, key=lambda record: record.done).first(config.run.rounds)
        return None if line is None else Record(line)

    def finished(self, config: Config) -> bool:
        record = self.record(config)
        return record is not None and record.complete

    def records(self) -> list[Record]:
        return [Record(line) for line in self.lines("runs")]

    def append(self, kind: str, line: dict[str, Any]) -> None:
        assert kind in KINDS
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / f"{kind}.jsonl").open("ab+") as file:
                _end_torn_line(file)
                file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as problem:
            raise RunError(f"cannot write to the results in {self.folder}: {problem.strerror}") from problem
        self._index.pop(kind, None)
        self.__dict__.pop("_families", None)


def _family(config: Config) -> str:
    return cell_key(replace(config, run=replace(config.run, rounds=1)))


def _end_torn_line(file: Any) -> None:
    """Cut off a last line that a crash left without its end."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return
    file.seek(0)
    file.truncate(file.read().rfind(b"\n") + 1)
