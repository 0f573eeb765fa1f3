"""Clients one after the other in this very process: for tests, debuggers and models that cannot be sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from fedpurin.engines.site import Site, State
from fedpurin.engines.transport import ClientTask, Outcome, Pool, Reply, failure_of
from fedpurin.engines.worker import Order, answer_to


class InlineWorkers(Pool):
    def __enter__(self) -> Self:
        super().__enter__()
        self.site = Site(self.job)
        self.last: State = {}
        return self

    def work(self, tasks: list[ClientTask], reply: Reply) -> Iterator[Outcome]:
        for task in tasks:
            task.start(reply)
            order = {"op": task.op, "client": task.client, "t": task.t}
            answer, meta, upload, self.last = answer_to(self.site, order, task.reply, self._read)
            if answer["ok"]:
                yield Outcome(task.client, meta, upload, answer.get("digest", ""))
            else:
                yield Outcome(task.client, failure=failure_of(answer, task.client, task.t))

    def _read(self, order: Order) -> State | None:
        return self.table.read(order["client"])

    def last_state(self) -> State:
        return self.last
