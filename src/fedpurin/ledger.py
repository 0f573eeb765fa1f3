"""What every message cost: bytes by section, beside the paper's counting rule and the entropy bound.

Writing a line needs torch, reading does not. A message costs what was handed over: header, mask and values as
they were encoded, and meta, the sample count and metrics that go up beside it.

The paper counts 4 bytes for each non-zero value that travels, whatever its type, and for uploads with a
critical mask 1 bit per exchanged parameter; no header, no packaging.

The bound is what an ideal coder needs that knows only how many positions are chosen: n * H(k / n) bits for
k of n, plus the values. A mask that is like the one before, or has runs, can cost less.
"""

from __future__ import annotations

import csv
import io
import json
import math
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedpurin.errors import RunError
from fedpurin.files import write_atomic

if TYPE_CHECKING:
    from fedpurin.messages import Message

Direction = Literal["up", "down"]
DIRECTIONS: tuple[Direction, ...] = ("up", "down")
VALUE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}
PAPER_VALUE_BYTES = 4
MIB = 2**20


def paper_bytes(message: Message, direction: Direction) -> int:
    """The paper's counting rule for one message of one client."""
    values_nd = message.values_nd
    travels = values_nd != 0 if message.support_nd is None else (values_nd != 0) & message.support_nd
    has_mask = direction == "up" and message.critical_nd is not None
    mask = -(-values_nd.shape[1] // 8) if has_mask else 0
    return PAPER_VALUE_BYTES * int(travels.sum()) + mask


def entry(data: bytes | memoryview, message: Message, *, meta: int = 0) -> dict[str, Any]:
    """The ledger line of a message, from the bytes that travel; `meta` bytes go beside them."""
    from fedpurin import wire  # brings torch, which readers of a ledger do not need

    head = wire.peek(data)
    return {
        "round": head.round,
        "client": head.client,
        "direction": head.direction,
        "bytes": {
            "header": wire.HEADER_BYTES,
            "mask": head.critical_bytes + head.outside_bytes,
            "values": head.value_bytes,
            "meta": meta,
        },
        "kept": head.kept,
        "critical": None if message.critical_nd is None else head.critical,
        "outside": head.kept_outside,
        "paper_bytes": paper_bytes(message, head.direction),
        "mask_encoding": head.mask_encoding,
        "value_type": head.value_type,
    }


@dataclass(frozen=True)
class Line:
    """One message, as read back."""

    round: int
    client: int
    direction: Direction
    header: int
    mask: int
    values: int
    meta: int
    kept: int
    critical: int | None
    outside: int
    paper_bytes: int
    mask_encoding: str
    value_type: str

    @classmethod
    def from_entry(cls, found: dict[str, Any]) -> Line:
        rest = {name: found[name] for name in (f.name for f in fields(cls)) if name not in found["bytes"]}
        line = cls(**found["bytes"], **rest)
        if line.direction not in DIRECTIONS or line.value_type not in VALUE_BYTES:
            raise ValueError(f"direction {line.direction!r} or value type {line.value_type!r} is unknown")
        return line

    @property
    def total(self) -> int:
        return self.header + self.mask + self.values + self.meta

    def bound(self, d: int) -> float:
        """Bytes of an ideal coder; a mask the receiver has already (echo) costs it nothing."""
        critical = self.critical or 0
        known = self.mask_encoding.startswith("echo")
        bits = (0.0 if known else entropy_bits(critical, d)) + entropy_bits(self.outside, d - critical)
        return bits / 8 + self.kept * VALUE_BYTES[self.value_type]


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

    @classmethod
    def of(cls, lines: Iterable[Line], d: int) -> Totals:
        chosen = list(lines)
        sums = {
            name: sum(getattr(line, name) for line in chosen)
            for name in ("header", "mask", "values", "meta", "total", "kept", "paper_bytes")
        }
        return cls(messages=len(chosen), **sums, bound=sum(line.bound(d) for line in chosen))

    @property
    def gap(self) -> float:
        """How much more than the bound the mask and value sections take, as a share of the bound."""
        return (self.mask + self.values) / self.bound - 1 if self.bound else 0.0


@dataclass(frozen=True)
class Ledger:
    lines: list[Line]
    d: int  # exchanged parameters
    beta: int | None  # None for methods without a critical mask

    @classmethod
    def load(cls, run: Path | str) -> Ledger:
        run = Path(run)
        lines = _read_lines(run / "ledger.jsonl")
        try:
            d = int(json.loads((run / "layout.json").read_text(encoding="utf-8"))["exchanged"])
            config = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
            beta = int(config["method"]["beta"]) if any(x.critical is not None for x in lines) else None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{run} lacks a readable layout.json or config.toml ({error!r})") from error
        return cls(lines, d, beta)

    def select(
        self, direction: Direction | None = None, first: int = 0, last: int | None = None
    ) -> list[Line]:
        """The messages of rounds first..last, in one direction or both."""
        return [
            line
            for line in self.lines
            if direction in (None, line.direction)
            and first <= line.round
            and (last is None or line.round <= last)
        ]

    def totals(self, direction: Direction | None = None, first: int = 0, last: int | None = None) -> Totals:
        return Totals.of(self.select(direction, first, last), self.d)

    def per_round(self, direction: Direction | None = None) -> dict[int, Totals]:
        rounds: dict[int, list[Line]] = {}
        for line in self.select(direction):
            rounds.setdefault(line.round, []).append(line)
        return {t: Totals.of(lines, self.d) for t, lines in sorted(rounds.items())}

    def phases(self, direction: Direction) -> dict[str, Totals]:
        """All rounds and, for methods with critical masks, those up to beta and those after it."""
        found = {"all rounds": self.totals(direction)}
        if self.beta is not None:
            found[f"rounds to {self.beta}"] = self.totals(direction, last=self.beta)
            found[f"rounds from {self.beta + 1}"] = self.totals(direction, first=self.beta + 1)
        return {name: totals for name, totals in found.items() if totals.messages}

    def encodings(self, direction: Direction) -> Counter[str]:
        return Counter(line.mask_encoding for line in self.select(direction))

    def table_rows(self) -> list[dict[str, str]]:
        """Means per message, which is per client and round; ours beside the paper's rule."""
        return [
            _row(direction, name, totals)
            for direction in DIRECTIONS
            for name, totals in self.phases(direction).items()
        ]

    def to_csv(self, path: Path | str) -> None:
        """A line per message, with its total and its bound."""
        text = io.StringIO(newline="")
        names = [f.name for f in fields(Line)] + ["total", "bound"]
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        for line in self.lines:
            writer.writerow(asdict(line) | {"total": line.total, "bound": round(line.bound(self.d), 1)})
        write_atomic(Path(path), text.getvalue())

    def to_json(self, path: Path | str) -> None:
        """The totals: by direction, phase and round, with the encodings that were chosen."""
        document = {
            "exchanged": self.d,
            "beta": self.beta,
            "directions": {
                direction: {
                    "phases": {name: _as_dict(totals) for name, totals in self.phases(direction).items()},
                    "rounds": {str(t): _as_dict(totals) for t, totals in self.per_round(direction).items()},
                    "encodings": dict(self.encodings(direction).most_common()),
                }
                for direction in DIRECTIONS
            },
        }
        write_atomic(Path(path), json.dumps(document, indent=1) + "\n")


def _as_dict(totals: Totals) -> dict[str, Any]:
    return asdict(totals) | {"bound": round(totals.bound, 1), "gap": round(totals.gap, 6)}


def _row(direction: str, phase: str, totals: Totals) -> dict[str, str]:
    def mean(amount: float) -> str:
        return f"{amount / totals.messages / MIB:.4f}"

    return {
        "direction": direction,
        "phase": phase,
        "messages": str(totals.messages),
        "total": mean(totals.total),
        "header": mean(totals.header),
        "mask": mean(totals.mask),
        "values": mean(totals.values),
        "meta": mean(totals.meta),
        "kept": f"{totals.kept / totals.messages:.0f}",
        "paper": mean(totals.paper_bytes),
        "ours/paper": f"{totals.total / totals.paper_bytes:.4f}" if totals.paper_bytes else "-",
        "over bound": f"{totals.gap:+.2%}",
    }


def _read_lines(file: Path) -> list[Line]:
    """A last line that is torn, because its writer was interrupted, does not count."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise RunError(f"{file} cannot be read ({error.strerror}); is this a run directory?") from error
    lines: list[Line] = []
    for number, text in enumerate(raw.split(b"\n")[:-1], start=1):
        try:
            lines.append(Line.from_entry(json.loads(text)))
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{file}, line {number} is not a ledger line ({error!r}); restore the file"
            ) from error
    return lines
