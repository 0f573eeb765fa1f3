"""What travels between a client and the server, before it has a byte form.

Shapes: n clients (rows), d exchanged parameters (columns). A message on the wire has n = 1.

The coordinates fall into two parts. Inside the critical mask either all values travel or none.
Outside it any subset may travel. `support_nd` says which values travel, over both parts.

    FedAvg, both ways     critical None   support None (all)
    FedPURIN upload       critical m      support m
    FedCAC upload         critical m      support None (all)
    FedPURIN reply        critical m      support (m or nothing) + where theta_bar is not 0, outside m
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Message:
    values_nd: Tensor  # float32 [n, d]; +0.0 wherever no value travels
    critical_nd: Tensor | None = None  # bool [n, d]; None: the method knows no critical parameters
    support_nd: Tensor | None = None  # bool [n, d]; None: every value travels

    def row(self, i: int) -> Message:
        """The message of one client alone."""

        def pick(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[i : i + 1]

        return Message(self.values_nd[i : i + 1], pick(self.critical_nd), pick(self.support_nd))


@dataclass(frozen=True)
class Uploads:
    """The accepted uploads of one round, one row per client, rows ordered by client id."""

    clients: list[int]
    values_nd: Tensor  # float32 [n, d]; a method may overwrite it
    packed_nb: Tensor | None  # uint8 [n, ceil(d / 8)]: critical masks, see core.bits
    samples_n: Tensor  # int64 [n]
