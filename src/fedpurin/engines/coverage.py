"""How often each parameter was critical (first few clients), and how often the global model was not zero."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpurin.core.bits import unpack_bits
from fedpurin.engines.hub import Hub

WATCHED_CLIENTS = 5


class Coverage:
    def __init__(self, hub: Hub) -> None:
        ids = range(min(WATCHED_CLIENTS, hub.clients))
        self.tensors: dict[str, Tensor] = {
            "client_ids": torch.tensor(list(ids)),
            "client_counts": torch.zeros(len(ids), hub.selection.d, dtype=torch.int16),
            "server_counts": torch.zeros(hub.selection.d, dtype=torch.int16),
            "rounds": torch.zeros(1, dtype=torch.int64),
        }

    def add(self, hub: Hub) -> None:
        support = hub.server.support()
        if support is None or hub.method.silent(hub.t):
            return
        for row, client in enumerate(self.tensors["client_ids"].tolist()):
            held = hub.known(client)
            if held.round == hub.aggregated and held.mask is not None:
                self.tensors["client_counts"][row] += unpack_bits(held.mask, hub.selection.d)
        self.tensors["server_counts"] += support
        self.tensors["rounds"] += 1
