"""Worker processes on this machine: one torch thread each, client states in a file that all of them read."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import multiprocessing.process
import os
import socket
import subprocess
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, Self

from fedpurin import wire
from fedpurin.devices import chosen
from fedpurin.engines.states import State
from fedpurin.engines.table import Scratch
from fedpurin.engines.transport import ALLOCATOR, ClientTask, Failure, Outcome, Pool, Reply
from fedpurin.engines.worker import forked
from fedpurin.errors import EngineError
from fedpurin.job import Job
from fedpurin.runs.unwritable import REMEDIES


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def limits_said() -> Iterator[None]:
    """What the system refuses to worker processes is told in one line."""
    try:
        yield
    except OSError as problem:
        remedy = REMEDIES.get(problem.errno or 0, "free memory")
        raise EngineError(
            f"worker processes cannot be started: {problem.strerror or problem}; {remedy}, or try fewer "
            "--workers, or --engine inline"
        ) from problem


def can_hand_over(job: Job) -> bool:
    """Whether worker processes can have everything the job holds: Python objects reach them by fork."""
    return not job.only_here or (sys.platform == "linux" and chosen(job.config.run.device) == "cpu")


class LocalWorkers(Pool):
    """Persistent worker processes. A worker that dies is replaced and its task given out again."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.count = self.worker_count(available_cores())
        room = wire.longest(self.job.selection.d, self.job.config.value_type)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(super().__exit__)
            with limits_said():
                self.scratch = Scratch(self.spec, 2 * self.count, room)
                on_failure.callback(self.scratch.close)
                self.workers: list[_Worker] = []
                on_failure.callback(self._stop)
                for slot in range(self.count):
                    self.workers.append(_Worker(self, slot))
            on_failure.pop_all()
        return self

    def _stop(self) -> None:
        for worker in self.workers:
            worker.stop()

    def __exit__(self, *problem: object) -> None:
        self._stop()
        self.scratch.close()
        super().__exit__(*problem)

    def work(self, waiting: deque[ClientTask], reply: Reply) -> Iterator[Outcome]:
        busy: dict[_Worker, ClientTask] = {}

        def give(worker: _Worker) -> None:
            if waiting:
                busy[worker] = waiting.popleft()
                busy[worker].start(reply)
                worker.give(busy[worker])

        for worker in self.workers:
            give(worker)
        while busy:
            ready = wait([worker.connection for worker in busy])
            for worker in [worker for worker in busy if worker.connection in ready]:
                task = busy.pop(worker)
                outcome, row = worker.result(task), worker.row
                if outcome is None:
                    task.count_death("worker processes", "is there enough memory? Try fewer --workers")
                    worker.stop()
                    with limits_said():
                        worker.start()
                    waiting.appendleft(task)
                give(worker)  # before its last outcome is dealt with, so that it does not wait for us
                if outcome is not None:
                    self._row = row
                    yield outcome

    def keep(self, client: int) -> None:
        self.table.rows.write(client, self.scratch.record(self._row))

    def last_state(self) -> State:
        return self.scratch.state(self._row)


class _Worker:
    process: subprocess.Popen[bytes] | multiprocessing.process.BaseProcess
    _wait: Callable[[], object]

    def __init__(self, pool: LocalWorkers, slot: int) -> None:
        self.pool, self.slot = pool, slot
        self.row = 2 * slot  # of `scratch`, for its present task: that one and the next by turns
        self.start()

    def start(self) -> None:
        pool = self.pool
        hello: dict[str, Any] = {
            "spec": pool.spec.entries,
            "table": pool.table.rows.descriptor,
            "rows": pool.scratch.n,
            "room": pool.scratch.room,
            "scratch": pool.scratch.descriptor,
            "slot": self.slot,
        }
        ours, theirs = socket.socketpair()
        self.connection = Connection(ours.detach())
        if pool.job.only_here:
            self._fork(Connection(theirs.detach()), hello)
        else:
            self._spawn(theirs, hello)

    def _spawn(self, theirs: socket.socket, hello: dict[str, Any]) -> None:
        """A new program, which builds the job from its configuration."""
        process = subprocess.Popen(
            [sys.executable, "-m", "fedpurin.engines.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno(), self.pool.table.rows.descriptor, self.pool.scratch.descriptor],
            env={"GLIBC_TUNABLES": ALLOCATOR, **os.environ},
            stdin=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is ours to handle, also while the worker still starts
        )
        theirs.close()
        self.process, self._wait = process, process.wait
        hello |= {"config": self.pool.job.config.to_toml(), "path": sys.path}
        self.connection.send_bytes(json.dumps(hello).encode())

    def _fork(self, theirs: Connection, hello: dict[str, Any]) -> None:
        """A copy of this process, which has the objects that the job holds."""
        others = [worker.connection for worker in self.pool.workers if worker is not self]

        def close() -> None:
            """Where a worker holds the parent's end of a connection, another would not see the parent go."""
            for connection in (self.connection, *others):
                if not connection.closed:
                    connection.close()

        process = multiprocessing.get_context("fork").Process(
            target=forked, args=(theirs, self.pool.job, hello, close), daemon=True
        )
        with warnings.catch_warnings():  # threads are no danger: the worker computes with one of its own
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        self.process, self._wait = process, process.join

    def give(self, task: ClientTask) -> None:
        self.row ^= 1
        reply = self.pool.scratch.put_message(self.row, task.reply)
        order = {"op": task.op, "client": task.client, "t": task.t, "reply": reply}
        order |= {"place": self.pool.table.rows.place(task.client), "row": self.row}
        # Did it die while idle, `result` sees the end of the connection.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(json.dumps(order).encode())

    def result(self, task: ClientTask) -> Outcome | None:
        """The outcome of the task, or None where the worker died."""
        try:
            head = json.loads(self.connection.recv_bytes())
            meta = self.connection.recv_bytes()
        except (EOFError, OSError):  # OSError: it ended in the middle of a message
            return None
        failure = Failure(**head["failure"]) if head["failure"] else None
        upload = self.pool.scratch.message(self.row, head["upload"])
        return Outcome(task.client, meta, upload, head["digest"], failure)

    def stop(self) -> None:
        self.connection.close()
        self.process.kill()
        self._wait()
