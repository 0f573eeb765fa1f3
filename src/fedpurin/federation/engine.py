"""A whole federation on this machine: what `fedpurin run --engine flower` and `fedpurin federation up` do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedpurin.engines.driver import Watcher
from fedpurin.engines.flower.journal import Line, end_of, new_lines
from fedpurin.engines.flower.settings import Terms, functions_named
from fedpurin.federation.cluster import Cluster, Traffic
from fedpurin.federation.launch import Launched, alone, federation_folder
from fedpurin.federation.service import program
from fedpurin.job import Job
from fedpurin.ready import check_ready
from fedpurin.runs.directory import RunDirectory
from fedpurin.runs.parsing import read_lines
from fedpurin.runs.places import models_to_collect


def check(job: Job, data: list[str] | None = None) -> None:
    """Refuse what cannot run before anything is written: also each client's own data."""
    for command in ("flower-superlink", "flwr"):
        program(command)
    if not data:
        job.check_data()
        check_ready(job)
        return
    from fedpurin.engines.flower.client_app import client_data  # brings Flower

    for client, own in enumerate(data):
        check_ready(job, client_data(job, client, own).train_x)


def run_job(job: Job, path: Path, watcher: Watcher | None = None, **options: Any) -> dict[str, Any]:
    """Start a new run in `path` between real processes; its result."""
    check(job, options.get("data"))
    RunDirectory.create(path, job).close()
    return _drive(job, path, watcher, **options)


def resume_run(path: Path, watcher: Watcher | None = None, **options: Any) -> dict[str, Any]:
    """Continue a run of this engine after its newest checkpoint."""
    if models_to_collect(path):  # it was complete, but the command was killed before it had tidied up
        with alone(path):
            return _tidy(path)
    directory, job = RunDirectory.reopen(path)
    directory.close()
    check(job, options.get("data"))
    return _drive(job, path, watcher, **options)


def _drive(
    job: Job,
    path: Path,
    watcher: Watcher | None,
    *,
    terms: Terms | None = None,
    data: list[str] | None = None,
    on_event: Callable[[Line], None] | None = None,
    on_traffic: Callable[[Traffic], None] | None = None,
) -> dict[str, Any]:
    clients = job.config.run.clients
    tell = on_event or _Translator(job, path, watcher or Watcher())
    allow = tuple(functions_named(job.config.as_dict()))  # server and sites are the same person's here
    with alone(path):
        with Cluster(federation_folder(path), clients, data=data, allow=allow) as cluster:
            run = Launched(cluster.link, path, job.config, terms or Terms.of(clients))
            run.tended.append(cluster.tend)
            for event in run.follow():
                tell(event)
            if on_traffic:
                on_traffic(cluster.link.traffic(run.flower_id))
        return _tidy(path)


def _tidy(path: Path) -> dict[str, Any]:
    """The sites' models go where a simulated run has them; here all sites are on one machine."""
    (path / "models").mkdir(exist_ok=True)
    for model in federation_folder(path).glob("site-*/*/model.safetensors"):
        client = int(model.parents[1].name.removeprefix("site-"))
        shutil.move(model, path / "models" / f"client-{client:04d}.safetensors")
    shutil.rmtree(federation_folder(path))
    return dict(json.loads((path / "result.json").read_text()))


class _Translator:
    """Tells a Watcher of the engine-independent kind what the events say."""

    def __init__(self, job: Job, path: Path, watcher: Watcher) -> None:
        self.job, self.path, self.watcher = job, path, watcher
        self.ledger = path / "ledger.jsonl"
        self.replies, self.asked, self.position = 0, 0, 0
        self.running = False

    def __call__(self, event: Line) -> None:
        kind = event["event"]
        if kind == "warning":
            self.watcher.warned(event["text"])
        elif kind == "round":
            if not self.running:
                self.running = True
                self.watcher.start(self.job, self.path, event["round"] - 1)
                self.position = end_of(self.ledger)
            self.replies, self.asked = 0, event["asked"]
        elif kind == "failed" and event["round"] > self.job.config.run.rounds:  # no record will tell
            self.watcher.warned(f"client {event['client']} left out of the last reply: {event['reason']}")
        elif kind in ("reply", "failed") and self.running:
            self.replies += 1
            done = min(self.replies, self.asked)
            self.watcher.client_done(event["round"], event["client"], done, self.asked)
        elif kind in ("round_done", "done") and self.running:
            lines, self.position = new_lines(self.ledger, self.position)
            self.watcher.round_done(read_lines(self.path / "metrics.jsonl")[-1], lines)
