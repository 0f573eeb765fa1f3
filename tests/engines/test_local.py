"""The local engine: real worker processes give the bytes of one process, whatever happens to them."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import weakref
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from engine_tools import assert_same_runs, metrics_of, run
from fedpurin.config import Config
from fedpurin.engines import simulate, transport
from fedpurin.engines.driver import Watcher
from fedpurin.engines.hub import Hub
from fedpurin.engines.inline import InlineWorkers
from fedpurin.engines.local import LocalWorkers, _Worker
from fedpurin.engines.simulate import run_job
from fedpurin.engines.transport import ClientTask, Pool, Reply
from fedpurin.errors import EngineError
from fedpurin.job import Job
from fedpurin.methods import METHODS
from tiny import tiny_config


def with_workers(config: Config, workers: int) -> Config:
    return replace(config, run=replace(config.run, workers=workers))


def run_in_process(config: Config, path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "make_transport", InlineWorkers)
        run(config, path)


@pytest.mark.parametrize("workers", [InlineWorkers, LocalWorkers])
def test_a_reply_is_not_kept_once_its_client_is_done(
    workers: type[Pool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand of them would be: 21 GB, with ResNet-8."""
    made: list[weakref.ref[ClientTask]] = []

    class Noted(ClientTask):
        def start(self, reply: Reply) -> None:
            made.append(weakref.ref(self))
            super().start(reply)

    monkeypatch.setattr(transport, "ClientTask", Noted)
    monkeypatch.setattr(simulate, "make_transport", workers)
    most = 0

    class Looking(Watcher):
        def client_done(self, t: int, client: int, done: int, total: int) -> None:
            nonlocal most
            most = max(most, sum(reference() is not None for reference in made))

    config = tiny_config("fedavg", tmp_path, (6,) * 8, run__rounds=2, run__workers=2)
    run_job(Job.build(config), tmp_path / "run", Looking())
    assert len(made) == 8 * 3  # two rounds and the last reply
    assert most <= 4  # two at work, one just done, one whose name the loop still holds


class Scales:
    """Weighs every byte string that passes the hub, without asking the ledger."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.up = self.down = self.meta = 0
        reply, accept = Hub.reply, Hub.accept

        def weighed_reply(hub: Hub, client: int) -> bytes | None:
            data = reply(hub, client)
            self.down += len(data or b"")
            return data

        def weighed_accept(hub: Hub, client: int, upload: bytes | None, meta: bytes) -> None:
            accept(hub, client, upload, meta)
            self.up += len(upload or b"")
            self.meta += len(meta)

        monkeypatch.setattr(Hub, "reply", weighed_reply)
        monkeypatch.setattr(Hub, "accept", weighed_accept)


@pytest.mark.parametrize(
    ("where", "name", "number", "remedy"),
    [(os, "ftruncate", errno.EFBIG, "ulimit -f"), (socket, "socketpair", errno.EMFILE, "ulimit -n")],
)
def test_a_limit_of_the_system_is_named_with_the_way_to_raise_it(
    where: Any, name: str, number: int, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    config = tiny_config("fedavg", tmp_path, run__rounds=1, run__workers=1)
    monkeypatch.setattr(where, name, refuse)
    said = rf"worker processes cannot be started: {os.strerror(number)}; .*{remedy}.*--engine inline"
    with pytest.raises(EngineError, match=said):
        run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_worker_process_gives_the_same_bytes_and_the_ledger_weighs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config("fedpurin", tmp_path, run__rounds=4, run__workers=1)
    run_in_process(config, tmp_path / "here")
    scales = Scales(monkeypatch)
    run(config, tmp_path / "there")
    assert_same_runs(tmp_path / "here", tmp_path / "there")
    lines = [json.loads(line) for line in (tmp_path / "there" / "ledger.jsonl").read_text().splitlines()]
    weight = {"up": 0, "down": 0, "meta": 0}
    for line in lines:
        sections = line["bytes"]
        weight[line["direction"]] += sections["header"] + sections["mask"] + sections["values"]
        weight["meta"] += sections["meta"]
    assert weight == {"up": scales.up, "down": scales.down, "meta": scales.meta}
    # 4 clients: uploads in 4 rounds; replies at the start of rounds 2 to 4 and one last
    assert len(lines) == 4 * 4 + 4 * 4


def test_a_run_directory_holds_what_its_description_says(tmp_path: Path, in_process: None) -> None:
    config = tiny_config("fedpurin", tmp_path, run__rounds=3)
    result = run(config, tmp_path / "run")
    path = tmp_path / "run"
    assert {p.name for p in path.iterdir()} == {
        ".lock", "checkpoints", "clients.json", "config.toml", "coverage.safetensors", "environment.json",
        "layout.json", "ledger.jsonl", "metrics.jsonl", "models", "result.json",
    }  # fmt: skip
    metrics = metrics_of(path)
    assert [m["round"] for m in metrics] == [1, 2, 3, 4]
    assert metrics[-1].keys() == {"round", "final", "merged"}
    assert metrics[-1]["merged"]["round"] == [3] * 4
    assert json.loads((path / "result.json").read_text()) == result
    assert result.keys() >= {
        "method", "dataset", "alpha", "seed", "rounds", "clients", "digest", "missing_clients", "accuracy",
        "mib_per_client_round", "seconds",
    }  # fmt: skip
    assert Config.from_toml(path / "config.toml") == config
    assert sorted(p.name for p in (path / "models").iterdir()) == [
        f"client-{i:04d}.safetensors" for i in range(4)
    ]


# Divergence

FRAGILE = {"model__name": "tiny:plain_model", "train__epochs": 3}  # no norms, and several steps per round


def test_a_client_that_diverges_is_left_out_and_reported(tmp_path: Path, in_process: None) -> None:
    config = tiny_config("fedpurin", tmp_path, dataset="tiny:four_exploding", run__rounds=3, **FRAGILE)
    result = run(config, tmp_path / "run")
    for line in metrics_of(tmp_path / "run")[:-1]:
        assert line["clients"] == [0, 1, 2]
        t = line["round"]
        reason = f"client 3 diverged in round {t} (NaN or Inf); lower train.lr"
        assert line["failed"] == [{"client": 3, "reason": reason}]
    assert result["digest"] is not None, "it still gets a final model: the mean"
    assert metrics_of(tmp_path / "run")[-1]["merged"]["clients"] == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["fedavg", "fedpurin", "separate"])
def test_where_all_diverge_the_run_ends_in_one_line(name: str, tmp_path: Path, in_process: None) -> None:
    config = tiny_config(name, tmp_path, train__lr=1e30, **FRAGILE)
    with pytest.raises(EngineError, match=r"round 1: no client delivered an upload .*diverged") as caught:
        run(config, tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_loss_that_is_not_a_number_is_null_in_the_metrics(tmp_path: Path, in_process: None) -> None:
    """Parameters still finite, their products not: other readers of JSON know no NaN and no Infinity."""
    config = tiny_config("fedpurin", tmp_path, run__rounds=1, train__lr=1e30)
    run(config, tmp_path / "run")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} in metrics.jsonl")

    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line, parse_constant=refuse) for line in lines]
    assert None in records[0]["upload"]["loss"] + records[1]["merged"]["loss"]


# Workers that die


class Killer(Watcher):
    """Kills every worker process once, when the first client of round 2 is done: one idle, one at work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.killed: list[int] = []
        make = simulate.make_transport

        def remember(job: Job) -> Any:
            self.pool = make(job)
            return self.pool

        monkeypatch.setattr(simulate, "make_transport", remember)

    def client_done(self, t: int, client: int, done: int, total: int) -> None:
        if t == 2 and done == 1:
            assert isinstance(self.pool, LocalWorkers)
            for worker in self.pool.workers:
                self.killed.append(worker.process.pid)
                os.kill(worker.process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_killed_workers_are_replaced_and_nobody_can_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config("fedpurin", tmp_path, run__rounds=3, run__workers=2)
    run_in_process(config, tmp_path / "quiet")
    killer = Killer(monkeypatch)
    run(config, tmp_path / "violent", killer)
    assert len(killer.killed) == 2
    assert_same_runs(tmp_path / "quiet", tmp_path / "violent")


@pytest.mark.parametrize("sent", ["nothing", "half a frame", "an announcement without what it announces"])
def test_a_worker_that_ends_anywhere_in_its_answer_counts_as_dead(sent: str) -> None:
    ours, theirs = socket.socketpair()
    worker = _Worker.__new__(_Worker)
    worker.connection = Connection(ours.detach())
    other = Connection(theirs.detach())
    answer = json.dumps({"digest": "", "failure": None, "upload": None}).encode()
    if sent == "half a frame":
        os.write(other.fileno(), len(answer).to_bytes(4, "big") + answer[:5])
    elif sent != "nothing":
        other.send_bytes(answer)
        os.write(other.fileno(), (10**6).to_bytes(4, "big") + b"part of the meta")
    other.close()
    assert worker.result(ClientTask("work", client=0, t=1)) is None
    worker.connection.close()


@pytest.mark.slow
def test_workers_that_always_die_end_the_run_in_one_line(tmp_path: Path) -> None:
    """Client 2 has the most samples, so that it is the first to be given out."""
    config = tiny_config("fedavg", tmp_path, model__name="tiny:deadly_model", run__workers=1)
    with pytest.raises(EngineError, match=r"died 3 times at client 2 .*fewer --workers") as caught:
        run(config, tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_worker_that_cannot_load_the_data_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_ONLY_PROCESS", str(os.getpid()))
    config = tiny_config("fedavg", tmp_path, dataset="tiny:four_here", run__workers=1)
    with pytest.raises(EngineError, match="the disk of the workers is not mounted"):
        run(config, tmp_path / "run")


# The law of the engine


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_any_number_of_workers_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    """Convolutions and batch norm on the bundled images; unequal work per client through the split."""
    config = (
        Config()
        .updated({"method": {"beta": 2}})
        .updated(
            {
                "run": {"method": name, "clients": 4, "rounds": 3},
                "data": {"train_samples": 40, "test_samples": 20, "alpha": 0.5},
                "train": {"epochs": 2, "batch_size": 16},
            }
        )
    )
    for workers in (1, 2, 3):
        run(with_workers(config, workers), tmp_path / str(workers))
    for workers in (2, 3):
        assert_same_runs(tmp_path / "1", tmp_path / str(workers))


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc_trim")
def test_memory_that_was_freed_goes_back_to_the_system() -> None:
    """100 MB in pieces, of which every hundredth stays: none of the rest is at the end of the heap."""
    words = """
import fedpurin.memory as memory
def mib():
    return int(open("/proc/self/status").read().split("RssAnon:")[1].split()[0]) / 1024
pieces = [bytes(range(250)) * 400 for _ in range(1000)]
kept, pieces = pieces[::100], None
before = mib()
memory.give_back_memory()
print(before - mib())
"""
    found = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert float(found.stdout) > 50
