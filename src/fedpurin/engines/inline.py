"""Clients one after the other in this very process: for tests, debuggers and models that cannot be sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Self

from fedpurin.engines.site import Site
from fedpurin.engines.states import State
from fedpurin.engines.transport import ClientTask, Outcome, Pool, Reply
from fedpurin.engines.worker import perform


class InlineWorkers(Pool):
    def __enter__(self) -> Self:
        super().__enter__()
        self.site = Site(self.job)
        self.last: State = {}
        return self

    def work(self, waiting: deque[ClientTask], reply: Reply) -> Iterator[Outcome]:
        while waiting:
            task = waiting.popleft()
            task.start(reply)
            outcome, self.last = perform(self.site, task, partial(self.table.read, task.client))
            yield outcome

    def last_state(self) -> State:
        return self.last
