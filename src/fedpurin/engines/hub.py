"""The server's side of a round, the same in every engine.

    hub.begin(t, clients)          who is asked in this round
    hub.reply(client)              bytes for the client, or None where there is nothing to say
    hub.accept(client, upload, meta)   checks everything first; a refused upload changes nothing
    hub.close(t)                   aggregates and returns the round's record and ledger lines
    hub.finish(client, meta)       the evaluation of a client's final model

The hub knows no data set and no model, only the layout of what is exchanged.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fedpurin import ledger, wire
from fedpurin.core.bits import BITS_PER_BYTE, unpack_bits
from fedpurin.errors import EngineError, MismatchError
from fedpurin.job import Job
from fedpurin.messages import Uploads
from fedpurin.meta import Meta
from fedpurin.methods import Server
from fedpurin.train import Score, generator

OVERLAP_LIMIT = 64  # participants up to which the overlap matrix goes into the metrics


class Hub:
    def __init__(self, job: Job) -> None:
        self.config, self.method, self.selection = job.config, job.method, job.selection
        self.clients = job.config.run.clients
        self.aggregated = 0  # the last round that was closed
        self.server: Server = {"confirmed": torch.zeros(self.clients, dtype=torch.int64)}
        self.t = 0
        self.asked: list[int] = []
        self.metas: dict[int, Meta] = {}
        self.failed: list[dict[str, Any]] = []
        self.ledger: list[dict[str, Any]] = []
        self.masks: dict[int, Tensor] = {}
        self._values: Tensor | None = None
        self._packed: Tensor | None = None

    # Who takes part

    def participants(self, t: int) -> list[int]:
        """The clients of round t, by (seed, round) alone."""
        count = max(1, round(self.config.run.participation * self.clients))
        if count == self.clients:
            return list(range(self.clients))
        order = torch.randperm(self.clients, generator=generator(self.config.run.seed, "participants", t))
        return sorted(order[:count].tolist())

    def begin(self, t: int, clients: list[int]) -> None:
        self.t, self.asked = t, sorted(clients)
        self.metas, self.failed, self.masks = {}, [], {}
        rows, d = len(self.asked), self.selection.d
        if rows == 0:
            return
        merged = self.server.get("merged")
        if rows == self.clients and merged is not None:
            # A client's merged part is not needed once its next upload is here: the new value takes its row.
            self._values = merged
        elif self._values is None or self._values is merged or self._values.shape[0] != rows:
            self._values = torch.zeros(rows, d)
        # One matrix: a small tensor per client would pin the large free pieces between them.
        self._packed = (
            torch.zeros(rows, -(-d // BITS_PER_BYTE), dtype=torch.uint8) if self.method.has_masks else None
        )

    # Messages

    def confirmed(self, client: int) -> int:
        return int(self.server["confirmed"][client])

    def forget(self, client: int) -> None:
        """The client has lost its state: from now on it is answered like one that never took part."""
        self.server["confirmed"][client] = 0

    def _reference(self, client: int) -> wire.Reference | None:
        last = self.confirmed(client)
        return wire.Reference(last, self.server["mask"][client]) if last and "mask" in self.server else None

    def reply(self, client: int) -> bytes | None:
        message = self.method.reply(self.server, client)
        if message is None:
            return None
        data = wire.encode(
            message,
            self._address(client, self.aggregated, "down"),
            values=self.config.wire.values,
            pack=self.config.wire.pack,
            reference=self._reference(client),
            confirmed=self.confirmed(client),
        ).data
        self.ledger.append(ledger.entry(data, message))
        return data

    def _address(self, client: int, t: int, direction: Any) -> wire.Address:
        return wire.Address(self.selection.fingerprint, self.selection.d, t, client, direction)

    def accept(self, client: int, upload: bytes | None, meta: bytes) -> None:
        """Take an upload of the current round. Where it is not sound: a WireError, and nothing changes."""
        if client not in self.asked or client in self.metas:
            raise MismatchError(f"client {client} was not asked for an upload in round {self.t}, or sent two")
        told = Meta.from_bytes(meta)
        if (upload is None) != (self.selection.d == 0):
            raise MismatchError(
                f"client {client} sent {'no' if upload is None else 'an'} upload in round {self.t}"
            )
        if upload is not None:
            reference = self._reference(client)
            decoded = wire.decode(
                upload, self._address(client, self.t, "up"), known=[reference] if reference else []
            )
            if (decoded.packed is not None) != self.method.has_masks:
                raise MismatchError(f"client {client}'s upload does not fit method {self.method.name}")
            assert self._values is not None
            row = self.asked.index(client)
            self._values[row] = decoded.message.values_nd[0]
            if self._packed is not None:
                self.masks[client] = self._packed[row].copy_(decoded.packed)
            self.ledger.append(ledger.entry(upload, decoded.message, meta=len(meta)))
        self.metas[client] = told

    def fail(self, client: int, reason: str) -> None:
        self.failed.append({"client": client, "reason": reason})

    # The end of a round

    def close(self, t: int) -> dict[str, Any]:
        """Aggregate what was accepted; the record for metrics.jsonl, without timings of the engine."""
        present = sorted(self.metas)
        if not present:
            reasons = "; ".join(sorted({f["reason"] for f in self.failed})) or "no client replied"
            raise EngineError(f"round {t}: no client delivered an upload ({reasons})")
        for client in present:
            self.server["confirmed"][client] = t
        if self.selection.d:
            self.server = self.method.aggregate(self.server, self._uploads(present), t)
        self.aggregated = t
        return self._record(t, present)

    def _uploads(self, present: list[int]) -> Uploads:
        assert self._values is not None
        values, packed = self._values, self._packed
        if present != self.asked:
            rows = [self.asked.index(client) for client in present]
            values, packed = values[rows], None if packed is None else packed[rows]
        samples = torch.tensor([self.metas[client].samples for client in present])
        return Uploads(present, values, packed, samples)

    def _record(self, t: int, present: list[int]) -> dict[str, Any]:
        metas = [self.metas[client] for client in present]
        record: dict[str, Any] = {
            "round": t,
            "clients": present,
            "failed": sorted(self.failed, key=lambda f: f["client"]),
            "trained": _scores([m.trained for m in metas]),
            "upload": _scores([m.upload for m in metas]),
            "merged": merged_record(dict(zip(present, metas, strict=True))),
        }
        if "groups" in self.server:
            groups = self.server["groups"]
            record["collaborators"] = [
                [present[j] for j in torch.nonzero(row).flatten().tolist() if j != i]
                for i, row in enumerate(groups)
            ]
            limit = float(self.server["threshold"])
            record["threshold"] = limit if limit != float("inf") else None
            if len(present) <= OVERLAP_LIMIT:
                record["overlap"] = [
                    [round(o, 4) + 0.0 for o in row] for row in self.server["overlap"].tolist()
                ]
            record["kept"] = self._kept()
        record["seconds"] = {
            name: sum(m.seconds[i] for m in metas) for i, name in enumerate(("train", "evaluate", "client"))
        }
        return record

    def _kept(self) -> dict[str, float]:
        """Share of critical parameters per layer, mean over the clients."""
        counts = torch.zeros(len(self.selection.layers), dtype=torch.int64)
        for packed in self.masks.values():
            mask = unpack_bits(packed, self.selection.d)
            for i, (layer, at) in enumerate(self.selection.spans()):
                counts[i] += mask[at : at + layer.size].sum()
        return {
            layer.name: int(count) / (layer.size * len(self.masks))
            for layer, count in zip(self.selection.layers, counts, strict=True)
        }

    def take_ledger(self) -> list[dict[str, Any]]:
        """The lines of the messages since the last call, in an order that no engine changes."""
        lines = sorted(self.ledger, key=lambda e: (e["round"], e["direction"], e["client"]))
        self.ledger = []
        return lines

    def global_support(self) -> Tensor | None:
        """bool [d]: where the global model is not zero."""
        return self.server["theta_bar"] != 0 if "theta_bar" in self.server else None

    # Checkpoints

    def state(self) -> Server:
        state = dict(self.server) | {"aggregated": torch.tensor([self.aggregated])}
        if "merged" in state and bool(state["alone"].all()):
            del state["merged"]  # everybody's critical part is its own
        return state

    def restore(self, state: Server) -> None:
        self.server = {name: tensor.clone() for name, tensor in state.items() if name != "aggregated"}
        self.aggregated = int(state["aggregated"])


def merged_record(metas: dict[int, Meta]) -> dict[str, list[Any]]:
    """The evaluations of merged models, each with the round it belongs to."""
    known = {client: m for client, m in metas.items() if m.merged is not None}
    return {
        "clients": list(known),
        "round": [m.merged_round for m in known.values()],
        **_scores([m.merged for m in known.values()]),
    }


def _scores(scores: list[Score | None]) -> dict[str, list[float | None]]:
    return {
        "accuracy": [None if s is None else s.accuracy for s in scores],
        # JSON knows neither NaN nor Infinity
        "loss": [None if s is None or not math.isfinite(s.loss) else s.loss for s in scores],
    }
