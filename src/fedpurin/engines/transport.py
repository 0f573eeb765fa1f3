"""What moves messages between the hub and its clients. The driver knows no more of an engine than this."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Self

from fedpurin.engines.site import Site
from fedpurin.engines.states import State, named_model
from fedpurin.engines.table import Spec, StateTable, check_saved
from fedpurin.errors import EngineError
from fedpurin.job import Job
from fedpurin.memory import give_back_memory
from fedpurin.runs.rows import Rows, in_memory

Reply = Callable[[int], bytes | None]
"""The bytes for a client, or None where there is nothing to say to it."""

MAX_DEATHS = 3  # of workers at one and the same task

ALLOCATOR = ":".join(
    f"glibc.malloc.{setting}"
    for setting in ("hugetlb=1", f"mmap_threshold={2**32}", f"trim_threshold={2**32}")
)
"""Workers keep the memory of one mini-batch for the next, in huge pages. Other C libraries ignore it."""


@dataclass(frozen=True)
class Failure:
    """Why a client's task came to nothing, and whom that concerns."""

    reason: str
    concerns: Literal["client", "state", "run"]
    """client: this one alone, as when its training diverged; state: it has lost the state that the server
    counts on; run: every client would meet it."""


@dataclass(frozen=True)
class Outcome:
    """What came of one client's task."""

    client: int
    meta: bytes = b""
    upload: bytes | memoryview | None = None  # good until the next outcome is taken
    digest: str = ""
    failure: Failure | None = None


class Transport:
    """A way to reach clients. Enter it before the first round; leaving it ends its processes."""

    rows: Rows = staticmethod(in_memory)
    """Where it may keep the states of clients; the driver puts the run directory in its place."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        return None

    def gather(self, asked: list[int], *, first: bool) -> list[int]:
        """Those of the clients that can be asked now; `first`: this run has not asked anybody yet."""
        return asked

    def members(self, clients: list[int]) -> list[int]:
        """Those of the clients that exist, connected or not; a seat that nobody holds is left out."""
        return clients

    def run(self, op: str, t: int, clients: list[int], reply: Reply) -> Iterator[Outcome]:
        """Do one task per client ("work" or "finish") and yield one outcome for each, as they come.

        The state after a task is not the client's state until `keep(client)` is called, which must
        happen before the next outcome is taken.
        """
        raise NotImplementedError

    def keep(self, client: int) -> None:
        """Make the last yielded outcome's state the state of its client."""

    def parts(self) -> dict[str, State]:
        """What a checkpoint must hold of the clients; nothing where they keep their states themselves."""
        return {}

    def check(self, parts: dict[str, State]) -> None:
        """Raises ValueError or KeyError where `restore` could not go on from these parts; before it is
        entered."""

    def restore(self, parts: dict[str, State]) -> None:
        """Go on from the parts of a checkpoint."""

    def model(self) -> State | None:
        """The model in the last yielded outcome's state; None where it stays with the client."""
        return None


@dataclass
class ClientTask:
    op: str  # "work" or "finish"
    client: int
    t: int
    reply: bytes | memoryview | None = None
    started: bool = False
    deaths: int = 0

    def start(self, reply: Reply) -> None:
        """Fetch the reply, once only: it is sent and counted once, however many workers die over it."""
        if not self.started:
            self.reply, self.started = reply(self.client), True

    def count_death(self, who: str, remedy: str) -> None:
        """Of a worker over this task, which may be given to another one, but not for ever."""
        self.deaths += 1
        if self.deaths >= MAX_DEATHS:
            raise EngineError(
                f"{who} died {self.deaths} times at client {self.client} in round {self.t}; {remedy}"
            )


class Pool(Transport):
    """Workers, with the states of all clients in one file. `work` and `last_state` are the engine's own."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __enter__(self) -> Self:
        give_back_memory()
        self.spec = Spec.of(Site(self.job, "cpu").initial_state(0))
        self.table = StateTable(self.spec, self.rows("clients", self.spec.size))
        return self

    def __exit__(self, *problem: object) -> None:
        self.table.rows.close()

    def worker_count(self, cores: int) -> int:
        return max(1, min(self.job.config.run.workers or cores, self.job.config.run.clients))

    def work(self, waiting: deque[ClientTask], reply: Reply) -> Iterator[Outcome]:
        """Do the tasks, starting them in the given order. They are taken out, since each holds its reply:
        those to ten thousand clients do not fit into the memory together."""
        raise NotImplementedError

    def last_state(self) -> State:
        """The state in which the last yielded outcome leaves its client."""
        raise NotImplementedError

    def run(self, op: str, t: int, clients: list[int], reply: Reply) -> Iterator[Outcome]:
        samples = self.job.train_samples()
        longest_first = sorted(clients, key=lambda client: (-samples[client], client))  # workers end together
        return self.work(deque(ClientTask(op, client, t) for client in longest_first), reply)

    def keep(self, client: int) -> None:
        self.table.write(client, self.last_state())

    def parts(self) -> dict[str, State]:
        return {"clients": self.table.rows.index()}

    def check(self, parts: dict[str, State]) -> None:
        spec = Spec.of(Site(self.job, "cpu").initial_state(0))
        check_saved(spec, parts["clients"], self.job.config.run.clients)

    def restore(self, parts: dict[str, State]) -> None:
        self.table.restore(parts["clients"])

    def model(self) -> State | None:
        return named_model(self.job.layout, self.last_state())
