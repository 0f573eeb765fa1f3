"""FedPURIN: score by perturbation, upload only the critical parameters, merge inside groups.

client   s = |-g*theta + 1/2 (g*theta)^2|;  m = top tau of each layer;  send theta*m and m
server   O_ij from the masks;  C_i = { j: O_ij >= Th(t) };  delta_i = mean over C_i and i of theta_j*m_j
         theta_bar = weighted mean of theta_i*m_i;  client i gets delta_i*m_i + theta_bar*(1 - m_i)

Not the paper's: score = curvature, |theta| sqrt(h) with h the mean squared gradient of the last epoch's
mini-batches (theta^2 h orders parameters alike); tau_end; silent_after; settle, the mask first and the last
epochs inside it; strict, groups of close clients only. Updates for weights: fedfrugal.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedpurin.core import critical_mask, perturbation
from fedpurin.core.bits import choose, unpack_bits
from fedpurin.core.merge import Average
from fedpurin.errors import ConfigError
from fedpurin.layout import Layout, Selection
from fedpurin.messages import Delivery, Known, Message, Uploads
from fedpurin.methods.base import SILENT_AFTER, Ending, Fit, Method, NoMemory
from fedpurin.methods.groups import Groups, describe_groups, merge_groups, sound
from fedpurin.settings import setting


@dataclass(frozen=True)
class FedPURIN(Method[NoMemory, Groups]):
    name: ClassVar[str] = "fedpurin"
    label: ClassVar[str] = "FedPURIN"
    color: ClassVar[str] = "#d55e00"
    dash: ClassVar[str] = "solid"
    marker: ClassVar[str] = "circle"
    order: ClassVar[int] = 6
    has_masks: ClassVar[bool] = True

    tau: float = setting(0.5, "share of parameters kept as critical, per layer", above=0, most=1)
    beta: int = setting(100, "round after which critical parameters stop being shared", least=1)
    score: Literal["gradient", "delta", "curvature", "magnitude", "random"] = setting(
        "gradient", "what makes a parameter critical; magnitude and random are controls"
    )
    hessian: bool = setting(False, "add the quadratic term of Eq. 7")
    gradient_dtype: Literal["float32", "float16"] = setting("float32", "round the last gradient to this type")
    exchange_norm: Literal["no", "whole", "selected"] = setting("no", "exchange batch norm")
    noncritical: Literal["global", "local"] = setting(
        "global", "what fills the other parameters; with local, uploads after beta are of use to nobody"
    )
    average: Average = setting("paper", "paper: zeros are averaged in; support: only what was sent")
    floor: float = setting(1e-10, "scores up to this are not critical; -1: no floor", least=-1)
    tau_end: float = setting(0.0, "tau moves there, linearly, until round beta; 0: it stays", least=0, most=1)
    silent_after: int = setting(0, SILENT_AFTER, least=0)
    settle: int = setting(0, "last epochs trained inside the mask, which is chosen before them", least=0)
    strict: float = setting(
        0.0, "groups begin as the paper's are at this share of beta: 0.8, only the closest", least=0, most=1
    )

    def __post_init__(self) -> None:
        if self.settle and self.score == "curvature":
            raise ConfigError(
                "method.settle needs the mask before the last epoch, in which method.score = curvature is "
                "measured; choose another score, or settle = 0"
            )

    @classmethod
    def idle(cls, settings: Mapping[str, Any]) -> dict[str, str]:
        score = settings.get("score", "gradient")
        idle = {} if score == "gradient" else {"gradient_dtype": "score"}
        return idle if score in ("gradient", "delta") else idle | {"hessian": "score"}

    def exchanged(self, layout: Layout) -> Tensor:
        return layout.where("body", "head", *(() if self.exchange_norm == "no" else ("norm",)))

    def ending(self) -> Ending:
        return Ending(squares=self.score == "curvature", inside=self.settle)

    def silent(self, t: int) -> bool:
        return 0 < self.silent_after < t

    def tau_at(self, t: int) -> float:
        """Round 1: tau. From round beta on: tau_end."""
        if not self.tau_end:
            return self.tau
        way = min(1.0, (t - 1) / max(1, self.beta - 1))
        return self.tau + way * (self.tau_end - self.tau)

    def as_in_round(self, t: int) -> int:
        """The round of the paper's schedule whose groups are formed in round t."""
        return max(t, math.ceil(self.strict * self.beta))

    def memory(self, layout: Layout, selection: Selection, start_nD: Tensor) -> NoMemory:
        return NoMemory()

    def server(self, selection: Selection, clients: int, start_d: Tensor) -> Groups:
        return Groups()

    def scores(self, fit: Fit) -> Tensor:
        theta_nd = fit.theta_nd
        match self.score:
            case "gradient":
                g_nd = fit.selection.take(fit.gradient_nD)
                if self.gradient_dtype == "float16":
                    g_nd = g_nd.half().float()
                return perturbation(g_nd, theta_nd, hessian=self.hessian)
            case "delta":
                delta_nd = theta_nd - fit.selection.take(fit.start_nD)
                return perturbation(delta_nd, theta_nd, hessian=self.hessian)
            case "curvature":
                assert fit.squares_nD is not None
                return perturbation(fit.selection.take(fit.squares_nD).sqrt_(), theta_nd)
            case "magnitude":
                return theta_nd.abs()
            case "random":
                return fit.noise()

    def inside(self, fit: Fit) -> Tensor:
        mask_nd = critical_mask(
            sound(self.scores(fit)), fit.selection.sizes, self.tau_at(fit.t), floor=self.floor
        )
        if self.exchange_norm == "whole":
            mask_nd |= fit.selection.take(fit.layout.where("norm")[None])
        return mask_nd

    def upload(self, fit: Fit, memory: NoMemory) -> tuple[Message | None, NoMemory]:
        # after `settle` the mask is where training left anything
        mask_nd = fit.theta_nd != 0 if self.settle else self.inside(fit)
        theta_nd = choose(mask_nd, fit.theta_nd)
        return Message(theta_nd, critical_nd=mask_nd, support_nd=mask_nd), memory

    def aggregate(self, server: Groups, uploads: Uploads, t: int) -> Groups:
        return merge_groups(uploads, self.as_in_round(t), self.beta, self.average)

    def record(self, server: Groups, uploads: Uploads) -> dict[str, Any]:
        return describe_groups(server, uploads)

    def reply(self, server: Groups, client: int, known: Known) -> Message | None:
        """theta_bar where it says anything; the critical part unless it is the client's own."""
        if server.theta_bar is None:
            return None
        assert server.sent is not None
        theta_bar = server.theta_bar[None]
        d = theta_bar.shape[1]
        told = unpack_bits(server.sent, d)[None] if self.average == "support" else theta_bar != 0
        if known.mask is None:
            return Message(theta_bar, support_nd=told)
        mask = unpack_bits(known.mask, d)[None]
        support = torch.zeros_like(mask) if self.noncritical == "local" else told & ~mask
        values = choose(support, theta_bar)
        if known.kept is not None:
            support |= mask
            values = choose(mask, known.kept, values)
        return Message(values, critical_nd=mask, support_nd=support)

    def download(self, weights_nD: Tensor, delivery: Delivery, memory: NoMemory) -> tuple[Tensor, NoMemory]:
        """Critical values that did not come are the client's own; others that nobody sent are 0."""
        message, put = delivery.message, delivery.selection.put
        replaced_nd, critical_nd = message.support_nd, message.critical_nd
        if replaced_nd is not None and self.average == "paper":
            if critical_nd is None:
                replaced_nd = None
            elif self.noncritical == "global":
                replaced_nd = replaced_nd | ~critical_nd
        if replaced_nd is not None and replaced_nd.all():
            replaced_nd = None
        return put(weights_nD, message.values_nd, replaced_nd), memory
