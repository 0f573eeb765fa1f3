"""What local processes and Ray actors have in common: tasks, outcomes, and the states of all clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedpurin import errors
from fedpurin.engines.site import Site
from fedpurin.engines.table import Spec, StateTable
from fedpurin.errors import EngineError, FedpurinError
from fedpurin.job import Job

MAX_DEATHS = 3  # of workers at one and the same task

ALLOCATOR = ":".join(
    f"glibc.malloc.{setting}"
    for setting in ("hugetlb=1", f"mmap_threshold={2**32}", f"trim_threshold={2**32}")
)
"""Workers keep the memory of one mini-batch for the next, in huge pages. Other C libraries ignore it."""

Reply = Callable[[int], bytes | None]


@dataclass(frozen=True)
class Outcome:
    """What came of one client's task."""

    client: int
    meta: bytes = b""
    upload: bytes | None = None
    digest: str = ""
    error: FedpurinError | None = None


@dataclass
class Task:
    op: str
    client: int
    t: int
    reply: bytes | None = None
    started: bool = False
    deaths: int = 0

    def start(self, reply: Reply) -> None:
        """Fetch the reply, once only: it is sent and counted once, however many workers die over it."""
        if not self.started:
            self.reply, self.started = reply(self.client), True


class Pool:
    """Workers with the states of all clients. `run` and `keep` are the engine's own."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.spec = Spec.of(Site(job).initial_state(0))
        self.table = StateTable(self.spec, job.config.run.clients)

    def run(self, op: str, t: int, clients: list[int], reply: Reply) -> Iterator[Outcome]:
        """Do one task per client, in the given order, and yield outcomes as they come.

        The state after a task is not the client's state until `keep(client)` is called, which must
        happen before the next outcome is taken.
        """
        raise NotImplementedError

    def keep(self, client: int) -> None:
        """Make the last yielded outcome's state the state of its client."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop all workers."""

    def initialise(self) -> None:
        for outcome in self.run("initial", 0, list(range(self.table.n)), lambda client: None):
            if outcome.error:
                raise outcome.error
            self.keep(outcome.client)

    def snapshot(self) -> dict[str, Tensor]:
        return self.table.rows

    def restore(self, saved: dict[str, Tensor]) -> None:
        self.table.restore(saved)


def error_of(answer: dict[str, Any], client: int, t: int) -> FedpurinError:
    """The error that a worker reported, as it was raised there."""
    kind = getattr(errors, answer["kind"], None) if answer["kind"] else None
    if kind is not None:
        problem = FedpurinError.__new__(kind)
        problem.args = (answer["message"],)
        return problem
    return EngineError(f"client {client} failed in round {t}:\n{answer['message']}")
