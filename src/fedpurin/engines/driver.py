"""The rounds of a federation, for every engine.

    ask -> collect -> close -> log -> checkpoint          T times, then a last reply to everybody

The hub is the server's side of the method and sees bytes only. What differs between engines is passed in: a
transport that reaches the clients, a policy for those that are late, mistaken or missing, a run directory
that keeps records and checkpoints, and a watcher that follows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedpurin.core.bits import unpack_bits
from fedpurin.engines.fitting import check_state
from fedpurin.engines.hub import Hub, merged_record
from fedpurin.engines.states import State
from fedpurin.engines.transport import Outcome, Transport
from fedpurin.errors import EngineError, FedpurinError
from fedpurin.job import Job
from fedpurin.meta import Meta
from fedpurin.runs.directory import RunDirectory
from fedpurin.train import prepare_process

WATCHED_CLIENTS = 5  # by `Coverage`


class Watcher:
    """Follows a run; the defaults do nothing."""

    def start(self, job: Job, path: Path, t: int) -> None:
        """A run begins, or goes on after round t."""

    def warned(self, text: str) -> None:
        """Something was not as it should be, and the run goes on."""

    def round_begun(self, t: int, of: int, asked: int) -> None: ...

    def client_done(self, t: int, client: int, done: int, total: int) -> None: ...

    def client_failed(self, t: int, client: int, reason: str) -> None: ...

    def round_done(self, record: dict[str, Any], ledger_lines: list[dict[str, Any]]) -> None: ...

    def finishing(self, asked: int) -> None:
        """The last reply goes out."""


@dataclass(frozen=True)
class Policy:
    """What a run does about clients that fail."""

    minimum: int = 1  # accepted uploads without which a round does not count
    forgiving: bool = False
    """True: whatever goes wrong at a client leaves that client out. False: only diverged training does, and
    everything else ends the run."""
    checkpoint_every: int | None = None  # rounds; None: as the configuration says


class Coverage:
    """How often each parameter was critical (first few clients), and the global model not zero."""

    def __init__(self, clients: int, d: int) -> None:
        ids = range(min(WATCHED_CLIENTS, clients))
        self.tensors: State = {
            "client_ids": torch.tensor(list(ids)),
            "client_counts": torch.zeros(len(ids), d, dtype=torch.int16),
            "server_counts": torch.zeros(d, dtype=torch.int16),
            "rounds": torch.zeros(1, dtype=torch.int64),
        }

    def check(self, saved: State) -> None:
        """Raises ValueError or KeyError where these are not such counts."""
        for name, tensor in self.tensors.items():
            if (saved[name].shape, saved[name].dtype) != (tensor.shape, tensor.dtype):
                raise ValueError(f"{name} of its coverage is of another shape or type")
        if not torch.equal(saved["client_ids"], self.tensors["client_ids"]):
            raise ValueError("its coverage is of other clients")

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


class Driver:
    def __init__(
        self,
        job: Job,
        directory: RunDirectory,
        transport: Transport,
        policy: Policy | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        prepare_process()
        self.job, self.directory, self.transport = job, directory, transport
        self.policy, self.watcher = policy or Policy(), watcher or Watcher()
        self.rounds = job.config.run.rounds
        self.asked_anybody = False
        self.checkpoint_seconds = 0.0

    def run(self) -> dict[str, Any]:
        """All rounds that are left, and the result."""
        masks = self.job.config.method.has_masks
        self.coverage = Coverage(self.job.config.run.clients, self.job.selection.d) if masks else None
        done, parts = self.directory.rewind(self._check)
        self.transport.rows = self.directory.rows
        self.hub = Hub(self.job, self.directory.rows, closes=True)
        self.watcher.start(self.job, self.directory.path, done)
        for text in self.directory.warnings:
            self.watcher.warned(text)
        with self.transport:
            if done:
                self.transport.restore(parts)
                self.hub.restore(parts["server"])
                if self.coverage:
                    self.coverage.tensors = parts["coverage"]
            del parts
            for t in range(done + 1, self.rounds + 1):
                self._round(t)
            return self._finish()

    def _check(self, t: int, parts: dict[str, State]) -> None:
        check_state(self.job, parts["server"], t)
        self.transport.check(parts)
        if self.coverage:
            self.coverage.check(parts["coverage"])

    def _gather(self, asked: list[int]) -> list[int]:
        here = self.transport.gather(asked, first=not self.asked_anybody)
        self.asked_anybody = True
        return here

    def _round(self, t: int) -> None:
        drawn = self.hub.participants(t)
        here = self._gather(drawn)
        asked = sorted({*here, *self.transport.members(drawn)})
        began = time.perf_counter()
        self.watcher.round_begun(t, self.rounds, len(here))
        self.hub.begin(t, asked)
        for client in sorted(set(asked) - set(here)):
            self._leave_out(t, client, "not connected")
        for done, outcome in enumerate(self.transport.run("work", t, here, self.hub.reply), start=1):
            self._take(t, outcome)
            self.watcher.client_done(t, outcome.client, done, len(here))
        self._close(t, len(asked), began)

    def _take(self, t: int, outcome: Outcome) -> None:
        """Accept an upload, or leave its client out, or stop the run, as the policy says."""
        failure = outcome.failure
        if failure is None:
            try:
                self.hub.accept(outcome.client, outcome.upload, outcome.meta)
                self.transport.keep(outcome.client)
            except FedpurinError as problem:
                if not self.policy.forgiving:
                    raise
                self._leave_out(t, outcome.client, str(problem))
        elif failure.concerns == "run" and not self.policy.forgiving:
            raise EngineError(failure.reason)
        elif failure.concerns == "state":
            self.hub.forget(outcome.client)
            self._leave_out(t, outcome.client, f"{failure.reason}; it starts afresh in the next round")
        else:
            self._leave_out(t, outcome.client, failure.reason)

    def _leave_out(self, t: int, client: int, reason: str) -> None:
        self.hub.fail(client, reason)
        self.watcher.client_failed(t, client, reason)

    def _close(self, t: int, asked: int, began: float) -> None:
        accepted, need = len(self.hub.metas), min(self.policy.minimum, asked)
        if accepted < need and self.policy.forgiving:  # without any, `hub.close` says so
            reasons = "; ".join(sorted({f"client {f['client']}: {f['reason']}" for f in self.hub.failed}))
            raise EngineError(
                f"round {t}: {accepted} accepted upload(s), but a round needs {need} ({reasons})"
            )
        server_began = time.perf_counter()
        record = self.hub.close(t)
        if self.coverage:
            self.coverage.add(self.hub)
        record["seconds"]["server"] = time.perf_counter() - server_began
        record["seconds"]["round"] = time.perf_counter() - began
        self._log(record)
        if t % (self.policy.checkpoint_every or self.job.config.run.checkpoint_every) == 0:
            self._checkpoint(t)

    def _log(self, record: dict[str, Any]) -> None:
        record["seconds"]["checkpoint"] = self.checkpoint_seconds
        lines = self.hub.take_ledger()
        self.directory.append(record, lines)
        self.watcher.round_done(record, lines)

    def _checkpoint(self, t: int) -> None:
        began = time.perf_counter()
        parts = {**self.transport.parts(), "server": self.hub.state()}
        if self.coverage:
            parts["coverage"] = self.coverage.tensors
        self.directory.checkpoint(t, parts)
        self.checkpoint_seconds = time.perf_counter() - began

    def _finish(self) -> dict[str, Any]:
        """A last reply to everybody; final models, their digests, and the result."""
        here = self._gather(list(range(self.hub.clients)))
        began = time.perf_counter()
        self.watcher.finishing(len(here))
        self.hub.begin(self.rounds + 1, [])
        metas: dict[int, Meta] = {}
        digests: dict[int, str] = {}
        for outcome in self.transport.run("finish", self.rounds, here, self.hub.reply):
            client = outcome.client
            try:
                if outcome.failure:
                    raise EngineError(outcome.failure.reason)
                metas[client] = self.hub.told(outcome.meta)
            except FedpurinError as problem:
                if not self.policy.forgiving:
                    raise EngineError(f"client {client} could not take its final model: {problem}") from None
                self.watcher.client_failed(self.rounds + 1, client, str(problem))
                continue
            digests[client] = outcome.digest
            self._save_model(client)
        record: dict[str, Any] = {
            "round": self.rounds + 1,
            "final": True,
            "merged": merged_record(dict(sorted(metas.items()))),
            "seconds": {"round": time.perf_counter() - began},
        }
        self._log(record)
        if self.coverage:
            self.directory.save_tensors("coverage", self.coverage.tensors)
        return self.directory.finish(digests, self.hub.clients)

    def _save_model(self, client: int) -> None:
        """Its last state goes into no checkpoint: the model's own file is all that stays of it."""
        whose = self.job.config.run.save_models
        if whose == "none" or (whose == "participants" and not self.hub.known(client).round):
            return
        tensors = self.transport.model()
        if tensors is not None:
            self.directory.save_model(client, tensors)
