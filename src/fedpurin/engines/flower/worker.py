"""The process of a site: takes the SuperNode's tasks and answers them with the fedpurin installed here.

    python -m fedpurin.engines.flower.worker SETTINGS.json

It lives through all rounds. The order it is working on is kept in a private folder, so that a process
started after a crash answers it, as if nothing had happened.
"""

from __future__ import annotations

import logging
import sys
import time
from concurrent.futures import wait
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from fedpurin.engines.flower import APP, records
from fedpurin.engines.flower.client_app import Client
from fedpurin.engines.flower.runtime import Bundle, Door, Order, Task, Tasks, Unavailable, bundle_hash
from fedpurin.engines.flower.settings import SiteSettings
from fedpurin.methods import installed_methods
from fedpurin.plugins import permit_only

APP_NAME, APP_VERSION = "fedpurin/fedpurin-federation", f"{records.VERSION}.0.0"
READ_SECONDS = 2.0  # that a task's message may take before the next task is asked for
SHORTEST_WAIT, LONGEST_WAIT = 0.05, 0.5  # between questions for work
MAX_TRIES = 3  # processes that may die over one order

log = logging.getLogger("fedpurin")


class Worker:
    def __init__(self, settings: SiteSettings, folder: Path) -> None:
        self.client = Client(settings)
        self.tasks = Tasks(Door(settings.address, settings.ca, settings.secret))
        self.own = Bundle(APP_NAME, APP_VERSION, bundle_hash(APP))
        self.folder = folder  # of the order at hand
        self.begun: list[Task] = []  # tasks whose message has not come in full yet

    def run(self) -> None:
        self.continue_order()
        pause = SHORTEST_WAIT
        while True:
            if self.do_next():
                pause = SHORTEST_WAIT
            else:
                time.sleep(pause)
                pause = min(1.1 * pause, LONGEST_WAIT)

    def continue_order(self) -> None:
        """Answer what an earlier process had begun."""
        if order := Order.load(self.folder):
            order = replace(order, tries=order.tries + 1)
            log.info("an earlier process ended over an order; this is try %d", order.tries)
            with closing(Task(self.tasks.door, order.token)) as task:
                self.attempt(task, order)

    def do_next(self) -> bool:
        try:
            task = next((task for task in self.begun if task.order.done()), None)
            if task is None:
                task = self.tasks.next()
                if task is None:
                    return False
                self.begun.append(task)
                task.start_reading()
                if not wait([task.order], READ_SECONDS).done:
                    return True  # its message is still on its way; others need not wait for it
            self.begun.remove(task)
            with closing(task):
                self.attempt(task, task.order.result())
            return True
        except Unavailable as problem:  # the node is starting or restarting
            log.debug("%s", problem)
            return False

    def attempt(self, task: Task, order: Order) -> None:
        order.adopt()
        order.save(self.folder)
        problem = bundle_problem(order.bundle, self.own)
        if order.tries > MAX_TRIES:
            problem = f"its process died {MAX_TRIES} times over this message; is there enough memory?"
        if problem:
            reply, line = self.client.refuse(order.message, problem)
        else:
            reply, line = self.client.answer(order.message, order.run_config)
        try:
            sent = task.answer(order, reply)
            if line:
                self.client.note(line | ({} if sent else {"unsure": True}))
        except Unavailable as lost:
            log.warning("the reply could not be handed to the node: %s", lost)
        finally:
            Order.forget(self.folder)


def bundle_problem(theirs: Bundle, own: Bundle) -> str | None:
    """Why the server's app is not the one installed here. It is never run, but then its run is not ours."""
    if theirs.name != own.name:
        return (
            f"the server wants to run the app {theirs.name}: this site answers with the installed fedpurin "
            "only, and never runs what a server sends"
        )
    if theirs.version != own.version:
        return (
            f"the server's app is of version {theirs.version}, the installed one of {own.version}: install "
            "the same fedpurin on both"
        )
    if theirs.hash != own.hash:
        return (
            f"the server's app has the hash {theirs.hash[:12]} instead of {own.hash[:12]}: it was changed, "
            "or another Flower built it; install the same fedpurin and flwr on both"
        )
    return None


def main(settings: Path) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    agreed = SiteSettings.load(settings)
    permit_only([*agreed.allow, agreed.data, *installed_methods().values()])
    Worker(agreed, settings.parent / "order").run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
