"""What the files of a run directory hold, as shapes that their content is held against when it is read.

Keys that a shape does not name may be there. What others rely on beyond types, such as equal lengths, is
checked where it is read (`runs.reading`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpurin.errors import RunError
from fedpurin.settings import LARGEST

RESTORE = "restore it, or run again"


@dataclass(frozen=True)
class Plain:
    """A single value of one of these types; whole numbers from `least` on."""

    types: tuple[type, ...]
    words: str
    least: int | None = None

    def fits(self, value: Any) -> bool:
        if type(value) not in self.types:
            return False
        if type(value) is int:
            return (-LARGEST if self.least is None else self.least) <= value <= LARGEST
        return True


@dataclass(frozen=True)
class Maybe:
    of: Any  # or null


@dataclass(frozen=True)
class Each:
    of: Any  # of all values of a table, whatever their keys


@dataclass(frozen=True)
class Needed:
    of: Any  # a key that must be there


COUNT = Plain((int,), "a whole number from 0", 0)
WHOLE = Plain((int,), "a whole number")
NUMBER = Plain((int, float), "a number")
TEXT = Plain((str,), "a text")
ANY_TABLE = Each(None)

MEASURED = {
    "clients": [COUNT],
    "round": [COUNT],
    "accuracy": [Maybe(NUMBER)],
    "loss": [Maybe(NUMBER)],
    "best_round": [Maybe(COUNT)],
}
METRICS_LINE = {
    "round": Needed(Plain((int,), "a whole number from 1", 1)),
    "clients": [COUNT],
    **{moment: Maybe(MEASURED) for moment in ("trained", "upload", "merged", "validation")},
    "failed": Maybe([ANY_TABLE]),
    "bounded": Maybe([ANY_TABLE]),
    "collaborators": Maybe([[COUNT]]),
    "threshold": Maybe(NUMBER),
    "overlap": Maybe([[NUMBER]]),
    "kept": Maybe(Each(Maybe(NUMBER))),
    "seconds": Maybe(Each(Maybe(NUMBER))),
}
LEDGER_LINE = {
    "round": Needed(COUNT),
    "client": Needed(COUNT),
    "direction": Needed(TEXT),
    "bytes": Needed(Each(COUNT)),
    "kept": COUNT,
    "critical": Maybe(COUNT),
    "outside": Maybe(COUNT),
    "paper_bytes": COUNT,
    "mask_encoding": TEXT,
    "value_type": TEXT,
}
CONFIG = {
    **dict.fromkeys(("data", "model", "train", "wire", "robust"), ANY_TABLE),
    "run": {"rounds": COUNT, "clients": COUNT, "seed": WHOLE},
    "method": {"beta": WHOLE},
}
CLIENTS = {
    "classes": [TEXT],
    "names": [TEXT],
    "train_samples": [COUNT],
    "test_samples": [COUNT],
    "train_counts": [[COUNT]],
    "test_counts": [[COUNT]],
    "split_fingerprint": TEXT,
}
LAYER = {
    "name": Needed(TEXT),
    "shape": Needed([COUNT]),
    "size": Needed(COUNT),
    "kind": Needed(TEXT),
    "exchanged": Needed(Plain((bool,), "true or false")),
}
LAYOUT = {"exchanged": COUNT, "layers": [LAYER]}
FIGURES = {key: Needed(Maybe(NUMBER)) for key in ("best", "last", "mean_of_last_10", "worst_client")}
RESULT = {
    "dataset": Needed(TEXT),
    "alpha": Maybe(NUMBER),
    "rounds": Needed(COUNT),
    "digest": Maybe(TEXT),
    "setting": ANY_TABLE,
    "model_checksums": [Maybe(COUNT)],
    "accuracy": Needed({moment: Needed(FIGURES) for moment in ("trained", "upload", "merged")}),
    "by_validation": {"accuracy": Needed(NUMBER), "rounds": [COUNT]},
    "mib_per_client_round": Needed({way: Needed(NUMBER) for way in ("up", "down")}),
}
ENVIRONMENT: dict[str, Any] = {"command": [TEXT]}


def check(
    file: Path, found: dict[str, Any], shape: Any, where: str = "it", remedy: str = RESTORE
) -> dict[str, Any]:
    """What was found, if it has the shape."""
    if said := complaint(found, shape, where):
        raise RunError(f"{file} is damaged: {said}; {remedy}")
    return found


def complaint(value: Any, shape: Any, where: str = "it") -> str:
    """What does not fit, in words; "" where everything does."""
    match shape:
        case None:
            return ""
        case Maybe(of=of) | Needed(of=of):
            return "" if value is None and isinstance(shape, Maybe) else complaint(value, of, where)
        case Plain():
            return "" if shape.fits(value) else f"{where} is {_short(value)}, not {shape.words}"
        case [of]:
            return _of_list(value, of, where)
    if not isinstance(value, dict):
        return f"{where} is {_short(value)}, not a table"
    if isinstance(shape, Each):
        return _first(complaint(inner, shape.of, f"{where}.{key}") for key, inner in value.items())
    missing = [key for key, of in shape.items() if isinstance(of, Needed) and key not in value]
    if missing:
        return f"{where} has no {missing[0]}"
    inside = [(key, of) for key, of in shape.items() if key in value]
    return _first(complaint(value[key], of, f"{where}.{key}") for key, of in inside)


def _of_list(value: Any, of: Any, where: str) -> str:
    if not isinstance(value, list):
        return f"{where} is {_short(value)}, not a list"
    plain = of.of if isinstance(of, Maybe) else of
    if isinstance(plain, Plain) and all(plain.fits(v) or (v is None and plain is not of) for v in value):
        return ""  # the many numbers of a long run, at once
    return _first(complaint(inner, of, f"{where}[{i}]") for i, inner in enumerate(value))


def _first(complaints: Iterable[str]) -> str:
    return next((said for said in complaints if said), "")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
