"""The server of a federation, as Flower starts it. How the run went is told in the events file."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedpurin.engines.flower.server import Server, event_writer
from fedpurin.engines.flower.terms import Terms
from fedpurin.errors import FedpurinError

app = ServerApp()
log = logging.getLogger("fedpurin")


@app.main()
def main(grid: Grid, context: Context) -> None:
    order = json.loads(Path(str(context.run_config["job"])).read_text())
    notify = event_writer(Path(order["events"]))
    notify("started", pid=os.getpid())
    try:
        keys = {key.encode(): client for key, client in order["keys"].items()}
        result = Server(grid, Path(order["path"]), Terms(**order["terms"]), notify, keys).run()
    except FedpurinError as error:
        notify("error", message=str(error))
        raise
    except Exception as error:
        log.exception("the server failed")
        notify("error", message=f"{type(error).__name__}: {error}")
        raise
    notify("done", digest=result["digest"], missing=result["missing_clients"])
