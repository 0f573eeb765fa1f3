"""The rounds of a simulated federation, whatever runs the clients' tasks.

Workers (local processes, Ray actors) do tasks and keep states; the hub sees bytes only; the run
directory gets a record, ledger lines and a checkpoint after every round.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from torch import Tensor

from fedpurin.engines.coverage import Coverage
from fedpurin.engines.hub import Hub, merged_record
from fedpurin.engines.local import LocalWorkers
from fedpurin.engines.pool import Pool
from fedpurin.errors import DivergedError, EngineError, NotFiniteError
from fedpurin.job import Job
from fedpurin.layout import Layout
from fedpurin.meta import Meta
from fedpurin.runs import RunDirectory
from fedpurin.train import prepare_process


class Watcher:
    """Follows a run; the defaults do nothing."""

    def start(self, job: Job, path: Path, t: int) -> None: ...
    def client_done(self, t: int, done: int, total: int) -> None: ...
    def round_done(self, record: dict[str, Any], ledger_lines: list[dict[str, Any]]) -> None: ...


def run_job(job: Job, path: Path, watcher: Watcher | None = None) -> dict[str, Any]:
    """Start a new run in `path`; its result."""
    job.check_data()
    directory = RunDirectory.create(path, job)
    try:
        return _Loop(job, directory, watcher or Watcher()).run()
    finally:
        directory.close()


def resume_run(path: Path, watcher: Watcher | None = None) -> dict[str, Any]:
    """Continue a run after its newest checkpoint, to the same bytes as if it had never stopped."""
    directory, job = RunDirectory.reopen(path)
    try:
        return _Loop(job, directory, watcher or Watcher()).run()
    finally:
        directory.close()


def make_workers(job: Job) -> Pool:
    if job.config.run.engine == "ray":
        from fedpurin.engines.ray import RayWorkers

        return RayWorkers(job)
    return LocalWorkers(job)


class _Loop:
    def __init__(self, job: Job, directory: RunDirectory, watcher: Watcher) -> None:
        prepare_process()
        self.job, self.directory, self.watcher = job, directory, watcher
        self.hub = Hub(job)
        self.coverage = Coverage(self.hub) if job.method.has_masks else None
        self.started = time.monotonic()

    def run(self) -> dict[str, Any]:
        done, parts = self.directory.rewind()
        self.watcher.start(self.job, self.directory.path, done)
        self.workers = make_workers(self.job)
        try:
            if done:
                self.workers.restore(parts["clients"])
                self.hub.restore(parts["server"])
                if self.coverage:
                    self.coverage.tensors = parts["coverage"]
            else:
                self.workers.initialise()
            del parts
            for t in range(done + 1, self.job.config.run.rounds + 1):
                self._round(t)
            return self._finish(self.job.config.run.rounds)
        finally:
            self.workers.close()

    def _round(self, t: int) -> None:
        began = time.perf_counter()
        asked = self.hub.participants(t)
        self.hub.begin(t, asked)
        for done, outcome in enumerate(
            self.workers.run("work", t, self._longest_first(asked), self.hub.reply)
        ):
            if outcome.error is None:
                self.hub.accept(outcome.client, outcome.upload, outcome.meta)
                self.workers.keep(outcome.client)
            elif isinstance(outcome.error, (DivergedError, NotFiniteError)):
                self.hub.fail(outcome.client, str(outcome.error))
            else:
                raise outcome.error
            self.watcher.client_done(t, done + 1, len(asked))
        server_began = time.perf_counter()
        record = self.hub.close(t)
        if self.coverage:
            self.coverage.add(self.hub)
        record["seconds"]["server"] = time.perf_counter() - server_began
        record["seconds"]["round"] = time.perf_counter() - began
        self._log(record)
        if t % self.job.config.run.checkpoint_every == 0:
            self._checkpoint(t)

    def _longest_first(self, clients: list[int]) -> list[int]:
        """Clients with many samples start first, so that workers finish together."""
        samples = self.job.train_samples()
        return sorted(clients, key=lambda client: (-samples[client], client))

    def _log(self, record: dict[str, Any]) -> None:
        record["seconds"]["checkpoint"] = getattr(self, "checkpoint_seconds", 0.0)
        lines = self.hub.take_ledger()
        self.directory.append(record, lines)
        self.watcher.round_done(record, lines)

    def _checkpoint(self, t: int) -> None:
        began = time.perf_counter()
        parts = {"clients": self.workers.snapshot(), "server": self.hub.state()}
        if self.coverage:
            parts["coverage"] = self.coverage.tensors
        self.directory.checkpoint(t, parts)
        self.checkpoint_seconds = time.perf_counter() - began

    def _finish(self, t: int) -> dict[str, Any]:
        """A last reply to everybody; final models, their digests, and the result."""
        began = time.perf_counter()
        everybody = list(range(self.hub.clients))
        self.hub.begin(t + 1, [])
        metas: dict[int, Meta] = {}
        digests: dict[int, str] = {}
        for outcome in self.workers.run("finish", t, everybody, self.hub.reply):
            if outcome.error is not None:
                raise EngineError(f"client {outcome.client} could not take its final model: {outcome.error}")
            self.workers.keep(outcome.client)
            metas[outcome.client] = Meta.from_bytes(outcome.meta)
            digests[outcome.client] = outcome.digest
        record: dict[str, Any] = {
            "round": t + 1,
            "final": True,
            "merged": merged_record(dict(sorted(metas.items()))),
            "seconds": {"round": time.perf_counter() - began},
        }
        self._log(record)
        self._save_models()
        if self.coverage:
            self.directory.save_tensors("coverage", self.coverage.tensors)
        return self.directory.finish(digests, self.hub.clients, time.monotonic() - self.started)

    def _save_models(self) -> None:
        rows = self.workers.snapshot()
        for client in range(self.hub.clients):
            self.directory.save_model(
                client, named_model(self.job.layout, {k: v[client] for k, v in rows.items()})
            )


def named_model(layout: Layout, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Parameters and buffers by name, as `load_state_dict` wants them."""
    named = {
        layer.name: state["weights"][layer.start : layer.start + layer.size].view(layer.shape).clone()
        for layer in layout.layers
    }
    return named | {k.removeprefix("buffer."): v.clone() for k, v in state.items() if k.startswith("buffer.")}
