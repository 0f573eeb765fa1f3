"""A worker process of the local engine: `python -m fedpurin.engines.worker FD`.

Frames on the socket are JSON, followed by raw bytes where the JSON announces them:
    in   {"config", "spec", "table", "slots", "scratch", "slot"}      once
    in   {"op": "work" | "finish", "client", "t", "place", "reply": bool} [reply]
    out  {"ok": true, "upload": bool, "digest"} meta [upload]    or    {"ok": false, "concerns", "message"}
`place` is where in the table's file the client's state begins, null for one that has its initial state.
A result is written to the worker's own scratch row; the parent copies it once it has the answer, so a
worker that dies half-way leaves its client's state as it was.

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
from multiprocessing.connection import Connection
from typing import Any

from fedpurin.config import Config
from fedpurin.devices import place
from fedpurin.engines.site import Site, State
from fedpurin.engines.table import Scratch, Spec
from fedpurin.errors import DivergedError, FedpurinError, NotFiniteError
from fedpurin.given import Given
from fedpurin.job import Job
from fedpurin.runs.rows import read_at
from fedpurin.train import prepare_process

Order = dict[str, Any]
"""op, client, t; and, on the socket, where its state is and whether a reply follows."""

Read = Callable[[Order], State | None]
"""The state of an order's client; None: its initial one."""

Answer = dict[str, Any]
"""ok, and then upload and digest, or whom the problem concerns and its message."""


def main(descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    prepare_process()
    connection = Connection(descriptor)
    try:
        hello = json.loads(connection.recv_bytes())
    except (EOFError, OSError):
        return  # stopped before it began
    sys.path[:0] = [p for p in hello["path"] if p not in sys.path]
    _work(connection, build_site(hello["config"], worker=hello["slot"]), hello)


def forked(connection: Connection, job: Job, hello: dict[str, Any], close: Callable[[], None]) -> None:
    """The life of a worker that was forked; `close` lets go of what only its parent should hold."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    close()
    prepare_process()
    _work(connection, _site(lambda: job), hello)


def _work(connection: Connection, site: Site | Answer, hello: dict[str, Any]) -> None:
    spec = Spec.from_json(hello["spec"])
    scratch = Scratch(spec, hello["slots"], hello["scratch"])

    def read(order: Order) -> State | None:
        place = order["place"]
        return None if place is None else spec.views(read_at(hello["table"], place, spec.size))

    with contextlib.suppress(EOFError, OSError):  # the parent is gone, perhaps in the middle of a message
        _serve(connection, site, read, scratch, hello["slot"])


def build_site(config: str, given: Given | None = None, worker: int = 0) -> Site | Answer:
    """The client side of a job, or the answer to every order where it cannot be built here."""
    return _site(lambda: Job.build(Config.from_text(config), given), worker)


def _site(build: Callable[[], Job], worker: int = 0) -> Site | Answer:
    try:
        job = build()
        return Site(job, place(job.config.run.device, worker))
    except Exception as problem:
        return refusal(problem)


def refusal(problem: Exception) -> Answer:
    """Whom a problem concerns is decided here, where its type is known: only text travels."""
    if isinstance(problem, DivergedError | NotFiniteError):
        return {"ok": False, "concerns": "client", "message": str(problem)}
    if isinstance(problem, FedpurinError):
        return {"ok": False, "concerns": "run", "message": str(problem)}
    return {"ok": False, "concerns": "bug", "message": "".join(traceback.format_exception(problem))}


def _serve(connection: Connection, site: Site | Answer, read: Read, scratch: Scratch, slot: int) -> None:
    while True:
        order = json.loads(connection.recv_bytes())
        reply = connection.recv_bytes() if order["reply"] else None
        answer, meta, upload, state = answer_to(site, order, reply, read)
        if answer["ok"]:
            scratch.write(slot, state)
        connection.send_bytes(json.dumps(answer).encode())
        if answer["ok"]:
            connection.send_bytes(meta)
            if upload is not None:
                connection.send_bytes(upload)


def answer_to(
    site: Site | Answer, order: Order, reply: bytes | None, read: Read
) -> tuple[Answer, bytes, bytes | None, State]:
    """Does one task: the answer, the meta data, the upload, and the client's state after it."""
    if not isinstance(site, Site):
        return site, b"", None, {}
    try:
        return _obey(site, order, reply, read)
    except Exception as problem:
        return refusal(problem), b"", None, {}


def _obey(
    site: Site, order: Order, reply: bytes | None, read: Read
) -> tuple[Answer, bytes, bytes | None, State]:
    client, t = order["client"], order["t"]
    data, state = site.job.client_data(client), read(order)
    if state is None:
        state = site.initial_state(client)
    if order["op"] == "finish":
        finish = site.finish(client, t, reply, state, data)
        return {"ok": True, "upload": False, "digest": finish.digest.hex()}, finish.meta, None, finish.state
    work = site.work(client, t, reply, state, data)
    return {"ok": True, "upload": work.upload is not None}, work.meta, work.upload, work.state


if __name__ == "__main__":
    main(int(sys.argv[1]))
