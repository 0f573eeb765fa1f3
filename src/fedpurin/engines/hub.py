"""The server's side of a round, the same in every engine.

    hub.begin(t, clients)          who is asked in this round
    hub.reply(client)              bytes for the client, or None where there is nothing to say
    hub.accept(client, upload, meta)   checks everything first; a refused upload changes nothing
    hub.close(t)                   aggregates and returns the round's record
    hub.take_ledger()              the lines of the messages since the last call

The hub knows no data set and no model, only the layout of what is exchanged.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedpurin import wire
from fedpurin.core.bits import BITS_PER_BYTE
from fedpurin.engines.suspicion import bounded, check_told, check_values
from fedpurin.errors import EngineError, MismatchError
from fedpurin.job import Job
from fedpurin.messages import Known, Message, Uploads
from fedpurin.meta import Meta, measures_of
from fedpurin.runs.entry import ledger_entry
from fedpurin.runs.rows import Rows, in_memory
from fedpurin.train import Score, generator


class Hub:
    def __init__(self, job: Job, rows: Rows = in_memory, *, closes: bool = False) -> None:
        """`closes`: a round that was begun is closed, or was the last; so what is kept for a client may lie
        where its next upload will."""
        self._closes = closes
        self.config, self.method, self.selection = job.config, job.config.method, job.selection
        self.clients = job.config.run.clients
        self.aggregated = 0  # the last round that was closed and not silent
        # The round of each client's last accepted upload; 0: none.
        self.confirmed_N = torch.zeros(self.clients, dtype=torch.int64)
        d = self.selection.d
        self._masks = rows("masks", -(-d // BITS_PER_BYTE))  # the last accepted one of each client, packed
        # What the method keeps for each client (see `Uploads.keep`): in the file, or still in its row of
        # `_values`, from where it goes to the file when that row is needed or a checkpoint is.
        self._kept = rows("kept", 4 * d)
        self._waiting: dict[int, Tensor] = {}
        self.server = self.method.server(self.selection, self.clients, job.common_start())
        self.ledger: list[dict[str, Any]] = []
        self._values, self._row = torch.empty(0, d), dict[int, int]()
        self.begin(0, [])
        self._measures = measures_of(job.task, job.config.train)
        self._samples = job.train_samples() if job.split else None  # None: only the sites know

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
        self.metas: dict[int, Meta] = {}
        self.failed: list[dict[str, Any]] = []
        # A row for each client that is asked, in one matrix: a small tensor per client would pin the large
        # free pieces between them.
        rows, d = len(self.asked), self.selection.d
        row_of = {client: row for row, client in enumerate(self.asked)}
        if rows and row_of != self._row:
            self._write_waiting()
        if rows and len(self._values) != rows:
            self._values = torch.zeros(rows, d)
        self._row = row_of
        self._packed: Tensor | None = None
        if self.method.has_masks:
            self._packed = torch.zeros(rows, -(-d // BITS_PER_BYTE), dtype=torch.uint8)
        self._sent: Tensor | None = None  # bool [n, d]: who sent what, where [robust] asks for it
        if self.config.robust.norm_bound or self.config.robust.trim:
            self._sent = torch.ones(rows, d, dtype=torch.bool)

    # Messages

    def known(self, client: int) -> Known:
        """What this client has, as far as the server can tell."""
        last = int(self.confirmed_N[client])
        mask = self._masks.read(client) if last else None
        return Known(last, None if mask is None else torch.frombuffer(mask, dtype=torch.uint8))

    def kept(self, client: int) -> Tensor | None:
        """[d]: what the method keeps for this client until it is answered."""
        if not self.confirmed_N[client]:
            return None
        if client in self._waiting:
            return self._waiting[client]
        record = self._kept.read(client)
        return None if record is None else torch.frombuffer(record, dtype=torch.float32)

    def forget(self, client: int) -> None:
        """The client has lost its state: from now on it is answered like one that never took part."""
        self.confirmed_N[client] = 0

    def reply(self, client: int) -> bytes | None:
        if self.confirmed_N[client] > self.aggregated:
            return None  # silence: it has had the last reply and went on alone
        known = replace(self.known(client), kept=self.kept(client))
        message = self.method.reply(self.server, client, known)
        if message is None:
            return None
        made = wire.encode(
            message,
            self._address(client, self.aggregated, "down"),
            values=self._type(message),
            pack=self.config.wire.pack,
            reference=_reference(known),
            confirmed=known.round,
        )
        self.ledger.append(ledger_entry(made.head, message))
        return made.data

    def _type(self, message: Message) -> str:
        return "float32" if message.exact else self.config.value_type

    def _rounded(self, message: Message) -> Tensor:
        """[1, d]: the values of a reply as its receivers will decode them."""
        address = self._address(0, self.t, "down")
        data = wire.encode(message, address, values=self._type(message)).data
        return wire.decode(data, address).message.values_nd

    def _address(self, client: int, t: int, direction: Any) -> wire.Address:
        return wire.Address(self.selection.fingerprint, self.selection.d, t, client, direction)

    def told(self, meta: bytes) -> Meta:
        return Meta.from_bytes(meta, self._measures)

    def accept(self, client: int, upload: bytes | memoryview | None, meta: bytes) -> None:
        """Take an upload of the current round. Where it is not sound: a WireError, and nothing changes."""
        if client not in self._row or client in self.metas:
            raise MismatchError(f"client {client} was not asked for an upload in round {self.t}, or sent two")
        told = self.told(meta)
        if (upload is None) != (self.selection.d == 0 or self.method.silent(self.t)):
            raise MismatchError(
                f"client {client} sent {'no' if upload is None else 'an'} upload in round {self.t}"
            )
        check_told(client, told, self.t, self._samples, validates=self.config.data.validation > 0)
        if upload is not None:
            reference = _reference(self.known(client))
            decoded = wire.decode(
                upload, self._address(client, self.t, "up"), known=[reference] if reference else []
            )
            if (decoded.packed is not None) != self.method.has_masks:
                raise MismatchError(f"client {client}'s upload does not fit method {self.method.name}")
            check_values(client, decoded.message.values_nd)
            row = self._row[client]
            self._values[row] = decoded.message.values_nd[0]
            if self._sent is not None and decoded.message.support_nd is not None:
                self._sent[row] = decoded.message.support_nd[0]
            if self._packed is not None:
                assert decoded.packed is not None
                self._packed[row] = decoded.packed
            self.ledger.append(ledger_entry(decoded.head, decoded.message, meta=len(meta)))
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
        record = self._record(t, present)
        silent = self.method.silent(t)
        if self.selection.d and not silent:
            uploads, said = bounded(self._uploads(present), self.config)
            if said:
                record["bounded"] = said
            self.server = self.method.aggregate(self.server, uploads, t)
            self._write_rows(uploads)
            record |= self.method.record(self.server, uploads)
        self.confirmed_N[present] = t
        self.aggregated = self.aggregated if silent else t
        return record

    def _write_rows(self, uploads: Uploads) -> None:
        for row, client in enumerate(uploads.clients):
            if uploads.packed_nb is not None:
                self._masks.write(client, _bytes(uploads.packed_nb[row]))
            if client in uploads.kept:
                self._waiting[client] = uploads.kept[client]
            else:
                self._waiting.pop(client, None)
                self._kept.drop(client)
        if not self._closes or uploads.values_nd is not self._values:  # a copy would be one more matrix
            self._write_waiting()

    def _write_waiting(self) -> None:
        for client, row in self._waiting.items():
            self._kept.write(client, _bytes(row))
        self._waiting = {}

    def _uploads(self, present: list[int]) -> Uploads:
        values, packed, sent = self._values, self._packed, self._sent
        if present != self.asked:
            rows = [self._row[client] for client in present]
            values, packed, sent = values[rows], *(x if x is None else x[rows] for x in (packed, sent))
        samples = torch.tensor([self.metas[client].samples for client in present])
        return Uploads(
            *(present, values, packed, samples, self.selection, self.clients, self._rounded, sent),
            trim=self.config.robust.trim,
        )

    def _record(self, t: int, present: list[int]) -> dict[str, Any]:
        metas = [self.metas[client] for client in present]
        validated = {"validation": _validation(metas)} if any(m.validation for m in metas) else {}
        return {
            "round": t,
            "clients": present,
            "failed": sorted(self.failed, key=lambda f: f["client"]),
            "trained": _scores([m.trained for m in metas]),
            "upload": _scores([m.upload for m in metas]),
            "merged": merged_record(dict(zip(present, metas, strict=True))),
            **validated,
            "seconds": {
                name: sum(m.seconds[i] for m in metas)
                for i, name in enumerate(("train", "evaluate", "client"))
            },
        }

    def take_ledger(self) -> list[dict[str, Any]]:
        """The lines of the messages since the last call, in an order that no engine changes."""
        lines = sorted(self.ledger, key=lambda e: (e["round"], e["direction"], e["client"]))
        self.ledger = []
        return lines

    # Checkpoints

    def state(self) -> dict[str, Tensor]:
        """The method's own tensors under method.NAME, and what every server knows."""
        self._write_waiting()
        state = {f"method.{name}": tensor for name, tensor in self.server.tensors().items()}
        state |= {"confirmed": self.confirmed_N, "aggregated": torch.tensor([self.aggregated])}
        return state | self._masks.index() | self._kept.index()

    def restore(self, state: dict[str, Tensor]) -> None:
        own = {name: tensor.clone() for name, tensor in state.items()}
        self.aggregated, self.confirmed_N = int(own["aggregated"]), own["confirmed"]
        parts = {k.removeprefix("method."): v for k, v in own.items() if k.startswith("method.")}
        self.server = type(self.server).of(parts)
        self._masks.restore(own)
        self._kept.restore(own)
        self._waiting = {}
        # Checkpoints of version 0.1 had matrices with a row for every client.
        kept = dict(type(self.server).kept_before(parts))
        for client in torch.nonzero(self.confirmed_N).flatten().tolist():
            if "masks" in own:
                self._masks.write(client, _bytes(own["masks"][client]))
            if client in kept:
                self._kept.write(client, _bytes(kept[client]))


def _reference(known: Known) -> wire.Reference | None:
    return None if known.mask is None else wire.Reference(known.round, known.mask)


def _bytes(row: Tensor) -> memoryview:
    array: Any = row.contiguous().numpy()
    return memoryview(array).cast("B")


def merged_record(metas: dict[int, Meta]) -> dict[str, list[Any]]:
    """The evaluations of merged models, each with the round it belongs to."""
    evaluated = {client: m for client, m in metas.items() if m.merged is not None}
    return {
        "clients": list(evaluated),
        "round": [m.merged_round for m in evaluated.values()],
        **_scores([m.merged for m in evaluated.values()]),
    }


def _validation(metas: list[Meta]) -> dict[str, list[Any]]:
    """The trained models on validation samples, and the round of the best so far."""
    told = [m.validation for m in metas]
    return {
        **_scores([None if v is None else v.score for v in told]),
        "best_round": [None if v is None else v.best_round for v in told],
    }


def _scores(scores: list[Score | None]) -> dict[str, list[float | None]]:
    return {
        "accuracy": [None if s is None else s.accuracy for s in scores],
        # JSON knows neither NaN nor Infinity
        "loss": [None if s is None or not math.isfinite(s.loss) else s.loss for s in scores],
    }
