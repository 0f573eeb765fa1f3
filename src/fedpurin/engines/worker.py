"""What any worker does with a task; and a worker process of the local engine.

It is started as `python -m fedpurin.engines.worker FD`. Frames on the socket:
    in   {"config", "path", "spec", "table", "rows", "room", "scratch", "slot"}                once
    in   {"op": "work" | "finish", "client", "t", "place", "row", "reply": null | length}
    out  {"digest", "failure": null | {"reason", "concerns"}, "upload": null | length}, then meta, raw bytes
`place` is where in the table's file the client's state begins, null for one that has its initial state.
The reply lies in `row` of the shared memory, the upload takes its place, and the state after the task is
beside it; the parent copies what it accepts once it has the answer, so a worker that dies half-way leaves its
client's state as it was. It has two rows, so that it can be at its next task meanwhile.

A job with Python objects is not built anew from its configuration: its workers are forked, and have them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from fedpurin.config import Config
from fedpurin.devices import place
from fedpurin.engines.site import Site
from fedpurin.engines.states import State
from fedpurin.engines.table import Scratch, Spec
from fedpurin.engines.transport import ClientTask, Failure, Outcome
from fedpurin.errors import DivergedError, FedpurinError, NotFiniteError
from fedpurin.job import Job
from fedpurin.runs.rows import read_at
from fedpurin.train import prepare_process


def build_site(make_job: Callable[[], Job], worker: int = 0) -> Site | Exception:
    """The client side of a job; where it cannot be built here the reason, the answer to every task."""
    try:
        job = make_job()
        return Site(job, place(job.config.run.device, worker))
    except Exception as problem:
        return problem


def perform(
    site: Site | Exception, task: ClientTask, read: Callable[[], State | None]
) -> tuple[Outcome, State]:
    """What comes of a task, and the client's state after it; `read` gives the one before, None at first."""
    client, t = task.client, task.t
    if isinstance(site, Exception):
        return Outcome(client, failure=failure_of(site, client, t)), {}
    try:
        data, state = site.job.client_data(client), read()
        if state is None:
            state = site.initial_state(client)
        do = site.finish if task.op == "finish" else site.work
        done = do(client, t, task.reply, state, data)
    except Exception as problem:
        return Outcome(client, failure=failure_of(problem, client, t)), {}
    return Outcome(client, done.meta, done.upload, done.digest.hex()), done.state


def failure_of(problem: Exception, client: int, t: int) -> Failure:
    """Whom a problem concerns is decided here, where its type is known: only text travels."""
    if isinstance(problem, DivergedError | NotFiniteError):
        return Failure(str(problem), "client")
    if isinstance(problem, FedpurinError):
        return Failure(str(problem), "run")
    trace = "".join(traceback.format_exception(problem))
    return Failure(f"client {client} failed in round {t}:\n{trace}", "run")


def main(descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    prepare_process()
    connection = Connection(descriptor)
    try:
        hello = json.loads(connection.recv_bytes())
    except (EOFError, OSError):
        return  # stopped before it began
    sys.path[:0] = [p for p in hello["path"] if p not in sys.path]
    site = build_site(lambda: Job.build(Config.from_text(hello["config"])), hello["slot"])
    _serve(connection, site, hello)


def forked(connection: Connection, job: Job, hello: dict[str, Any], close: Callable[[], None]) -> None:
    """The life of a worker that was forked; `close` lets go of what only its parent should hold."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    close()
    prepare_process()
    _serve(connection, build_site(lambda: job), hello)


def _serve(connection: Connection, site: Site | Exception, hello: dict[str, Any]) -> None:
    spec = Spec(hello["spec"])
    scratch = Scratch(spec, hello["rows"], hello["room"], hello["scratch"])

    def read(place: int | None) -> State | None:
        return None if place is None else spec.views(read_at(hello["table"], place, spec.size))

    with contextlib.suppress(EOFError, OSError):  # the parent is gone, perhaps in the middle of a message
        while True:
            order = json.loads(connection.recv_bytes())
            reply = scratch.message(order["row"], order["reply"])
            task = ClientTask(order["op"], order["client"], order["t"], reply)
            outcome, state = perform(site, task, partial(read, order["place"]))
            if outcome.failure is None:
                scratch.write(order["row"], state)
            failure = asdict(outcome.failure) if outcome.failure else None
            upload = scratch.put_message(order["row"], outcome.upload)
            head = {"digest": outcome.digest, "failure": failure, "upload": upload}
            connection.send_bytes(json.dumps(head).encode())
            connection.send_bytes(outcome.meta)


if __name__ == "__main__":
    main(int(sys.argv[1]))
