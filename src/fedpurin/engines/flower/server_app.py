"""The server of a federation: the driver of rounds, with Flower's peers as its transport.

    python -m fedpurin.engines.flower.server_app JOB.json

This process takes the task of its run from the SuperLink's runtime interface, as sites do with theirs: what
was sent with `flwr run` is never unpacked. How the run goes is told in the events file.

Whatever goes wrong with one client is recorded and leaves that client out of the round. A round needs a
minimum of accepted uploads; below it the run stops with an error and can be resumed at that round.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid, ServerApp

from fedpurin.engines.driver import Driver, Policy, Watcher
from fedpurin.engines.flower.journal import append_line
from fedpurin.engines.flower.peers import Notify, Peers
from fedpurin.engines.flower.roster import Roster, revoked
from fedpurin.engines.flower.runtime import Door, Tasks
from fedpurin.engines.flower.settings import Terms
from fedpurin.errors import FedpurinError
from fedpurin.job import Job
from fedpurin.runs.directory import RunDirectory

START_SECONDS = 300.0  # from the start of this process to the task that `flwr run` makes

app = ServerApp()  # Flower asks for one by name; it stays empty, and is never what runs here
log = logging.getLogger("fedpurin")


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
        peers = Peers(grid, job.config.run.clients, terms, notify, roster or Roster())
        # Every round is checkpointed: clients can repeat two rounds, for a newest checkpoint that is damaged.
        policy = Policy(terms.minimum, forgiving=True, checkpoint_every=1)
        return Driver(job, directory, peers, policy, EventWatcher(notify)).run()


def event_writer(path: Path) -> Notify:
    """For the command that shows progress."""

    def notify(event: str, **details: Any) -> None:
        append_line(path, {"event": event, "at": round(time.time(), 3), **details})

    return notify


def main(order: dict[str, Any]) -> None:
    notify = event_writer(Path(order["events"]))
    folder = Path(order["roster"]) if order["roster"] else None
    notify("started", pid=os.getpid(), revoked=revoked(folder) if folder else [])
    try:
        roster = Roster(folder)
        with Tasks(Door(**order["door"])).serve_run(order["run"], START_SECONDS) as grid:
            result = serve(grid, Path(order["path"]), Terms(**order["terms"]), notify, roster)
    except FedpurinError as error:
        notify("error", message=str(error))
        raise
    except Exception as error:
        log.exception("the server failed")
        notify("error", message=f"{type(error).__name__}: {error}".splitlines()[0])
        raise
    notify("done", digest=result["digest"], missing=result["missing_clients"])


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    main(json.loads(Path(sys.argv[1]).read_text()))
