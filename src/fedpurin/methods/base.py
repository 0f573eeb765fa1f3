"""What every method answers. The defaults are FedAvg's.

A method is one file: a frozen dataclass whose fields are its settings, its look in figures, and the
hooks below. Put the file into this folder, name the class in an entry point `fedpurin.methods` of your own
package, or write `--method package.module:Class`.

Shapes: n clients (one on a site, any number in tests), N all clients of the federation, D all
parameters, d exchanged parameters, b = ceil(d / 8) bytes of a packed mask.

All client hooks but `loss` take any n and never mix rows. What a client remembers between rounds (M) and what
the server keeps (S) are dataclasses of tensors of the method's own; what `aggregate` passes to `uploads.keep`
comes back as `known.kept` when the client is answered. Hooks change nothing that they are given, with one
exception: `aggregate` may overwrite `uploads.values_nd`. Methods do no I/O, no logging, no moves between
devices, and draw no random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedpurin.layout import Layout, Selection
from fedpurin.messages import Delivery, Known, Message, Uploads
from fedpurin.methods.state import ServerState, TensorState
from fedpurin.settings import setting

SILENT_AFTER = "round after which clients train alone and nothing is sent any more; 0: never"


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
    personal_nD: Tensor | None = None  # where the second training ended, see `personal_start`
    squares_nD: Tensor | None = None  # mean squared gradients of the last epoch, see `Ending.squares`

    @cached_property
    def theta_nd(self) -> Tensor:
        """[n, d]: the exchanged parameters after local training; not to be changed."""
        return self.selection.take(self.end_nD)


@dataclass(frozen=True)
class Ending:
    """What is measured and kept of the last epochs of local training."""

    tail: int = 0  # the trained model is the mean of the iterates of this many last epochs; 0: the last one
    refresh: bool = False  # its batch-norm statistics are measured anew over the client's training samples
    squares: bool = False  # the mean of the squared gradients of its mini-batches goes into `Fit.squares_nD`
    inside: int = 0  # this many last epochs train only what `Method.inside` names; the rest is zero


@dataclass(frozen=True)
class NoMemory(TensorState):
    """Clients remember nothing but their model."""


@dataclass(frozen=True)
class Mean(ServerState):
    """The server keeps one global model."""

    theta_bar: Tensor | None = None  # [d]; None before anything was aggregated

    def support(self) -> Tensor | None:
        return None if self.theta_bar is None else self.theta_bar != 0


M = TypeVar("M", bound=TensorState)
S = TypeVar("S", bound=ServerState)


@dataclass(frozen=True)
class Method(Generic[M, S]):
    name: ClassVar[str] = ""
    label: ClassVar[str] = ""
    color: ClassVar[str] = ""  # "#rrggbb"; empty: one of the spare colours
    dash: ClassVar[str] = "solid"  # as plotly names dashes and marker symbols
    marker: ClassVar[str] = "star"
    order: ClassVar[int] = 100  # place in tables and legends
    has_masks: ClassVar[bool] = False  # uploads carry a critical mask
    sends_updates: ClassVar[bool] = False  # uploads carry changes of weights, not weights
    averages: ClassVar[bool] = False  # the server takes `uploads.mean()`, which robust.trim applies to
    value_type: ClassVar[str] = "float32"  # how values travel unless wire.values says otherwise
    needs_classes: ClassVar[bool] = False  # its loss makes sense for classification only

    @staticmethod
    def criterion(output: Tensor, y: Tensor) -> Tensor:
        """The loss of outputs and targets, for use in `loss`; a run of another task has another one."""
        return F.cross_entropy(output, y)

    @classmethod
    def idle(cls, settings: Mapping[str, Any]) -> dict[str, str]:
        """Settings that do nothing beside these others: {its name: the name of the one that is why}."""
        return {}

    def exchanged(self, layout: Layout) -> Tensor:
        """bool [D]: which parameters travel at all."""
        return layout.where("body", "head", "norm")

    def memory(self, layout: Layout, selection: Selection, start_nD: Tensor) -> M:
        """What n clients remember, as it is before the first round; `start_nD`: their initial models."""
        raise NotImplementedError

    def know(self, memory: M, selection: Selection, counts_nc: Tensor) -> M:
        """Before its first training a client looks at its labels: samples of each class, [n, classes].

        Called where each sample has one class.
        """
        return memory

    def server(self, selection: Selection, clients: int, start_d: Tensor) -> S:
        """What the server keeps, as it is before the first round; `start_d`: where all clients start."""
        raise NotImplementedError

    def silent(self, t: int) -> bool:
        """In round t nobody sends anything. Once silent, always; each client still gets the last reply."""
        return False

    def ending(self) -> Ending:
        """How local training ends."""
        return Ending()

    def rate(self, t: int) -> float:
        """What the learning rate of local training is multiplied with in round t."""
        return 1.0

    def start(self, weights_nD: Tensor, selection: Selection, memory: M) -> Tensor:
        """The model that local training starts from, where it is not the client's personal one."""
        return weights_nD

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, memory: M) -> Tensor:
        """The local objective of one client on one mini-batch."""
        return self.criterion(model(x), y)

    def inside(self, fit: Fit) -> Tensor:
        """bool [n, d]: what the last `Ending.inside` epochs train; `fit` is as it stands before them."""
        raise NotImplementedError

    def personal_start(self, weights_nD: Tensor, memory: M) -> Tensor | None:
        """[n, D]: the start of a second local training, of a model that stays with the client, if any.

        It follows the first, sees the same memory, and leaves its end in `Fit.personal_nD`.
        """
        return None

    def personal_loss(self, model: nn.Module, x: Tensor, y: Tensor, memory: M) -> Tensor:
        """The objective of the second training."""
        return self.loss(model, x, y, memory)

    def upload(self, fit: Fit, memory: M) -> tuple[Message | None, M]:
        return Message(fit.theta_nd), memory

    def in_use(self, fit: Fit, memory: M) -> tuple[Tensor | None, M]:
        """[n, D]: the personal model after training, where it is not the one that training ended with."""
        return None, memory

    def sent(self, memory: M, message: Message, received_nd: Tensor) -> M:
        """After an upload was encoded: `received_nd` is what the server will decode, rounding included."""
        return memory

    def aggregate(self, server: S, uploads: Uploads, t: int) -> S:
        """The only place that sees several clients."""
        raise NotImplementedError

    def record(self, server: S, uploads: Uploads) -> dict[str, Any]:
        """What metrics.jsonl says of a round beside accuracy and time; called after `aggregate`."""
        return {}

    def reply(self, server: S, client: int, known: Known) -> Message | None:
        """What this client gets at the start of its next round; None where there is nothing to say."""
        raise NotImplementedError

    def download(self, weights_nD: Tensor, delivery: Delivery, memory: M) -> tuple[Tensor, M]:
        """The client's model after a reply. Where no value came, its own (as last uploaded) stays."""
        message, selection = delivery.message, delivery.selection
        if message.support_nd is None:
            return selection.put(weights_nD, message.values_nd), memory
        own_nd = selection.take(weights_nD)
        merged_nd = torch.where(message.support_nd, message.values_nd, own_nd)
        return selection.put(weights_nD, merged_nd), memory


@dataclass(frozen=True)
class Averaging(Method[M, Mean]):
    """The server's side of every method that averages dense models into one."""

    averages: ClassVar[bool] = True

    def server(self, selection: Selection, clients: int, start_d: Tensor) -> Mean:
        return Mean()

    def aggregate(self, server: Mean, uploads: Uploads, t: int) -> Mean:
        return Mean(uploads.mean())

    def reply(self, server: Mean, client: int, known: Known) -> Message | None:
        return None if server.theta_bar is None else Message(server.theta_bar[None])


@dataclass(frozen=True)
class PlainAveraging(Averaging[NoMemory]):
    """FedAvg and those that differ from it only in what travels."""

    silent_after: int = setting(0, SILENT_AFTER, least=0)

    def silent(self, t: int) -> bool:
        return 0 < self.silent_after < t

    def memory(self, layout: Layout, selection: Selection, start_nD: Tensor) -> NoMemory:
        return NoMemory()
