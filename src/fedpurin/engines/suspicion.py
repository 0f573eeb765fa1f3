"""Messages that are well formed and not to be believed all the same: absurd values, or ones that stand out.

Refused always: values so large that sums of them could leave float32, a sample count other than the split's
where the server knows it, and an evaluation of a model that does not exist yet. Bounded where [robust] says
so: uploads far from the others, and sample counts far above the others'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedpurin.config import Config
from fedpurin.core.robust import bound_norms
from fedpurin.errors import MismatchError, NotFiniteError
from fedpurin.messages import Uploads
from fedpurin.meta import Meta

LARGEST = 2.0**100  # 1.3e30: no weight is, and sums over every client and round stay far below 3e38


def check_values(client: int, values_nd: Tensor) -> None:
    least, most = torch.aminmax(values_nd)
    largest = max(-float(least), float(most))
    if largest > LARGEST:
        raise NotFiniteError(
            f"client {client} sent a value of {largest:.1e}; nothing above {LARGEST:.1e} is taken: "
            "its training has diverged, or it lies"
        )


def check_told(
    client: int, told: Meta, t: int, samples: Sequence[int] | None, *, validates: bool = False
) -> None:
    """`samples`: of each client, where the server knows them; `validates`: whether the job has validation."""
    if samples is not None and told.samples != samples[client]:
        raise MismatchError(
            f"client {client} reports {told.samples} training samples, "
            f"but the split gives it {samples[client]}"
        )
    if told.merged_round >= t:
        raise MismatchError(
            f"client {client} reports the accuracy of round {told.merged_round}'s merged model in round {t}, "
            "before there is one"
        )
    if told.validation is None:
        return
    if not validates:
        raise MismatchError(f"client {client} reports a validation, but data.validation is 0")
    if not 1 <= told.validation.best_round <= t:
        raise MismatchError(
            f"client {client} says in round {t} that its best model is of round {told.validation.best_round}"
        )


def bounded(uploads: Uploads, config: Config) -> tuple[Uploads, list[dict[str, Any]]]:
    """The uploads as the method may see them, and for the record: who was bounded, and why."""
    robust, said = config.robust, []
    if robust.norm_bound:
        values_nd, ratio_n = bound_norms(
            uploads.values_nd, robust.norm_bound, uploads.sent_nd, updates=config.method.sends_updates
        )
        uploads = replace(uploads, values_nd=values_nd)
        said += _report(
            uploads.clients, ratio_n, robust.norm_bound, "its upload lies {:.3g} times as far out as"
        )
    if robust.sample_bound:
        samples_n = uploads.samples_n
        ratio_n = samples_n / samples_n.median()
        most = int(robust.sample_bound * int(samples_n.median()))
        uploads = replace(uploads, samples_n=samples_n.clamp(max=most))
        said += _report(
            uploads.clients, ratio_n, robust.sample_bound, "it reports {:.3g} times as many samples as"
        )
    return uploads, said


def _report(clients: list[int], ratio_n: Tensor, bound: float, text: str) -> list[dict[str, Any]]:
    return [
        {"client": client, "reason": f"{text.format(ratio)} the median client; bounded at {bound:g} times"}
        for client, ratio in zip(clients, ratio_n.tolist(), strict=True)
        if ratio > bound
    ]
