"""FedCAC: dense uploads and a mask; clients with similar critical parameters share them.

score |delta * theta|, delta the change over the whole local training; means are of dense models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedpurin.core import critical_mask, perturbation
from fedpurin.core.bits import unpack_bits
from fedpurin.messages import Message, Uploads
from fedpurin.methods.base import Fit, Memory, Method, Server
from fedpurin.methods.groups import merge_groups


@dataclass(frozen=True)
class FedCAC(Method):
    name: ClassVar[str] = "fedcac"
    label: ClassVar[str] = "FedCAC"
    has_masks: ClassVar[bool] = True

    tau: float = 0.5
    beta: int = 100

    def upload(self, fit: Fit, memory: Memory) -> tuple[Message | None, Memory]:
        theta_nd = fit.selection.take(fit.end_nD)
        scores_nd = perturbation(theta_nd - fit.selection.take(fit.start_nD), theta_nd)
        mask_nd = critical_mask(scores_nd, fit.selection.sizes, self.tau, fallback=1e-20)
        return Message(theta_nd, critical_nd=mask_nd), memory

    def aggregate(self, server: Server, uploads: Uploads, t: int) -> Server:
        return merge_groups(server, uploads, t, self.beta, "paper")

    def reply(self, server: Server, client: int) -> Message | None:
        if "theta_bar" not in server:
            return None
        theta_bar = server["theta_bar"][None]
        if not server["confirmed"][client]:
            return Message(theta_bar)
        mask = unpack_bits(server["mask"][client], theta_bar.shape[1])[None]
        if server["alone"][client]:
            return Message(torch.where(mask, 0.0, theta_bar), critical_nd=mask, support_nd=~mask)
        return Message(torch.where(mask, server["merged"][client], theta_bar), critical_nd=mask)
