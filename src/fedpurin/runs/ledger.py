"""What every message cost: bytes by section, beside the paper's counting rule and the entropy bound.

`entry` makes the lines, when messages are sent; here they are read again, which needs no torch.

The bound is what an ideal coder needs that knows only how many positions are chosen: n * H(k / n) bits for
k of n, plus the values. A mask that is like the one before, or has runs, can cost less.

Shapes: M messages, S sections.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedpurin.errors import RunError
from fedpurin.files import write_atomic, writing
from fedpurin.runs.parsing import read_json, read_lines, read_toml
from fedpurin.runs.shapes import CONFIG, LAYOUT, LEDGER_LINE, complaint
from fedpurin.value_types import all_types

Direction = Literal["up", "down"]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
DIRECTIONS: tuple[Direction, ...] = ("up", "down")
SECTIONS = ("header", "mask", "values", "meta")
VALUE_BYTES = {name: kind.bits / 8 for name, kind in all_types().items()}
MIB = 2**20


def entropy_bits(k: int, n: int) -> float:
    """n * H(k / n), in bits."""
    if not 0 < k < n:
        return 0.0
    p = k / n
    return -n * (p * math.log2(p) + (1 - p) * math.log2(1 - p))


@dataclass(frozen=True)
class Totals:
    """Sums over some messages, in bytes."""

    messages: int
    header: int
    mask: int
    values: int
    meta: int
    total: int
    kept: int
    paper_bytes: int
    bound: float

    @property
    def gap(self) -> float:
        """How much more than the bound the mask and value sections take, as a share of the bound."""
        return (self.mask + self.values) / self.bound - 1 if self.bound else 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"bound": round(self.bound, 1), "gap": round(self.gap, 6)}


@dataclass(frozen=True)
class Ledger:
    """The messages of a run, one array entry per message."""

    round_m: Ints
    client_m: Ints
    up_m: NDArray[np.bool_]
    sections_ms: Ints  # in the order of SECTIONS
    kept_m: Ints
    critical_m: Ints  # -1 for a message of a method without critical masks
    outside_m: Ints  # values that travel although they are not critical
    paper_m: Ints
    mask_encodings: list[str]
    value_types: list[str]
    d: int = 0  # exchanged parameters; 0 when unknown
    beta: int | None = None  # None for methods without a critical mask

    @classmethod
    def load(cls, path: Path | str) -> Ledger:
        """The ledger of a run directory, without the rest of it."""
        run = Path(path)
        if not (run / "ledger.jsonl").is_file():
            raise RunError(f"{run} has no ledger.jsonl; is this a run directory?")
        layout = read_json(run / "layout.json", LAYOUT)
        if layout is None or "exchanged" not in layout:
            raise RunError(f"{run} lacks a layout.json that says how many parameters are exchanged")
        config = read_toml(run / "config.toml", CONFIG)
        return cls.read(run / "ledger.jsonl", layout["exchanged"], config)

    @classmethod
    def read(cls, file: Path, d: int, config: dict[str, Any]) -> Ledger:
        lines = read_lines(file)
        for number, line in enumerate(lines, start=1):
            said = complaint(line, LEDGER_LINE)
            if not said and line["direction"] not in DIRECTIONS:
                said = f"its direction is {line['direction']!r}"
            if said:
                raise RunError(f"{file}, line {number} is not a message: {said} ({line}); restore the file")

        def ints(values: list[Any]) -> Ints:
            return np.array(values, dtype=np.int64)

        critical = [line.get("critical") for line in lines]
        has_masks = any(value is not None for value in critical)
        return cls(
            round_m=ints([line["round"] for line in lines]),
            client_m=ints([line["client"] for line in lines]),
            up_m=np.array([line["direction"] == "up" for line in lines], dtype=np.bool_),
            sections_ms=ints([[line["bytes"].get(name, 0) for name in SECTIONS] for line in lines]).reshape(
                len(lines), len(SECTIONS)
            ),
            kept_m=ints([line.get("kept", 0) for line in lines]),
            critical_m=ints([-1 if value is None else value for value in critical]),
            outside_m=ints([line.get("outside") or 0 for line in lines]),
            paper_m=ints([line.get("paper_bytes", 0) for line in lines]),
            mask_encodings=[str(line.get("mask_encoding", "none")) for line in lines],
            value_types=[str(line.get("value_type", "float32")) for line in lines],
            d=d,
            beta=config.get("method", {}).get("beta") if has_masks else None,
        )

    def __len__(self) -> int:
        return len(self.round_m)

    @property
    def total_m(self) -> Ints:
        total: Ints = self.sections_ms.sum(axis=1)
        return total

    def of(self, direction: str) -> NDArray[np.bool_]:
        """Which messages go this way."""
        return self.up_m if direction == "up" else ~self.up_m

    def per_round(self, direction: str, values_m: NDArray[Any], rounds: int) -> Floats:
        """Sum over the messages of each round 0..rounds -> [rounds + 1]. Round 0 is the initial model."""
        chosen = self.of(direction) & (self.round_m <= rounds)
        summed = np.bincount(self.round_m[chosen], values_m[chosen], rounds + 1)
        return summed.astype(np.float64)

    def mean_mib(self, direction: str, *, paper: bool = False) -> float:
        """MiB per message, which is MiB per client and round; 0 where nothing was sent."""
        values = (self.paper_m if paper else self.total_m)[self.of(direction)]
        return float(values.mean() / MIB) if len(values) else 0.0

    def bound(self, m: int) -> float:
        """Bytes of an ideal coder; a mask the receiver has already (echo) costs it nothing."""
        critical = max(int(self.critical_m[m]), 0)
        echoed = self.mask_encodings[m].startswith("echo")
        outside = entropy_bits(int(self.outside_m[m]), self.d - critical)
        bits = (0.0 if echoed else entropy_bits(critical, self.d)) + outside
        size = VALUE_BYTES.get(self.value_types[m])  # None: a type that is not here; taken as ideal
        values = int(self.sections_ms[m, SECTIONS.index("values")])
        return bits / 8 + (values if size is None else int(self.kept_m[m]) * size)

    def totals(self, direction: Direction | None = None, first: int = 0, last: int | None = None) -> Totals:
        """Of the messages of rounds first..last, in one direction or both."""
        chosen = (self.round_m >= first) & (self.round_m <= (self.round_m if last is None else last))
        if direction is not None:
            chosen &= self.of(direction)
        sums = dict(zip(SECTIONS, self.sections_ms[chosen].sum(axis=0).tolist(), strict=True))
        return Totals(
            messages=int(chosen.sum()),
            **sums,
            total=sum(sums.values()),
            kept=int(self.kept_m[chosen].sum()),
            paper_bytes=int(self.paper_m[chosen].sum()),
            bound=sum(self.bound(int(m)) for m in np.flatnonzero(chosen)),
        )

    def rounds(self, direction: Direction) -> dict[int, Totals]:
        rounds = np.unique(self.round_m[self.of(direction)]).tolist()
        return {t: self.totals(direction, t, t) for t in rounds}

    def phases(self, direction: Direction) -> dict[str, Totals]:
        """All rounds and, for methods with critical masks, those up to beta and those after it."""
        phases = {"all rounds": self.totals(direction)}
        if self.beta is not None:
            phases[f"rounds to {self.beta}"] = self.totals(direction, last=self.beta)
            phases[f"rounds from {self.beta + 1}"] = self.totals(direction, first=self.beta + 1)
        return {name: totals for name, totals in phases.items() if totals.messages}

    def encodings(self, direction: Direction) -> Counter[str]:
        return Counter(self.mask_encodings[m] for m in np.flatnonzero(self.of(direction)))

    def table_rows(self) -> list[dict[str, str]]:
        """Means per message, which is per client and round; ours beside the paper's rule."""
        return [
            _row(direction, name, totals)
            for direction in DIRECTIONS
            for name, totals in self.phases(direction).items()
        ]

    def to_csv(self, path: Path | str) -> None:
        """A line per message, with its total and its bound."""
        columns = {
            "round": self.round_m,
            "client": self.client_m,
            "direction": np.where(self.up_m, "up", "down"),
            **dict(zip(SECTIONS, self.sections_ms.T, strict=True)),
            "kept": self.kept_m,
            "critical": [critical if critical >= 0 else "" for critical in self.critical_m],
            "outside": self.outside_m,
            "paper_bytes": self.paper_m,
            "mask_encoding": self.mask_encodings,
            "value_type": self.value_types,
            "total": self.total_m,
            "bound": [round(self.bound(m), 1) for m in range(len(self))],
        }
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        with writing(Path(path)):
            write_atomic(Path(path), text.getvalue())

    def document(self) -> dict[str, Any]:
        """The totals: by direction, phase and round, with the encodings that were chosen."""
        directions = {
            direction: {
                "phases": {name: totals.as_dict() for name, totals in self.phases(direction).items()},
                "rounds": {str(t): totals.as_dict() for t, totals in self.rounds(direction).items()},
                "encodings": dict(self.encodings(direction).most_common()),
            }
            for direction in DIRECTIONS
        }
        return {"exchanged": self.d, "beta": self.beta, "directions": directions}

    def to_json(self, path: Path | str) -> None:
        with writing(Path(path)):
            write_atomic(Path(path), json.dumps(self.document(), indent=1) + "\n")


def _row(direction: str, phase: str, totals: Totals) -> dict[str, str]:
    def mean(amount: float) -> str:
        return f"{amount / totals.messages / MIB:.4f}"

    return {
        "direction": direction,
        "phase": phase,
        "messages": str(totals.messages),
        "total": mean(totals.total),
        **{name: mean(getattr(totals, name)) for name in SECTIONS},
        "kept": f"{totals.kept / totals.messages:.0f}",
        "paper": mean(totals.paper_bytes),
        "ours/paper": f"{totals.total / totals.paper_bytes:.4f}" if totals.paper_bytes else "-",
        "over bound": f"{totals.gap:+.2%}",
    }
