"""FedPURIN: score by perturbation, upload only the critical parameters, merge inside groups.

client   s = |-g*theta + 1/2 (g*theta)^2|;  m = top tau of each layer;  send theta*m and m
server   O_ij from the masks;  C_i = { j: O_ij >= Th(t) };  delta_i = mean over C_i and i of theta_j*m_j
         theta_bar = weighted mean of theta_i*m_i;  client i gets delta_i*m_i + theta_bar*(1 - m_i)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedpurin.core import critical_mask, perturbation
from fedpurin.core.bits import unpack_bits
from fedpurin.core.merge import Average
from fedpurin.layout import Layout, Selection
from fedpurin.messages import Message, Uploads
from fedpurin.methods.base import Fit, Memory, Method, Server
from fedpurin.methods.groups import merge_groups

Score = Literal["gradient", "delta", "magnitude", "random"]


@dataclass(frozen=True)
class FedPURIN(Method):
    name: ClassVar[str] = "fedpurin"
    label: ClassVar[str] = "FedPURIN"
    has_masks: ClassVar[bool] = True

    tau: float = 0.5  # share of critical parameters per layer
    beta: int = 100  # round after which critical parameters are no longer shared
    score: Score = "gradient"  # magnitude and random are controls
    hessian: bool = False  # the quadratic term of Eq. 7
    gradient_dtype: Literal["float32", "float16"] = "float32"
    exchange_norm: Literal["no", "whole", "selected"] = "no"
    noncritical: Literal["global", "local"] = "global"
    average: Average = "paper"
    floor: float = 1e-10  # scores up to this are not critical

    def exchanged(self, layout: Layout) -> Tensor:
        return layout.where("body", "head", *(() if self.exchange_norm == "no" else ("norm",)))

    def scores(self, fit: Fit) -> Tensor:
        theta_nd = fit.selection.take(fit.end_nD)
        match self.score:
            case "gradient":
                g_nd = fit.selection.take(fit.gradient_nD)
                if self.gradient_dtype == "float16":
                    g_nd = g_nd.half().float()
                return perturbation(g_nd, theta_nd, hessian=self.hessian)
            case "delta":
                delta_nd = theta_nd - fit.selection.take(fit.start_nD)
                return perturbation(delta_nd, theta_nd, hessian=self.hessian)
            case "magnitude":
                return theta_nd.abs()
            case "random":
                return fit.noise()

    def upload(self, fit: Fit, memory: Memory) -> tuple[Message | None, Memory]:
        mask_nd = critical_mask(self.scores(fit), fit.selection.sizes, self.tau, floor=self.floor)
        if self.exchange_norm == "whole":
            mask_nd |= fit.selection.take(fit.layout.where("norm")[None])
        theta_nd = torch.where(mask_nd, fit.selection.take(fit.end_nD), 0.0)
        return Message(theta_nd, critical_nd=mask_nd, support_nd=mask_nd), memory

    def aggregate(self, server: Server, uploads: Uploads, t: int) -> Server:
        return merge_groups(server, uploads, t, self.beta, self.average)

    def reply(self, server: Server, client: int) -> Message | None:
        """theta_bar where it says anything; the critical part unless it is the client's own."""
        if "theta_bar" not in server:
            return None
        theta_bar = server["theta_bar"][None]
        d = theta_bar.shape[1]
        told = unpack_bits(server["sent"], d)[None] if self.average == "support" else theta_bar != 0
        if not server["confirmed"][client]:
            return Message(theta_bar, support_nd=told)
        mask = unpack_bits(server["mask"][client], d)[None]
        support = torch.zeros_like(mask) if self.noncritical == "local" else told & ~mask
        values = torch.where(support, theta_bar, 0.0)
        if not server["alone"][client]:
            support |= mask
            values = torch.where(mask, server["merged"][client], values)
        return Message(values, critical_nd=mask, support_nd=support)

    def download(
        self, weights_nD: Tensor, message: Message, memory: Memory, selection: Selection
    ) -> tuple[Tensor, Memory]:
        """Critical values that did not come are the client's own; others that nobody sent are 0."""
        if message.support_nd is None:  # every value came
            return selection.put(weights_nD, message.values_nd), memory
        own_nd = selection.take(weights_nD)
        if self.average == "paper":
            kept = message.critical_nd
            if kept is None:
                kept = torch.zeros_like(message.support_nd)
            elif self.noncritical == "local":
                kept = torch.ones_like(kept)
            own_nd = torch.where(kept, own_nd, 0.0)
        merged_nd = torch.where(message.support_nd, message.values_nd, own_nd)
        return selection.put(weights_nD, merged_nd), memory
