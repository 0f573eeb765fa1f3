"""Clients that vanish and clients that lie, in this very process: for figures and for tests.

Dropouts    asked, and gone: the reply was sent, no upload comes back
BadPeers    honest training, then another upload in place of the own
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from fedpurin import wire
from fedpurin.engines.inline import InlineWorkers
from fedpurin.engines.states import State, references_in
from fedpurin.engines.transport import Failure, Outcome, Reply
from fedpurin.job import Job
from fedpurin.train import generator

GONE = "it vanished"


class Dropouts(InlineWorkers):
    """In every round a share of those asked vanishes, chosen by (seed, round); all of them come back."""

    def __init__(self, job: Job, share: float) -> None:
        super().__init__(job)
        self.share = share

    def gone(self, t: int, clients: list[int]) -> list[int]:
        draw = generator(self.job.config.run.seed, "dropouts", t)
        order = torch.randperm(len(clients), generator=draw).tolist()
        return sorted(clients[i] for i in order[: round(self.share * len(clients))])

    def run(self, op: str, t: int, clients: list[int], reply: Reply) -> Iterator[Outcome]:
        gone = self.gone(t, clients) if op == "work" else []
        for client in gone:
            reply(client)  # it was sent, and is counted; nobody heard it
            yield Outcome(client, failure=Failure(GONE, "client"))
        yield from super().run(op, t, [client for client in clients if client not in gone], reply)


Attack = Callable[[Tensor], Tensor]
ATTACKS: dict[str, Attack] = {
    "sign-flipped": lambda values_nd: -values_nd,
    "a thousand-fold": lambda values_nd: 1000 * values_nd,
}


class BadPeers(InlineWorkers):
    """These clients send other values than they trained, in sound messages."""

    def __init__(self, job: Job, bad: list[int], attack: Attack) -> None:
        super().__init__(job)
        self.bad, self.attack = bad, attack

    def run(self, op: str, t: int, clients: list[int], reply: Reply) -> Iterator[Outcome]:
        for outcome in super().run(op, t, clients, reply):
            if op == "work" and outcome.client in self.bad and outcome.upload is not None:
                before = self.table.read(outcome.client) or {}  # its state is still that of the round before
                outcome = replace(outcome, upload=self.forged(outcome.client, t, outcome.upload, before))
            yield outcome

    def forged(self, client: int, t: int, upload: bytes | memoryview, state: State) -> bytes:
        """The message with other values, from a client whose state before this round is given."""
        selection = self.job.selection
        address = wire.Address(selection.fingerprint, selection.d, t, client, "up")
        known = references_in(state) if state else []
        decoded = wire.decode(upload, address, known=known)
        values_nd = self.attack(decoded.message.values_nd)
        message = replace(decoded.message, values_nd=values_nd + 0.0)  # -0.0 is no value that is left out
        return wire.encode(
            message, address, values=decoded.value_type, reference=known[0] if known else None
        ).data
