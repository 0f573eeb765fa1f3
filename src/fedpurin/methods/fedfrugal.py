"""FedFrugal: the signs of the largest changes, both ways, and a personal model that costs nothing to send.

The common model b = b0 + c; b0 comes from the seed. Batch norm never travels.

client   start from b, train;  end = mean of the iterates of the last epoch
         u = end - b + residual;  send the largest `up` share of u per layer
         residual = u - what the server decodes of it
         o = steady * o + (1 - steady) * (end - b);  the personal model is b + w * o, its batch-norm
         statistics measured anew over the client's own samples
server   r += weighted mean of the decoded u;  send the largest `down` share of r per layer to everybody
         c += what the clients decode of it;  r -= the same

Each sample of a mini-batch is blended with its neighbour, and so are their targets (mixup, `mix`). The local
learning rate falls from round to round (`fade`) until `rest` of it is left. The offset's weight w falls with
it and goes on falling: in the end the common model knows more than a client's own samples say.
With `prior` a client's b0 has the logarithm of its class shares added to the classifier's biases.

What is not sent means "unchanged", never zero; what is left out or rounded away stays in the residuals and
is sent later. A client that missed an aggregation gets c itself, exactly, wherever it changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from fedpurin.core.bits import pack_bits, unpack_bits
from fedpurin.core.masks import largest
from fedpurin.layout import Layout, Selection
from fedpurin.messages import Delivery, Known, Message, Uploads
from fedpurin.methods.base import Ending, Fit, Method
from fedpurin.methods.state import ServerState, TensorState
from fedpurin.settings import setting


def blended(rows: Tensor, mix: float) -> Tensor:
    """[n, ...]: each row with the one before it, whose shares fall evenly between 0 and `mix`.

    No random numbers: mini-batches are shuffled, so that neighbours and shares meet by chance.
    """
    n = len(rows)
    other_n = mix * (1 - (torch.arange(n, device=rows.device) + 0.5) / n)
    other = other_n.to(rows.dtype).view(n, *[1] * (rows.dim() - 1))
    before = torch.cat([rows[-1:], rows[:-1]])
    return rows * (1 - other) + before * other


@dataclass(frozen=True)
class Offsets(TensorState):
    """What a client keeps beside its personal model, all over the exchanged parameters."""

    initial: Tensor  # [n, d]: b0
    change: Tensor  # [n, d]: c, as far as the client knows it
    residual: Tensor  # [n, d]: what it has not sent yet
    offset: Tensor  # [n, d]: o, zero before the first training


@dataclass(frozen=True)
class Common(ServerState):
    change: Tensor  # [d]: c
    residual: Tensor  # [d]: r
    step: Tensor  # [d]: what the last aggregation sends, before rounding: the same bytes go to everybody
    step_mask: Tensor  # uint8 [b]
    changed: Tensor  # int32 [d]: the round in which c last changed there; 0: never
    round: Tensor  # int64 [1]: the last aggregation; 0: none

    def support(self) -> Tensor | None:
        return self.change != 0


@dataclass(frozen=True)
class FedFrugal(Method[Offsets, Common]):
    name: ClassVar[str] = "fedfrugal"
    label: ClassVar[str] = "FedFrugal"
    color: ClassVar[str] = "#6a3d9a"
    dash: ClassVar[str] = "solid"
    marker: ClassVar[str] = "star"
    order: ClassVar[int] = 7
    sends_updates: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    value_type: ClassVar[str] = "sign"

    up: float = setting(0.1, "share of the update that is sent, per layer", above=0, most=1)
    down: float = setting(0.2, "share of the common model's change that is sent, per layer", above=0, most=1)
    tail: int = setting(1, "last epochs whose iterates are averaged; 0: the last iterate", least=0)
    refresh: bool = setting(True, "measure batch-norm statistics anew after training")
    steady: float = setting(0.7, "weight of the past in the personal offset; 0: none", least=0, most=0.99)
    own: float = setting(
        1.0, "weight of the personal offset; 0: the common model, 1: as trained", least=0, most=1
    )
    own_fades: bool = setting(True, "the offset's weight falls like the rate, and on to 0", before=False)
    prior: float = setting(
        0.0, "weight of the logarithm of a client's class shares in its classifier's biases", least=0, most=2
    )
    fade: float = setting(
        0.95, "factor on the local rate from round to round; 1: it stays", above=0, most=1, before=1.0
    )
    rest: float = setting(0.25, "share of the local rate at which fading ends", least=0, most=1, before=0.0)
    mix: float = setting(
        1.0, "largest share of its neighbour in a training sample; 0: none", least=0, most=1, before=0.0
    )

    @classmethod
    def idle(cls, settings: Mapping[str, Any]) -> dict[str, str]:
        return {"rest": "fade", "own_fades": "fade"} if settings.get("fade") == 1 else {}

    def exchanged(self, layout: Layout) -> Tensor:
        return layout.where("body", "head")

    def ending(self) -> Ending:
        return Ending(self.tail, self.refresh)

    def rate(self, t: int) -> float:
        return float(max(self.fade ** (t - 1), self.rest))

    def weight(self, t: int) -> float:
        """Of the offset in the personal model."""
        return float(self.own * (self.fade ** (t - 1) if self.own_fades else 1.0))

    def memory(self, layout: Layout, selection: Selection, start_nD: Tensor) -> Offsets:
        initial_nd = selection.take(start_nD)
        return Offsets(initial_nd, *(torch.zeros_like(initial_nd) for _ in range(3)))

    def know(self, memory: Offsets, selection: Selection, counts_nc: Tensor) -> Offsets:
        """This client's b0: to the classifier's biases comes the logarithm of its share of each class."""
        if not self.prior:
            return memory
        initial_nd = memory.initial.clone()
        shares_nc = (counts_nc + 1) / (counts_nc + 1).sum(1, keepdim=True)
        for layer, at in selection.spans():
            if layer.kind == "head" and layer.shape == counts_nc.shape[1:]:
                initial_nd[:, at : at + layer.size] += self.prior * shares_nc.log()
        return Offsets(initial_nd, memory.change, memory.residual, memory.offset)

    def server(self, selection: Selection, clients: int, start_d: Tensor) -> Common:
        zeros = torch.zeros_like(start_d)
        nowhere = pack_bits(torch.zeros_like(start_d, dtype=torch.bool))
        never = torch.zeros_like(start_d, dtype=torch.int32)
        return Common(zeros, zeros, zeros, nowhere, never, torch.zeros(1, dtype=torch.int64))

    def download(self, weights_nD: Tensor, delivery: Delivery, memory: Offsets) -> tuple[Tensor, Offsets]:
        values_nd, told_nd = delivery.message.values_nd, delivery.message.support_nd
        if delivery.last == delivery.aggregated:
            change_nd = memory.change + values_nd
        else:  # it missed something: these are values of c, not a step
            change_nd = values_nd if told_nd is None else torch.where(told_nd, values_nd, memory.change)
        personal_nd = memory.initial + change_nd + self.weight(delivery.aggregated) * memory.offset
        after = Offsets(memory.initial, change_nd, memory.residual, memory.offset)
        return delivery.selection.put(weights_nD, personal_nd), after

    def start(self, weights_nD: Tensor, selection: Selection, memory: Offsets) -> Tensor:
        return selection.put(weights_nD, memory.initial + memory.change)

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, memory: Offsets) -> Tensor:
        blends = y.is_floating_point() or (y.dim() == 1 and self.criterion is Method.criterion)
        if not self.mix or not blends or not x.is_floating_point() or len(x) < 2:
            return self.criterion(model(x), y)
        output = model(blended(x, self.mix))
        target = y if y.is_floating_point() else one_hot(y, output.shape[1]).to(output.dtype)
        return self.criterion(output, blended(target, self.mix))

    def in_use(self, fit: Fit, memory: Offsets) -> tuple[Tensor | None, Offsets]:
        start_nd = fit.selection.take(fit.start_nD)
        offset_nd = fit.theta_nd - start_nd
        mixed_nd = self.steady * memory.offset + (1 - self.steady) * offset_nd
        first_n1 = (memory.offset == 0).all(1, keepdim=True)
        offset_nd = torch.where(first_n1, offset_nd, mixed_nd)
        after = Offsets(memory.initial, memory.change, memory.residual, offset_nd)
        weight = self.weight(fit.t)
        if weight == 1 and not self.steady:
            return None, after  # the trained model itself, without rounding
        return fit.selection.put(fit.end_nD, start_nd + weight * offset_nd), after

    def upload(self, fit: Fit, memory: Offsets) -> tuple[Message | None, Offsets]:
        update_nd = fit.theta_nd - fit.selection.take(fit.start_nD) + memory.residual
        mask_nd = largest(update_nd, fit.selection.sizes, self.up)
        after = Offsets(memory.initial, memory.change, update_nd, memory.offset)
        return Message(torch.where(mask_nd, update_nd, 0.0), support_nd=mask_nd), after

    def sent(self, memory: Offsets, message: Message, received_nd: Tensor) -> Offsets:
        return Offsets(memory.initial, memory.change, memory.residual - received_nd, memory.offset)

    def aggregate(self, server: Common, uploads: Uploads, t: int) -> Common:
        residual = server.residual + uploads.mean()
        mask = largest(residual[None], uploads.selection.sizes, self.down)
        step = torch.where(mask, residual[None], 0.0)
        received = uploads.rounded(Message(step, support_nd=mask))[0]
        return Common(
            change=server.change + received,
            residual=residual - received,
            step=step[0],
            step_mask=pack_bits(mask[0]),
            changed=torch.where(mask[0], t, server.changed).to(torch.int32),
            round=torch.tensor([t]),
        )

    def reply(self, server: Common, client: int, known: Known) -> Message | None:
        if not server.round:
            return None
        if known.round == int(server.round):
            mask = unpack_bits(server.step_mask, len(server.step))[None]
            return Message(server.step[None], support_nd=mask)
        # it knows the aggregations before the round of its last upload, or none at all
        mask = (server.changed >= max(known.round, 1))[None]
        return Message(torch.where(mask, server.change[None], 0.0), support_nd=mask, exact=True)
