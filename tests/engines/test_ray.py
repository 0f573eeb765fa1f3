"""Ray actors do the same work to the same bytes, and may die at any time."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedpurin.config import Config
from fedpurin.engines import simulate
from fedpurin.engines.driver import Watcher
from fedpurin.engines.local import LocalWorkers
from fedpurin.engines.ray import Actor, RayWorkers, _arrays, _tensors
from fedpurin.engines.simulate import run_job
from fedpurin.engines.site import Site
from fedpurin.engines.transport import ClientTask
from fedpurin.errors import EngineError
from fedpurin.job import Job
from fedpurin.runs.rows import in_memory
from fedpurin.stopping import INTERRUPTED, stoppable
from tiny import tiny_job


def config(
    method: str,
    engine: str,
    model: str = "mlp",
    rounds: int = 3,
    clients: int = 5,
    precision: str = "float32",
) -> Config:
    return (
        Config()
        .updated({"method": {"beta": 2}})
        .updated(
            {
                "run": {
                    "method": method,
                    "engine": engine,
                    "rounds": rounds,
                    "clients": clients,
                    "workers": 2,
                },
                "data": {"train_samples": 24, "test_samples": 10, "validation": 0.25},
                "model": {"name": model},
                "train": {"epochs": 1, "batch_size": 12, "precision": precision},
            }
        )
    )


# Without a cluster: what an actor does with what it is sent


def test_a_ray_that_does_not_start_is_an_error_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by `make torture` on a machine that was far too busy."""
    workers = RayWorkers(tiny_job("fedavg"))

    def late(**_: Any) -> None:
        raise Exception("The current node timed out during startup.\nSee the logs")

    monkeypatch.setattr(workers.ray, "init", late)
    monkeypatch.setattr(workers.ray, "is_initialized", lambda: False)
    with pytest.raises(EngineError, match=r"Ray could not be started \(The current node timed out") as told:
        workers.__enter__()
    assert "\n" not in str(told.value)


def test_a_sigterm_while_ray_starts_reaches_whom_it_was_meant_for(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = RayWorkers(tiny_job("fedavg"))

    def taken_over(**_: Any) -> None:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))  # as ray.init does
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(workers.ray, "init", taken_over)
    monkeypatch.setattr(workers.ray, "is_initialized", lambda: False)
    with stoppable():
        ours = signal.getsignal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            workers.__enter__()
        assert signal.getsignal(signal.SIGTERM) is ours


def test_a_sigterm_after_ray_has_ended_reaches_whom_it_was_meant_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by `make torture`: a complete run had died of SIGTERM."""
    workers = RayWorkers(tiny_job("fedavg"))
    workers.starting, workers.idle, workers.busy, workers.started_ray = {}, [], {}, True
    monkeypatch.setattr(workers, "table", SimpleNamespace(rows=in_memory("clients", 1)), raising=False)
    libc = ctypes.CDLL(None)

    def taken_away() -> None:
        libc.signal(signal.SIGTERM, None)  # as Ray's C++ part does: Python is not told

    monkeypatch.setattr(workers.ray, "shutdown", taken_away)
    with stoppable():
        workers.__exit__()
        status = Path("/proc/self/status").read_text()
        caught = int(re.findall(r"SigCgt:\s*(\w+)", status)[0], 16)
        assert caught >> (signal.SIGTERM - 1) & 1


def test_an_actor_answers_as_the_site_itself_does() -> None:
    job = Job.build(config("fedpurin", "local", clients=2))
    site, actor = Site(job), Actor()
    assert actor.prepare(job.config.to_toml()) == ""
    state = site.initial_state(1)
    expected = site.work(1, 1, None, state, job.client_data(1))
    outcome, after = actor.work(ClientTask("work", client=1, t=1), _arrays(state))
    assert outcome.failure is None
    assert outcome.upload == expected.upload
    assert all(torch.equal(after, expected.state[name]) for name, after in _tensors(after).items())


def test_an_actor_reports_whom_an_error_concerns_and_goes_on() -> None:
    job = Job.build(config("fedavg", "local", clients=2))
    actor = Actor()
    actor.prepare(job.config.to_toml())
    state = _arrays(Site(job).initial_state(0))
    outcome, after = actor.work(ClientTask("work", client=0, t=1, reply=b"no message"), state)
    assert outcome.failure is not None
    assert (outcome.failure.concerns, outcome.upload, after) == ("run", None, {})
    assert "10 bytes" in outcome.failure.reason
    assert actor.work(ClientTask("work", client=0, t=1), state)[0].failure is None


def test_an_actor_that_lacks_the_data_says_on_which_node() -> None:
    text = config("fedavg", "ray").updated({"data": {"dataset": "cifar-10", "dir": "/nowhere"}}).to_toml()
    problem = Actor().prepare(text)
    assert os.uname().nodename in problem
    assert "Traceback" not in problem


# On a cluster of its own

STRUCK = """
import os, signal, sys
import ray._private.node, ray._private.worker
from fedpurin.cli.main import main

steps = {"node": (ray._private.node.Node, "__init__"), "connect": (ray._private.worker, "connect")}
where, name = steps[sys.argv[1]]
step = getattr(where, name)

def struck(*given, **named):
    step(*given, **named)
    os.kill(os.getpid(), signal.SIGTERM)

setattr(where, name, struck)
sys.exit(main(["run", *sys.argv[2:]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("step", ["connect", "node"])
def test_a_sigterm_at_a_step_of_rays_start_stops_the_command_in_order(step: str, tmp_path: Path) -> None:
    """Once its node was started Ray ended the process without a word; once it was connected, by abort()."""
    file = tmp_path / "config.toml"
    file.write_text(config("fedavg", "ray", clients=2, rounds=1).to_toml())
    words = [sys.executable, "-c", STRUCK, step, str(file), "--out", str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == INTERRUPTED, done.stderr
    assert "stopped" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert "SIGTERM received" not in done.stderr


HEARD = """
import os, signal, sys
import fedpurin
from fedpurin.config import Config

signal.signal(signal.SIGTERM, lambda *_: print("heard", flush=True))
fedpurin.run(Config.from_text(open(sys.argv[1]).read()), sys.argv[2])
os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.slow
def test_whoever_runs_ray_from_python_still_hears_signals_afterwards(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(config("fedavg", "ray", clients=2, rounds=1).to_toml())
    words = [sys.executable, "-c", HEARD, str(file), str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "heard" in done.stdout


# On a cluster of two nodes, which are two raylets on this machine


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    two = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 10**8})
    two.second = two.add_node(num_cpus=1, object_store_memory=10**8)
    two.wait_for_nodes()
    monkeypatch.setenv("RAY_ADDRESS", two.address)
    yield two
    ray.shutdown()
    two.shutdown()


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[RayWorkers]:
    """The workers of the runs of a test, for it to do them harm."""
    made: list[RayWorkers] = []

    def make(job: Job) -> RayWorkers:
        made.append(RayWorkers(job))
        return made[-1]

    monkeypatch.setattr(simulate, "make_transport", make)
    return made


class Saboteur(Watcher):
    """Does harm once, in round 2, when one client is done and others are being trained."""

    def __init__(self, harm: Callable[[], None]) -> None:
        self.harm: Callable[[], None] | None = harm

    def client_done(self, t: int, client: int, done: int, total: int) -> None:
        if t == 2 and self.harm is not None:
            harm, self.harm = self.harm, None
            harm()


def local_digest(
    tmp_path: Path, method: str = "fedpurin", model: str = "mlp", precision: str = "float32"
) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "make_transport", LocalWorkers)
        return str(
            run_job(Job.build(config(method, "local", model, precision=precision)), tmp_path / "local")[
                "digest"
            ]
        )


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Ray's own
@pytest.mark.parametrize(
    ("method", "model", "precision"), [("fedpurin", "cnn", "bfloat16"), ("fedavg", "mlp", "float32")]
)
def test_two_nodes_give_the_digest_of_the_local_engine(
    cluster: Any, tmp_path: Path, method: str, model: str, precision: str
) -> None:
    expected = local_digest(tmp_path, method, model, precision)
    result = run_job(Job.build(config(method, "ray", model, precision=precision)), tmp_path / "ray")
    assert result["digest"] == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_killed_actor_is_replaced_and_its_client_retrained(
    cluster: Any, used: list[RayWorkers], tmp_path: Path
) -> None:
    import ray

    killed: list[int] = []

    def harm() -> None:
        workers = used[0]
        victim = workers.idle[-1]  # gets the next client
        killed.append(ray.get(victim.process.remote()))
        os.kill(killed[0], signal.SIGKILL)

    result = run_job(Job.build(config("fedpurin", "ray")), tmp_path / "ray", Saboteur(harm))
    assert len(killed) == 1
    # the ledger is part of the digest: a reply that was encoded twice would show
    assert result["digest"] == local_digest(tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_lost_node_costs_its_actor_and_nothing_else(
    cluster: Any, used: list[RayWorkers], tmp_path: Path
) -> None:
    lost: list[Any] = []

    def harm() -> None:
        lost.append(cluster.second)
        cluster.remove_node(cluster.second, allow_graceful=False)

    result = run_job(Job.build(config("fedpurin", "ray")), tmp_path / "ray", Saboteur(harm))
    assert lost
    assert result["digest"] == local_digest(tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_client_at_which_every_actor_dies_ends_the_run(
    cluster: Any, used: list[RayWorkers], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    job = Job.build(config("fedpurin", "ray"))
    workers = RayWorkers(job)
    give = workers._give

    def give_to_the_dead(task: Any, reply: Any) -> None:
        os.kill(ray.get(workers.idle[-1].process.remote()), signal.SIGKILL)
        give(task, reply)

    with workers:
        monkeypatch.setattr(workers, "_give", give_to_the_dead)
        asked: list[int] = []
        with pytest.raises(EngineError, match="died 3 times at client 0 in round 1"):
            list(workers.run("work", 1, [0], lambda client: asked.append(client)))
        assert asked == [0], "a reply is asked for once, however often its client is trained"
