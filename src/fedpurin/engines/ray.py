"""The same workers as Ray actors, on one machine or on a cluster.

The states of all clients stay with the driver; a task takes one client's state to an actor and brings the
next one back. So an actor, or the whole node it ran on, may die at any time: a new actor gets the task again.
The cluster is the one that RAY_ADDRESS names, or a new one on this machine.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import torch

from fedpurin.config import Config
from fedpurin.engines.states import State
from fedpurin.engines.transport import ALLOCATOR, MAX_DEATHS, ClientTask, Outcome, Pool, Reply
from fedpurin.engines.worker import build_site, failure_of, perform
from fedpurin.errors import ConfigError, EngineError, MissingExtraError
from fedpurin.given import Given
from fedpurin.job import Job
from fedpurin.train import prepare_process

START_SECONDS = 300
"""How long to wait for a first free place in the cluster when nobody works."""

GPU_PARTS = 10_000  # as finely as Ray divides one
Arrays = dict[str, np.ndarray]


class RayWorkers(Pool):
    """What `LocalWorkers` is, for actors. An actor that is still starting gets no task."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.ray = _import_ray()
        if "__main__:" in job.only_here:
            raise ConfigError(
                f"{job.only_here} exists in this process only, not on the nodes of Ray; "
                "pass the object itself to fedpurin.run, put it into a module, or use engine = local"
            )
        self.given: Any = None
        self.failed_starts = 0
        self.starting: dict[Any, Any] = {}  # reference to the first answer -> actor
        self.idle: list[Any] = []
        self.busy: dict[Any, tuple[Any, ClientTask]] = {}

    def __enter__(self) -> Self:
        super().__enter__()
        self.started_ray = not self.ray.is_initialized()
        if self.started_ray:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            # Its C++ part would take SIGTERM for a crash, print a stack and abort
            os.environ.setdefault("RAY_DISABLE_FAILURE_SIGNAL_HANDLER", "1")
            self._start_ray()
        self.given = self._handed_over()
        there = self.ray.cluster_resources()
        self.count = self.worker_count(int(there.get("CPU", 1)))
        self.gpu_share = gpu_share(self.job.config.run.device, there.get("GPU", 0), self.count)
        for _ in range(self.count):
            self._start()
        return self

    def _start_ray(self) -> None:
        try:
            with _own_signals():
                self.ray.init(logging_level=logging.ERROR, log_to_driver=False)
        except Exception as problem:  # Ray raises plain exceptions, too, where a node does not come up
            raise EngineError(
                f"Ray could not be started ({_first_line(problem)}); is the machine overloaded "
                "or RAY_ADDRESS wrong? Try again, or use engine = local"
            ) from problem

    def __exit__(self, *problem: object) -> None:
        for actor in [*self.starting.values(), *self.idle, *(actor for actor, _ in self.busy.values())]:
            self.ray.kill(actor)
        self.starting, self.idle, self.busy = {}, [], {}
        if self.started_ray:
            with _own_signals():
                self.ray.shutdown()
        super().__exit__(*problem)

    def work(self, waiting: deque[ClientTask], reply: Reply) -> Iterator[Outcome]:
        while waiting or self.busy:
            while waiting and self.idle:
                self._give(waiting.popleft(), reply)
            for reference in self._answered():
                if reference in self.starting:
                    self._welcome(reference)
                    continue
                actor, task = self.busy.pop(reference)
                try:
                    outcome, self._state = self.ray.get(reference)
                except self._deaths as problem:
                    remedy = f"is there enough memory on the nodes? Ray says: {problem}"
                    task.count_death("Ray actors", remedy)
                    self.ray.kill(actor)  # it may only be out of reach
                    self._start()
                    waiting.appendleft(task)
                    continue
                self.idle.append(actor)
                yield outcome

    def last_state(self) -> State:
        return _tensors(self._state)

    # Actors

    def _handed_over(self) -> Any:
        """The user's Python objects in Ray's store; None where there are none."""
        if self.job.given is None:
            return None
        try:
            return self.ray.put(self.job.given)
        except Exception as problem:  # whatever an object of the user's raises when it is to be serialised
            raise EngineError(
                f"Ray cannot send the model, data or functions ({_first_line(problem)}); "
                "use engine = local or inline, or give what can be serialised"
            ) from problem

    @property
    def _deaths(self) -> tuple[type[BaseException], ...]:
        """What Ray raises where an actor, its node, or the answer it left there is gone."""
        e = self.ray.exceptions
        return (e.RayActorError, e.ObjectLostError, e.WorkerCrashedError, e.NodeDiedError, e.OutOfMemoryError)

    def _start(self) -> None:
        allocator = {"env_vars": {"GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", ALLOCATOR)}}
        remote = self.ray.remote(
            num_cpus=1,
            num_gpus=self.gpu_share,
            max_restarts=0,
            scheduling_strategy="SPREAD",
            runtime_env=allocator,
        )(Actor)
        actor = remote.remote()
        actor.look_in.remote(sys.path)  # before objects arrive that may come from modules there
        self.starting[actor.prepare.remote(self.job.config.to_toml(), self.given)] = actor

    def _welcome(self, reference: Any) -> None:
        actor = self.starting.pop(reference)
        try:
            problem = self.ray.get(reference)
        except self._deaths:
            self._start()  # its place was gone before it worked; a missing package would repeat, so:
            self.failed_starts += 1
            if self.failed_starts >= MAX_DEATHS * self.count:
                raise EngineError(
                    f"Ray actors died {self.failed_starts} times while starting; "
                    "is the same fedpurin installed on every node? Look into Ray's logs"
                ) from None
            return
        if problem:
            raise EngineError(problem)
        self.idle.append(actor)

    def _give(self, task: ClientTask, reply: Reply) -> None:
        task.start(reply)
        actor = self.idle.pop()
        state = self.table.read(task.client)
        reference = actor.work.remote(task, None if state is None else _arrays(state))
        self.busy[reference] = (actor, task)

    def _answered(self) -> list[Any]:
        references = [*self.busy, *self.starting]
        timeout = None if self.busy else START_SECONDS
        done, _ = self.ray.wait(references, num_returns=1, timeout=timeout)
        if not done:
            raise EngineError(
                f"no Ray actor could start within {START_SECONDS} s; the cluster has no free CPU: "
                "add a node, or stop what occupies it (ray status shows it)"
            )
        return list(done)


def gpu_share(device: str, gpus: float, workers: int) -> float:
    """What part of a GPU an actor asks for, so that all fit; Ray shows it that GPU alone, as cuda:0."""
    if device.partition(":")[0] not in ("auto", "cuda"):
        return 0.0
    return math.floor(min(1.0, gpus / workers) * GPU_PARTS) / GPU_PARTS


class Actor:
    """Runs in a process of its own, somewhere in the cluster. Holds no client's state between tasks."""

    def look_in(self, path: list[str]) -> None:
        sys.path[:0] = [p for p in path if p not in sys.path]

    def prepare(self, config: str, given: Given | None = None) -> str:
        """ "" once it is ready; else why it cannot work there."""
        prepare_process()
        self.site = build_site(lambda: Job.build(Config.from_text(config), given))
        if not isinstance(self.site, Exception):
            return ""
        return f"on {os.uname().nodename}: {failure_of(self.site, 0, 0).reason}"

    def work(self, task: ClientTask, state: Arrays | None) -> tuple[Outcome, Arrays]:
        outcome, after = perform(self.site, task, lambda: None if state is None else _tensors(state))
        return outcome, _arrays(after)

    def process(self) -> int:
        return os.getpid()


def _arrays(state: State) -> Arrays:
    return {name: tensor.numpy() for name, tensor in state.items()}


def _tensors(arrays: Arrays) -> State:
    """Copies: what comes from Ray's object store is read-only and shared."""
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def _first_line(problem: Exception) -> str:
    return next(iter(str(problem).strip().splitlines()), repr(problem))


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM over while it starts, and answers with SystemExit; while it ends it drops it, so that
    one kills the process. Whoever had it before gets it back."""
    before = signal.getsignal(signal.SIGTERM)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield  # not Python's, or not ours to set
        return
    try:
        yield
    except SystemExit:
        signal.signal(signal.SIGTERM, before)
        signal.raise_signal(signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtraError("ray", "engine = ray") from None
    return ray
