"""The server's rounds, in a process of their own. How the run goes is told in the events file.

    python -m fedpurin.engines.flower.server_app JOB.json

The process takes the task of its run from the SuperLink's runtime interface, as sites do with theirs: what
was sent with `flwr run` is never unpacked.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from flwr.serverapp import ServerApp

from fedpurin.engines.flower.roster import Roster, revoked
from fedpurin.engines.flower.runtime import Door, Tasks
from fedpurin.engines.flower.server import event_writer, serve
from fedpurin.engines.flower.terms import Terms
from fedpurin.errors import FedpurinError

START_SECONDS = 300.0  # from the start of this process to the task that `flwr run` makes

app = ServerApp()  # Flower asks for one by name; it stays empty, and is never what runs here
log = logging.getLogger("fedpurin")


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
        notify("error", message=f"{type(error).__name__}: {error}")
        raise
    notify("done", digest=result["digest"], missing=result["missing_clients"])


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    main(json.loads(Path(sys.argv[1]).read_text()))
