"""The server's rounds: like the simulator's, but with clients that may be absent, late, mistaken or hostile.

Whatever goes wrong with one client is recorded and leaves that client out of the round. A round needs a
minimum of accepted uploads; below it the run stops with an error and can be resumed at that round.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from fedpurin.engines.coverage import Coverage
from fedpurin.engines.flower.peers import LostAtClientError, Notify, Peers
from fedpurin.engines.flower.terms import Terms
from fedpurin.engines.hub import Hub, merged_record
from fedpurin.errors import EngineError, FedpurinError
from fedpurin.job import Job
from fedpurin.meta import Meta
from fedpurin.runs import RunDirectory
from fedpurin.train import prepare_process

WAIT_POLL_SECONDS = 0.3


class Server:
    """One run of a federation, new or continued, in an existing run directory."""

    def __init__(
        self, grid: Grid, path: Path, terms: Terms, notify: Notify, keys: dict[bytes, int] | None = None
    ) -> None:
        prepare_process()
        self.directory = RunDirectory.open(path)
        self.job = Job.build(self.directory.config())
        self.hub = Hub(self.job)
        self.coverage = Coverage(self.hub) if self.job.method.has_masks else None
        self.terms, self.notify = terms, notify
        self.peers = Peers(grid, self.hub.clients, terms.deadline, notify, keys or {})
        self.started = time.monotonic()

    def run(self) -> dict[str, Any]:
        try:
            done, parts = self.directory.rewind()
            if done:
                self.hub.restore(parts["server"])
                if self.coverage:
                    self.coverage.tensors = parts["coverage"]
            for t in range(done + 1, self.job.config.run.rounds + 1):
                self._round(t, first=t == done + 1)
            return self._finish(self.job.config.run.rounds, first=done == self.job.config.run.rounds)
        finally:
            self.directory.close()

    def _gather(self, asked: list[int], *, first: bool) -> list[int]:
        """Wait for the clients of a round: for all of them at first, later rather for enough of them."""
        need = min(self.terms.minimum, len(asked))
        began, told = time.monotonic(), -1
        while True:
            here = [client for client in self.peers.present() if client in asked]
            waited = time.monotonic() - began
            if len(here) == len(asked):
                return here
            if len(here) != told:
                told = len(here)
                self.notify("waiting", have=told, want=len(asked))
            patience = self.terms.join if first else self.terms.patience
            if len(here) >= need and waited > patience:
                return here
            if waited > self.terms.join:
                raise EngineError(
                    f"{len(here)} of {len(asked)} clients are connected after {waited:.0f} s, and a round "
                    f"needs {need}: start the missing clients and resume"
                )
            time.sleep(WAIT_POLL_SECONDS)

    def _round(self, t: int, *, first: bool) -> None:
        asked = self.hub.participants(t)
        here = self._gather(asked, first=first)
        began = time.perf_counter()
        self.notify("round", round=t, of=self.job.config.run.rounds, asked=len(here))
        self.hub.begin(t, asked)
        for client in sorted(set(asked) - set(here)):
            self._leave_out(client, t, "not connected")
        for outcome in self.peers.run("work", t, here, self.hub.reply):
            try:
                if outcome.error is not None:
                    raise outcome.error
                self.hub.accept(outcome.client, outcome.upload, outcome.meta)
                self.notify("reply", round=t, client=outcome.client)
            except LostAtClientError as error:
                self.hub.forget(outcome.client)
                self._leave_out(outcome.client, t, f"{error}; it starts afresh in the next round")
            except FedpurinError as error:
                self._leave_out(outcome.client, t, str(error))
        self._close(t, need=min(self.terms.minimum, len(asked)), began=began)

    def _leave_out(self, client: int, t: int, reason: str) -> None:
        self.hub.fail(client, reason)
        self.notify("failed", round=t, client=client, reason=reason)

    def _close(self, t: int, *, need: int, began: float) -> None:
        accepted = len(self.hub.metas)
        if accepted < need:
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
        began = time.perf_counter()
        parts = {"server": self.hub.state()}
        if self.coverage:
            parts["coverage"] = self.coverage.tensors
        self.directory.checkpoint(t, parts)  # every round: clients can repeat one round, not two
        self.checkpoint_seconds = time.perf_counter() - began
        self.notify("round_done", round=t, accepted=accepted)

    def _log(self, record: dict[str, Any]) -> None:
        record["seconds"]["checkpoint"] = getattr(self, "checkpoint_seconds", 0.0)
        self.directory.append(record, self.hub.take_ledger())

    def _finish(self, t: int, *, first: bool) -> dict[str, Any]:
        """A last reply to everybody who is there; the final models stay with their clients."""
        everybody = list(range(self.hub.clients))
        here = self._gather(everybody, first=first)
        began = time.perf_counter()
        self.notify("finishing", asked=len(here))
        self.hub.begin(t + 1, [])
        metas: dict[int, Meta] = {}
        digests: dict[int, str] = {}
        for outcome in self.peers.run("finish", t, here, self.hub.reply):
            try:
                if outcome.error is not None:
                    raise outcome.error
                metas[outcome.client] = Meta.from_bytes(outcome.meta)
                digests[outcome.client] = outcome.digest
            except FedpurinError as error:
                self.notify("failed", round=t + 1, client=outcome.client, reason=str(error))
        record: dict[str, Any] = {
            "round": t + 1,
            "final": True,
            "merged": merged_record(dict(sorted(metas.items()))),
            "seconds": {"round": time.perf_counter() - began},
        }
        self._log(record)
        if self.coverage:
            self.directory.save_tensors("coverage", self.coverage.tensors)
        return self.directory.finish(digests, self.hub.clients, time.monotonic() - self.started)


def event_writer(path: Path) -> Callable[..., None]:
    """Appends a JSON line per event, for the command that shows progress."""

    def notify(event: str, **details: Any) -> None:
        with path.open("a") as file:
            file.write(json.dumps({"event": event, **details}) + "\n")

    return notify
