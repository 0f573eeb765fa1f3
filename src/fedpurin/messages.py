"""What travels between a client and the server before it has a byte form, and what each side knows.

Shapes: n clients (rows), d exchanged parameters (columns). A message on the wire has n = 1.

The coordinates fall into two parts. Inside the critical mask either all values travel or none.
Outside it any subset may travel. `support_nd` says which values travel, over both parts.

    FedAvg, both ways     critical None   support None (all)
    FedPURIN upload       critical m      support m
    FedCAC upload         critical m      support None (all)
    FedPURIN reply        critical m      support (m or nothing) + where theta_bar is not 0, outside m
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedpurin.core.merge import weighted_mean
from fedpurin.core.robust import trimmed_mean
from fedpurin.layout import Selection


@dataclass(frozen=True)
class Message:
    values_nd: Tensor  # float32 [n, d]; +0.0 wherever no value travels
    critical_nd: Tensor | None = None  # bool [n, d]; None: the method knows no critical parameters
    support_nd: Tensor | None = None  # bool [n, d]; None: every value travels
    exact: bool = False  # travels as float32, whatever type the run has

    def row(self, i: int) -> Message:
        """The message of one client alone."""

        def pick(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[i : i + 1]

        return Message(self.values_nd[i : i + 1], pick(self.critical_nd), pick(self.support_nd), self.exact)


@dataclass(frozen=True)
class Uploads:
    """The accepted uploads of one round, one row per client, rows ordered by client id."""

    clients: list[int]
    values_nd: Tensor  # float32 [n, d]; a method may overwrite it
    packed_nb: Tensor | None  # uint8 [n, ceil(d / 8)]: critical masks, see core.bits
    samples_n: Tensor  # int64 [n]
    selection: Selection
    everybody: int  # N, all clients of the federation
    rounded: Callable[[Message], Tensor]  # [1, d]: the values of a reply as its receivers will decode them
    sent_nd: Tensor | None = None  # bool [n, d]: who sent what, for robust.*; None: everybody everything
    trim: float = 0.0  # robust.trim
    kept: dict[int, Tensor] = field(default_factory=dict)  # by client: what `keep` was told

    def mean(self) -> Tensor:
        """[d]: the mean by sample counts, without the extremes that robust.trim leaves out."""
        if self.trim:
            return trimmed_mean(self.values_nd, self.samples_n, self.trim, self.sent_nd)
        return weighted_mean(self.values_nd, self.samples_n)

    def keep(self, rows_n: Tensor) -> None:
        """Keep these rows of `values_nd` (bool [n]), as they are now, for the replies to their clients: each
        is `Known.kept` until its client's next upload is aggregated. Of the other participants nothing is
        kept any more. The server's memory holds none of them."""
        self.kept.clear()
        self.kept.update(
            {self.clients[i]: self.values_nd[i] for i in torch.nonzero(rows_n).flatten().tolist()}
        )

    def replace_rows(self, table: Tensor | None, rows: Tensor) -> Tensor:
        """A table with a row per client of the federation, in which those of the participants are new. For
        a few numbers per client; what has the size of a model is better kept with `keep`."""
        if len(self.clients) == self.everybody:
            return rows
        if table is None:
            table = torch.zeros((self.everybody, *rows.shape[1:]), dtype=rows.dtype)
        else:
            table = table.clone()
        table[torch.tensor(self.clients)] = rows
        return table


@dataclass(frozen=True)
class Known:
    """What the server knows that a client has."""

    round: int  # the last round of which it accepted this client's upload; 0: none
    mask: Tensor | None  # uint8 [b]: the critical mask of that upload, packed; None where there is none
    kept: Tensor | None = None  # [d]: what `aggregate` kept for it; None: nothing


@dataclass(frozen=True)
class Delivery:
    """A reply as a client receives it."""

    message: Message
    selection: Selection
    last: int  # the round of the client's last accepted upload; 0: none
    aggregated: int  # the round whose aggregation this is
