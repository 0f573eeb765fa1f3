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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from fedpurin.errors import CorruptError
from fedpurin.sections import TrainSection
from fedpurin.task import LearningTask, named_metric
from fedpurin.train import Score

_COUNT = struct.Struct("<I")
_METRICS = struct.Struct("<II" + "IId" * 3 + "ddd")
_MEASURES = struct.Struct("<II" + "dId" * 3 + "ddd")
_VALIDATION = struct.Struct("<IIdI")
_VALIDATED_BYTES = _METRICS.size + _VALIDATION.size
_NOTHING = Score(0, 0, 0.0)
LARGEST = 1e100  # no honest loss or metric is, and sums of squares of them stay far below 1.8e308
YEAR = 366 * 86400.0  # seconds

Measures = Literal["answers", "a share", "a metric"]
"""What the evaluations of a job give: counts of right answers, a share of labels, or any number."""


class Stopwatch:
    """Seconds of training, of evaluation, and of all the rest."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.spent = {"train": 0.0, "evaluate": 0.0}

    @contextmanager
    def running(self, what: str) -> Iterator[None]:
        before = time.perf_counter()
        yield
        self.spent[what] += time.perf_counter() - before

    def seconds(self) -> tuple[float, float, float]:
        train_s, evaluate_s = self.spent["train"], self.spent["evaluate"]
        return train_s, evaluate_s, time.perf_counter() - self.started - train_s - evaluate_s


def measures_of(task: LearningTask, settings: TrainSection) -> Measures:
    if task.metric is None:
        return "answers"
    return "a share" if named_metric(settings.loss, settings.metric) == "label_accuracy" else "a metric"


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
        if not share_metrics:
            return _COUNT.pack(self.samples)
        scores = [s or _NOTHING for s in (self.merged, self.trained, self.upload)]
        flat = [number for s in scores for number in (s.correct, s.total, s.loss_sum)]
        form = _MEASURES if any(isinstance(s.correct, float) for s in scores) else _METRICS
        told = form.pack(self.samples, self.merged_round, *flat, *self.seconds)
        if self.validation is None:
            return told
        v = self.validation.score
        return told + _VALIDATION.pack(v.correct, v.total, v.loss_sum, self.validation.best_round)

    @classmethod
    def from_bytes(cls, data: bytes, measures: Measures | None = None) -> Meta:
        """`measures`: what the job does; None: the bytes are one's own. Another machine cannot choose."""
        form = _MEASURES if len(data) == _MEASURES.size else _METRICS
        if len(data) not in (_COUNT.size, form.size, _VALIDATED_BYTES):
            raise CorruptError(
                f"sample count and metrics take {_COUNT.size}, {_METRICS.size} or {_VALIDATED_BYTES} bytes, "
                f"not {len(data)}"
            )
        (samples,) = _COUNT.unpack_from(data)
        if samples < 1:
            raise CorruptError("a client reports 0 training samples")
        if len(data) == _COUNT.size:
            return cls(samples)
        _, merged_round, *numbers = form.unpack_from(data)
        scores = [Score(*numbers[i : i + 3]) for i in (0, 3, 6)]
        _check_form(form is _METRICS, any(s.total for s in scores), measures)
        validation = None
        if len(data) == _VALIDATED_BYTES:
            *score, best_round = _VALIDATION.unpack_from(data, _METRICS.size)
            validation = Validation(Score(*score), best_round)
            if not validation.score.total:
                raise CorruptError("a client reports a validation without samples")
        for s in [*scores, *([validation.score] if validation else [])]:
            _check_score(s, shared=form is _METRICS or measures == "a share")
        seconds = tuple(numbers[9:12])
        if not all(0 <= s < YEAR for s in seconds):
            raise CorruptError(f"a client reports {seconds} seconds of work; its clock is broken")
        merged, trained, upload = (s if s.total else None for s in scores)
        return cls(samples, merged_round, merged, trained, upload, seconds, validation)


def _check_form(counted: bool, evaluated: bool, measures: Measures | None) -> None:
    """Without test samples there is nothing to tell the one form from the other by."""
    if measures == "answers" and not counted:
        raise CorruptError("a client reports a metric that is no count, but the job counts right answers")
    if measures in ("a share", "a metric") and counted and evaluated:
        raise CorruptError("a client reports counts of right answers, but the job has a metric of its own")


def _check_score(score: Score, *, shared: bool) -> None:
    if shared and not 0 <= score.correct <= score.total:
        raise CorruptError(f"a client reports {score.correct} correct answers of {score.total}")
    most = LARGEST * max(score.total, 1)
    if not abs(score.correct) <= most:
        raise CorruptError(f"a client reports a metric of {score.correct}")
    # Of a model that diverges the loss may be no number; it is left out of the record.
    if most < abs(score.loss_sum) < math.inf:
        raise CorruptError(f"a client reports a sum of losses of {score.loss_sum:.1e}; none is so large")
