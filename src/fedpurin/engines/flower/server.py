"""The server of a federation: the driver of rounds with Flower's peers as its transport.

Whatever goes wrong with one client is recorded and leaves that client out of the round. A round needs a
minimum of accepted uploads; below it the run stops with an error and can be resumed at that round.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from fedpurin.engines.driver import Driver, Policy, Watcher
from fedpurin.engines.flower.peers import Notify, Peers
from fedpurin.engines.flower.roster import Roster
from fedpurin.engines.flower.terms import Terms
from fedpurin.engines.transport import Outcome, Reply, Transport
from fedpurin.errors import EngineError
from fedpurin.job import Job
from fedpurin.runs.directory import RunDirectory

WAIT_POLL_SECONDS = 0.3


class FlowerTransport(Transport):
    """Clients on other machines, which keep their own states and final models."""

    def __init__(self, peers: Peers, terms: Terms, notify: Notify) -> None:
        self.peers, self.terms, self.notify = peers, terms, notify

    def gather(self, asked: list[int], *, first: bool) -> list[int]:
        """Wait for the clients of a round: for all of them at first, later rather for enough of them, and not
        for one that has a key and never came."""
        seats, began, told = asked, time.monotonic(), -1
        while True:
            asked = self.members(seats)
            need = min(self.terms.minimum, len(asked))
            here = [client for client in self.peers.present() if client in asked]
            expected = asked if first else [client for client in asked if client in self.peers.node_of]
            waited = time.monotonic() - began
            if set(expected) <= set(here) and len(here) >= need:
                return here
            if len(here) != told:
                told = len(here)
                self.notify("waiting", have=told, want=max(need, len(expected)))
            patience = self.terms.join if first else self.terms.patience
            if len(here) >= need and waited > patience:
                return here
            if waited > self.terms.join:
                raise EngineError(
                    f"{len(here)} of {len(asked)} clients are connected after {waited:.0f} s, and a round "
                    f"needs {need}: start the missing clients and resume"
                )
            time.sleep(WAIT_POLL_SECONDS)

    def members(self, clients: list[int]) -> list[int]:
        """Those with a key; others have none yet, or had theirs revoked."""
        members = self.peers.members()
        return [client for client in clients if client in members]

    def run(self, op: str, t: int, clients: list[int], reply: Reply) -> Iterator[Outcome]:
        return self.peers.run(op, t, clients, reply)


class EventWatcher(Watcher):
    """Tells the events file what happens."""

    def __init__(self, notify: Notify) -> None:
        self.notify = notify
        self.failed: set[int] = set()

    def warned(self, text: str) -> None:
        self.notify("warning", text=text)

    def round_begun(self, t: int, of: int, asked: int) -> None:
        self.failed = set()
        self.notify("round", round=t, of=of, asked=asked)

    def client_failed(self, t: int, client: int, reason: str) -> None:
        self.failed.add(client)
        self.notify("failed", round=t, client=client, reason=reason)

    def client_done(self, t: int, client: int, done: int, total: int) -> None:
        if client not in self.failed:
            self.notify("reply", round=t, client=client)

    def round_done(self, record: dict[str, Any], ledger_lines: list[dict[str, Any]]) -> None:
        if not record.get("final"):
            for bound in record.get("bounded", []):
                self.notify("bounded", round=record["round"], **bound)
            self.notify("round_done", round=record["round"], accepted=len(record["clients"]))

    def finishing(self, asked: int) -> None:
        self.notify("finishing", asked=asked)


def serve(
    grid: Grid, path: Path, terms: Terms, notify: Notify, roster: Roster | None = None
) -> dict[str, Any]:
    """One run of a federation, new or continued, in an existing run directory; its result."""
    with RunDirectory.open(path) as directory:
        job = Job.build(directory.config())
        peers = Peers(
            grid, job.config.run.clients, terms.deadline, notify, roster or Roster(), patience=terms.patience
        )
        transport = FlowerTransport(peers, terms, notify)
        # Every round is checkpointed: clients can repeat one round, not two.
        policy = Policy(terms.minimum, forgiving=True, checkpoint_every=1)
        return Driver(job, directory, transport, policy, EventWatcher(notify)).run()


def event_writer(path: Path) -> Callable[..., None]:
    """Appends a JSON line per event, for the command that shows progress."""

    def notify(event: str, **details: Any) -> None:
        with path.open("a") as file:
            file.write(json.dumps({"event": event, "at": round(time.time(), 3), **details}) + "\n")

    return notify
