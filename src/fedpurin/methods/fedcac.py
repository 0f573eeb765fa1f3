"""FedCAC: dense uploads and a mask; clients with similar critical parameters share them.

score |delta * theta|, delta the change over the whole local training; means are of dense models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fedpurin.core import critical_mask, perturbation
from fedpurin.core.bits import choose, unpack_bits
from fedpurin.layout import Layout, Selection
from fedpurin.messages import Known, Message, Uploads
from fedpurin.methods.base import Fit, Method, NoMemory
from fedpurin.methods.groups import Groups, describe_groups, merge_groups, sound
from fedpurin.settings import setting


@dataclass(frozen=True)
class FedCAC(Method[NoMemory, Groups]):
    name: ClassVar[str] = "fedcac"
    label: ClassVar[str] = "FedCAC"
    color: ClassVar[str] = "#0072b2"
    dash: ClassVar[str] = "5px,2px"
    marker: ClassVar[str] = "pentagon"
    order: ClassVar[int] = 5
    has_masks: ClassVar[bool] = True

    tau: float = setting(0.5, "share of parameters kept as critical, per layer", above=0, most=1)
    beta: int = setting(100, "round after which critical parameters stop being shared", least=1)

    def memory(self, layout: Layout, selection: Selection, start_nD: Tensor) -> NoMemory:
        return NoMemory()

    def server(self, selection: Selection, clients: int, start_d: Tensor) -> Groups:
        return Groups()

    def upload(self, fit: Fit, memory: NoMemory) -> tuple[Message | None, NoMemory]:
        theta_nd = fit.theta_nd
        scores_nd = perturbation(theta_nd - fit.selection.take(fit.start_nD), theta_nd)
        mask_nd = critical_mask(sound(scores_nd), fit.selection.sizes, self.tau, fallback=1e-20)
        return Message(theta_nd, critical_nd=mask_nd), memory

    def aggregate(self, server: Groups, uploads: Uploads, t: int) -> Groups:
        return merge_groups(uploads, t, self.beta, "paper")

    def record(self, server: Groups, uploads: Uploads) -> dict[str, Any]:
        return describe_groups(server, uploads)

    def reply(self, server: Groups, client: int, known: Known) -> Message | None:
        if server.theta_bar is None:
            return None
        theta_bar = server.theta_bar[None]
        if known.mask is None:
            return Message(theta_bar)
        mask = unpack_bits(known.mask, theta_bar.shape[1])[None]
        if known.kept is None:
            return Message(choose(~mask, theta_bar), critical_nd=mask, support_nd=~mask)
        return Message(choose(mask, known.kept, theta_bar), critical_nd=mask)
