"""Simulated federations: every transport that runs all clients for one driver in this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fedpurin.engines.driver import Driver, Watcher
from fedpurin.engines.local import can_hand_over
from fedpurin.engines.transport import Transport
from fedpurin.errors import ConfigError, FedpurinError
from fedpurin.given import Given
from fedpurin.job import Job
from fedpurin.plugins import load_function, load_object
from fedpurin.ready import check_ready
from fedpurin.runs.directory import RunDirectory

TRANSPORTS = {
    "inline": "fedpurin.engines.inline:InlineWorkers",
    "local": "fedpurin.engines.local:LocalWorkers",
    "ray": "fedpurin.engines.ray:RayWorkers",
}


def make_transport(job: Job) -> Transport:
    """The transport that run.engine names: one of ours, or package.module:Class, called with the job."""
    name = job.config.run.engine
    if name == "local" and not can_hand_over(job):
        name = "inline"
    if name in TRANSPORTS:
        ours: Transport = load_object(TRANSPORTS[name], ConfigError)(job)
        return ours
    factory = load_function(name, ConfigError)
    try:
        transport = factory(job)
    except FedpurinError:
        raise
    except Exception as problem:  # whatever the user's class raises
        raise ConfigError(
            f"run.engine = {name!r} cannot be made: {type(problem).__name__}: {problem}"
        ) from problem
    if not isinstance(transport, Transport):
        raise ConfigError(f"run.engine = {name!r} does not give a fedpurin.engines.transport.Transport")
    return transport


def check(job: Job, watcher: Watcher | None = None) -> Transport:
    """Refuse what cannot run before anything is written; the transport of what can."""
    job.check_data()
    elsewhere = job.config.run.engine == "ray" and "RAY_ADDRESS" in os.environ
    check_ready(job, device="cpu" if elsewhere else None)  # nodes look for their devices themselves
    if watcher and job.config.run.engine == "local" and not can_hand_over(job):
        watcher.warned(
            f"{job.only_here} cannot be handed to worker processes here (that needs Linux and "
            "device = cpu): clients train one after the other in this process"
        )
    return make_transport(job)


def run_job(job: Job, path: Path, watcher: Watcher | None = None) -> dict[str, Any]:
    """Start a new run in `path`; its result."""
    transport = check(job, watcher)
    with RunDirectory.create(path, job) as directory:
        try:
            return Driver(job, directory, transport, watcher=watcher).run()
        except FedpurinError:
            directory.remove_if_nothing_done()
            raise


def resume_run(path: Path, watcher: Watcher | None = None, given: Given | None = None) -> dict[str, Any]:
    """Continue a run after its newest checkpoint, to the same bytes as if it had never stopped."""
    directory, job = RunDirectory.reopen(path, given)
    with directory:
        return Driver(job, directory, check(job, watcher), watcher=watcher).run()
