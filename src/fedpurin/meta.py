"""What a client says beside its upload: its sample count and, unless switched off, its metrics.

A fixed byte form, so that every engine counts the same. Little-endian:
    u32 samples
    and only with metrics: u32 round that `merged` belongs to (0: not measured),
    three times (merged, trained, upload) u32 correct, u32 total, f64 sum of the losses,
    f64 seconds of training, of evaluation, of everything else
    and only with validation samples: u32 correct, u32 total, f64 sum of the losses after training,
    u32 round of the best model so far
With a metric that is no count, `correct` is the metric times `total`, an f64, and there is no validation.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from fedpurin.errors import CorruptError
from fedpurin.train import Score

_COUNT = struct.Struct("<I")
_METRICS = struct.Struct("<I" + "IId" * 3 + "ddd")
_MEASURES = struct.Struct("<I" + "dId" * 3 + "ddd")
_VALIDATION = struct.Struct("<IIdI")
_SIZES = (_COUNT.size, _COUNT.size + _METRICS.size, _COUNT.size + _METRICS.size + _VALIDATION.size)
_MEASURED = _COUNT.size + _MEASURES.size
_NOTHING = Score(0, 0, 0.0)


@dataclass(frozen=True)
class Validation:
    """How a client's trained model does on its validation samples, and which of its models it keeps."""

    score: Score
    best_round: int


@dataclass(frozen=True)
class Meta:
    samples: int
    merged_round: int = 0
    merged: Score | None = None
    trained: Score | None = None
    upload: Score | None = None
    seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)  # train, evaluate, the rest
    validation: Validation | None = None

    def to_bytes(self, share_metrics: bool = True) -> bytes:
        count = _COUNT.pack(self.samples)
        if not share_metrics:
            return count
        scores = [s or _NOTHING for s in (self.merged, self.trained, self.upload)]
        flat = [number for s in scores for number in (s.correct, s.total, s.loss_sum)]
        form = _MEASURES if any(isinstance(s.correct, float) for s in scores) else _METRICS
        told = count + form.pack(self.merged_round, *flat, *self.seconds)
        if self.validation is None:
            return told
        v = self.validation.score
        return told + _VALIDATION.pack(v.correct, v.total, v.loss_sum, self.validation.best_round)

    @classmethod
    def from_bytes(cls, data: bytes) -> Meta:
        form = _MEASURES if len(data) == _MEASURED else _METRICS
        if len(data) not in (*_SIZES, _MEASURED):
            sizes = ", ".join(map(str, _SIZES[:-1]))
            raise CorruptError(
                f"sample count and metrics take {sizes} or {_SIZES[-1]} bytes, not {len(data)}"
            )
        (samples,) = _COUNT.unpack_from(data)
        if samples < 1:
            raise CorruptError("a client reports 0 training samples")
        if len(data) == _COUNT.size:
            return cls(samples)
        merged_round, *numbers = form.unpack_from(data, _COUNT.size)
        scores = [Score(*numbers[i : i + 3]) for i in (0, 3, 6)]
        validation = None
        if len(data) == _SIZES[-1]:
            correct, total, loss_sum, best_round = _VALIDATION.unpack_from(data, _SIZES[-2])
            validation = Validation(Score(correct, total, loss_sum), best_round)
            if not total:
                raise CorruptError("a client reports a validation without samples")
        for s in [*scores, *([validation.score] if validation else [])]:
            if not math.isfinite(s.correct):
                raise CorruptError(f"a client reports a metric of {s.correct}")
            if form is _METRICS and s.correct > s.total:
                raise CorruptError(f"a client reports {s.correct} correct answers of {s.total}")
        seconds = tuple(numbers[9:12])
        if not all(math.isfinite(s) and s >= 0 for s in seconds):
            raise CorruptError(f"a client reports {seconds} seconds of work; its clock is broken")
        merged, trained, upload = (s if s.total else None for s in scores)
        return cls(samples, merged_round, merged, trained, upload, seconds, validation)
