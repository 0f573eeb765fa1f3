"""A run directory in memory.

Shapes: T finished rounds, N clients, M messages, K classes, d exchanged parameters.
Row t - 1 of a [T, N] array belongs to round t; NaN means "not measured".
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpurin.errors import ConfigError, RunError
from fedpurin.runs.coverage import Coverage, read_coverage
from fedpurin.runs.ledger import MIB, SECTIONS, Floats, Ledger
from fedpurin.runs.reading import MOMENTS, VALIDATION, measurements, read_run
from fedpurin.runs.same_setting import changes, decisive, method_label, method_settings

__all__ = [
    "LAST_ROUNDS", "MIB", "MOMENTS", "SECTIONS", "VALIDATION", "Floats", "Ledger", "Run",
    "check_result", "find_runs", "is_run", "load_run", "one_run", "row_means", "summarise",
]  # fmt: skip
RESULT_KEYS = (
    "method", "dataset", "alpha", "seed", "rounds", "clients", "accuracy", "mib_per_client_round",
)  # fmt: skip
"""What result.json tells that follows from the configuration and the logs."""
LAST_ROUNDS = 10  # the window of `mean_of_last_10`


@dataclass(frozen=True)
class Run:
    """A run directory in memory. Build it with `load_run`."""

    path: Path
    config: dict[str, Any]
    environment: dict[str, Any]
    layers: list[dict[str, Any]]
    classes: list[str]
    train_counts: NDArray[np.int64]  # [N, K]; K = 0 when unknown
    test_counts: NDArray[np.int64]
    split: str  # fingerprint of who holds what; "" when unknown
    clients: int
    lines: list[dict[str, Any]]  # metrics of the rounds 1..T, in order
    final: dict[str, Any] | None  # the closing line of a complete run
    ledger: Ledger
    result: dict[str, Any] | None
    names: list[str]  # of the clients, where they have any

    @property
    def rounds(self) -> int:
        """Rounds that are finished and recorded."""
        return int(self.lines[-1]["round"]) if self.lines else 0

    @property
    def planned_rounds(self) -> int:
        return int(self.setting("run", "rounds", self.rounds))

    @property
    def complete(self) -> bool:
        return self.result is not None

    @property
    def method(self) -> str:
        named = self.setting("run", "method", (self.result or {}).get("method", "unknown"))
        name = str(named.get("name", "unknown") if isinstance(named, dict) else named)
        return name if ":" in name else name.lower()  # package.module:Class is a path

    @property
    def seed(self) -> int:
        return int(self.setting("run", "seed", 0))

    @property
    def label(self) -> str:
        return method_label(self.method)

    def setting(self, section: str, key: str, default: Any = None) -> Any:
        """A config value, or the default when the config does not have it."""
        table = self.config.get(section)
        return table.get(key, default) if isinstance(table, dict) else default

    def accuracy(self, moment: str) -> Floats:
        """[T, N], as shares from 0 to 1."""
        return self._measured[moment, "accuracy"]

    def loss(self, moment: str) -> Floats:
        return self._measured[moment, "loss"]

    def measured(self, moment: str) -> bool:
        """Whether any client's accuracy is known at this moment."""
        return not np.isnan(self.accuracy(moment)).all()

    def mean_accuracy(self, moment: str) -> Floats:
        """[T]: the mean over the clients measured in each round."""
        return row_means(self.accuracy(moment))

    def client_accuracy(self, moment: str, last: int = LAST_ROUNDS) -> Floats:
        """[N]: each client's own mean over the last rounds of the run in which it was measured."""
        values_tn = self.accuracy(moment)
        measured = np.flatnonzero(~np.isnan(values_tn).all(axis=1))[-last:]
        return row_means(values_tn[measured].T)

    def line(self, t: int) -> dict[str, Any]:
        return self._by_round.get(t, {})

    def collaborators(self, t: int) -> dict[int, list[int]] | None:
        """Client -> its C_i in round t, or None for a method without groups."""
        line = self.line(t)
        groups = line.get("collaborators")
        return None if groups is None else dict(zip(line["clients"], groups, strict=True))

    def overlap(self, t: int) -> tuple[list[int], Floats] | None:
        """The participants of round t and their overlap matrix, or None when it was not recorded."""
        line = self.line(t)
        matrix = line.get("overlap")
        return None if matrix is None else (line["clients"], np.array(matrix, dtype=np.float64))

    def kept(self) -> tuple[list[str], Floats]:
        """Layer names and the share of critical parameters [layers, T]."""
        names: list[str] = []
        for line in self.lines:
            names += [name for name in (line.get("kept") or {}) if name not in names]
        shares = np.full((len(names), self.rounds), np.nan)
        for line in self.lines:
            for name, share in (line.get("kept") or {}).items():
                shares[names.index(name), line["round"] - 1] = np.nan if share is None else share
        return names, shares

    def coverage(self) -> Coverage | None:
        """coverage.safetensors: how often each parameter was critical; None for methods without masks."""
        file = self.path / "coverage.safetensors"
        return read_coverage(file, self.layers) if file.exists() else None

    def seconds(self) -> float:
        """Wall clock of all rounds so far."""
        lines = self.lines + ([self.final] if self.final else [])
        return float(sum((line.get("seconds") or {}).get("round") or 0.0 for line in lines))

    @property
    def summary(self) -> dict[str, Any]:
        """result.json, or the same figures derived from what is there when the run stopped half-way."""
        return self.result if self.result is not None else self.derive_summary()

    def derive_summary(self) -> dict[str, Any]:
        """The summary in the form of result.json, from metrics and ledger alone."""
        return {
            "method": self.method,
            "dataset": self.setting("data", "dataset", "unknown"),
            "alpha": self.setting("data", "alpha"),
            "seed": self.seed,
            "rounds": self.rounds,
            "clients": self.clients,
            "digest": None,
            "missing_clients": [],
            "accuracy": {moment: summarise(self.accuracy(moment)) for moment in MOMENTS},
            **self._by_validation(),
            "mib_per_client_round": {
                "up": self.ledger.mean_mib("up"),
                "down": self.ledger.mean_mib("down"),
                "up_paper": self.ledger.mean_mib("up", paper=True),
                "down_paper": self.ledger.mean_mib("down", paper=True),
            },
            "seconds": self.seconds(),
        }

    def _by_validation(self) -> dict[str, Any]:
        """What the models are worth that clients chose by validation: their test accuracy, first of all."""
        chosen_n = np.zeros(self.clients, dtype=np.int64)  # the round of each one's best; 0: it said nothing
        for line in self.lines:
            told = (line.get(VALIDATION) or {}).get("best_round") or []
            for client, t in zip(line["clients"], told, strict=False):
                if t is not None and 1 <= t <= self.rounds:
                    chosen_n[client] = t
        who = np.flatnonzero(chosen_n)
        at = (chosen_n[who] - 1, who)
        test_n, validation_n = self.accuracy("trained")[at], self.accuracy(VALIDATION)[at]
        told = ~np.isnan(test_n + validation_n)  # who names a round of which it told nothing does not count
        if not told.any():
            return {}
        test_n, validation_n, chosen_n[who[~told]] = test_n[told], validation_n[told], 0
        return {
            "by_validation": {
                "accuracy": float(test_n.mean()),
                "worst_client": float(test_n.min()),
                "validation_accuracy": float(validation_n.mean()),
                "rounds": chosen_n.tolist(),
            }
        }

    @cached_property
    def _by_round(self) -> dict[int, dict[str, Any]]:
        return {line["round"]: line for line in self.lines}

    @cached_property
    def _measured(self) -> dict[tuple[str, str], Floats]:
        keys = [(moment, kind) for moment in (*MOMENTS, VALIDATION) for kind in ("accuracy", "loss")]
        table = {key: np.full((self.rounds, self.clients), np.nan) for key in keys}
        for line in self.lines + ([self.final] if self.final else []):
            for moment, kind in keys:
                for client, t, value in measurements(line, moment, kind):
                    if 1 <= t <= self.rounds:
                        table[moment, kind][t - 1, client] = value
        return table


def row_means(values: Floats) -> Floats:
    """Mean of each row without its NaNs; NaN where a row has nothing else."""
    measured = ~np.isnan(values)
    counts = measured.sum(axis=1)
    sums = np.where(measured, values, 0.0).sum(axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def summarise(accuracy_tn: Floats) -> dict[str, Any]:
    """best, last, mean of the last ten rounds, worst client of the last round; all None if never measured."""
    mean_t = row_means(accuracy_tn)
    measured = np.flatnonzero(~np.isnan(mean_t))
    if not len(measured):
        return dict.fromkeys(("best", "best_round", "last", "mean_of_last_10", "worst_client"))
    best = measured[np.argmax(mean_t[measured])]
    return {
        "best": float(mean_t[best]),
        "best_round": int(best) + 1,
        "last": float(mean_t[measured[-1]]),
        "mean_of_last_10": float(mean_t[measured[-LAST_ROUNDS:]].mean()),
        "worst_client": float(np.nanmin(accuracy_tn[measured[-1]])),
    }


def load_run(path: Path | str) -> Run:
    """Read a run directory, finished or not. Raises RunError for anything that is not one."""
    run = Run(**read_run(Path(path)))
    check_result(run)
    return run


def check_result(run: Run) -> None:
    """A result that does not follow from what is beside it is another run's, or a log is not whole."""
    if run.result is None:
        return
    crc = run.result.get("ledger_checksum")  # version 0.1 had none
    if crc is not None and crc != zlib.crc32((run.path / "ledger.jsonl").read_bytes()):
        raise RunError(
            f"{run.path} is damaged: ledger.jsonl is not what it was when result.json was written; restore "
            "them, or run again"
        )
    _check_setting(run, run.result.get("setting"))
    derived = run.derive_summary()
    for key in RESULT_KEYS:
        said = run.result.get(key, derived[key])
        if not _alike(said, derived[key]):
            raise RunError(
                f"{run.path} is damaged: result.json says {key} = {said}, but config.toml, metrics.jsonl and "
                f"ledger.jsonl give {derived[key]}; restore them, or run again"
            )


def _check_setting(run: Run, made: dict[str, Any] | None) -> None:
    """Version 0.1 did not say what a result was made with; a method may not be installed here."""
    if made is None or method_settings(run.method) is None:
        return
    try:
        said = changes(made, decisive(run.config))
    except ConfigError as problem:
        raise RunError(f"{run.path}/config.toml is damaged: {problem}; restore it, or run again") from problem
    if said:
        raise RunError(
            f"{run.path} was run with other settings than its config.toml has now ({said}); undo the change, "
            "or run again in another directory"
        )


def _alike(said: Any, derived: Any) -> bool:
    """Equal, tables in the keys that both have, numbers to rounding."""
    if isinstance(said, dict) and isinstance(derived, dict):
        return all(_alike(said[key], derived[key]) for key in said.keys() & derived.keys())
    if isinstance(said, int | float) and isinstance(derived, int | float):
        return math.isclose(said, derived, rel_tol=1e-9) or (said != said and derived != derived)
    return bool(said == derived)


def is_run(path: Path) -> bool:
    return (path / "config.toml").is_file()


def find_runs(paths: list[Path]) -> list[Path]:
    """Run directories among the paths; a comparison directory stands for the runs directly inside it."""
    runs = []
    for path in paths:
        if not path.is_dir():
            raise RunError(f"{path} is not a directory; name a run directory or a folder of them")
        inside = [path] if is_run(path) else _runs_in(path)
        if not inside:
            raise RunError(f"{path} holds no run: neither it nor a folder directly in it has a config.toml")
        runs += inside
    if not runs:
        raise RunError("no run directory was given; name at least one")
    return list(dict.fromkeys(runs))


def one_run(path: Path) -> Path:
    """The path, unless it is a comparison: then its runs are named."""
    if path.is_dir() and not is_run(path):
        inside = _runs_in(path)
        if inside:
            raise RunError(
                f"{path} holds {len(inside)} runs; name one of them: {', '.join(map(str, inside))}"
            )
    return path


def _runs_in(folder: Path) -> list[Path]:
    return sorted(child for child in folder.iterdir() if is_run(child))
