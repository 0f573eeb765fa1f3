"""What every method answers. The defaults are FedAvg's.

Shapes: n clients (one on a site, any number in tests), N all clients of the federation, D all
parameters, d exchanged parameters, b = ceil(d / 8) bytes of a packed mask.

All client hooks but `loss` take any n and never mix rows. `memory` (of clients, rows) and `server`
are flat dicts of tensors. Methods do no I/O, no logging, and draw no random numbers. The engine keeps
`server["confirmed"]`, int64 [N]: the last round in which each client's upload was accepted, 0 for never.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedpurin.core.merge import weighted_mean
from fedpurin.layout import Layout, Selection
from fedpurin.messages import Message, Uploads

Memory = dict[str, Tensor]
Server = dict[str, Tensor]


@dataclass(frozen=True)
class Fit:
    """What local training leaves behind."""

    layout: Layout
    selection: Selection
    t: int  # round, from 1
    start_nD: Tensor  # parameters before local training
    end_nD: Tensor  # parameters after it
    gradient_nD: Tensor  # of the last mini-batch, as back-propagated before the last step
    noise: Callable[[], Tensor]  # [n, d] uniform in [0, 1), fixed by (seed, round, client)


@dataclass(frozen=True)
class Method:
    name: ClassVar[str] = ""
    label: ClassVar[str] = ""
    has_masks: ClassVar[bool] = False

    def exchanged(self, layout: Layout) -> Tensor:
        """bool [D]: which parameters travel at all."""
        return layout.where("body", "head", "norm")

    def memory(self, layout: Layout, n: int) -> Memory:
        """What a client remembers between rounds, as it is before the first."""
        return {}

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, memory: Memory) -> Tensor:
        """The local objective of one client on one mini-batch."""
        return F.cross_entropy(model(x), y)

    def upload(self, fit: Fit, memory: Memory) -> tuple[Message | None, Memory]:
        return Message(fit.selection.take(fit.end_nD)), memory

    def aggregate(self, server: Server, uploads: Uploads, t: int) -> Server:
        """The only place that sees several clients. May overwrite `uploads.values_nd`."""
        return server | {"theta_bar": weighted_mean(uploads.values_nd, uploads.samples_n)}

    def reply(self, server: Server, client: int) -> Message | None:
        """What this client gets at the start of its next round; None before anything was aggregated."""
        if "theta_bar" not in server:
            return None
        return Message(server["theta_bar"][None])

    def download(
        self, weights_nD: Tensor, message: Message, memory: Memory, selection: Selection
    ) -> tuple[Tensor, Memory]:
        """The client's model after a reply. Where no value came, its own (as last uploaded) stays."""
        if message.support_nd is None:
            return selection.put(weights_nD, message.values_nd), memory
        own_nd = selection.take(weights_nD)
        merged_nd = torch.where(message.support_nd, message.values_nd, own_nd)
        return selection.put(weights_nD, merged_nd), memory
