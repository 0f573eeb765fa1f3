"""A SuperLink and three SuperNodes as real processes on loopback."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from federation_fakes import small

from fedpurin.config import Config
from fedpurin.engines.flower.terms import Terms
from fedpurin.engines.loop import run_job
from fedpurin.errors import EngineError
from fedpurin.federation.cluster import Cluster, Traffic
from fedpurin.federation.launch import Event, launch
from fedpurin.job import Job
from fedpurin.runs import RunDirectory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # a busy machine is slow, not wrong
CLIENTS = 3
DEADLINE = 900  # Flower gives a node up after a minute without a sign of life; the rest is for slow machines


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, nothing_left: None) -> Iterator[Cluster]:
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # where the sites find gate_data
    try:
        with Cluster(tmp_path_factory.mktemp("cluster"), CLIENTS) as cluster:
            yield cluster
    finally:
        del os.environ["PYTHONPATH"]


def run_on(
    cluster: Cluster,
    path: Path,
    config: Config,
    watch: Callable[[Event], None] = lambda event: None,
    **terms: Any,
) -> tuple[dict[str, Any], Traffic]:
    RunDirectory.create(path, Job.build(config)).close()
    run = launch(cluster.link, path, config, Terms.of(CLIENTS, **terms))
    for event in run.follow():
        watch(event)
    traffic = cluster.link.traffic(run.flower_id)
    for _ in range(60):  # the result is there before Flower has seen its server process end
        if traffic.status != "running":
            break
        time.sleep(1)
        traffic = cluster.link.traffic(run.flower_id)
    return json.loads((path / "result.json").read_text()), traffic


def ledger_bytes(path: Path, direction: str) -> int:
    lines = [json.loads(line) for line in (path / "ledger.jsonl").read_text().splitlines()]
    return sum(sum(line["bytes"].values()) for line in lines if line["direction"] == direction)


@pytest.mark.parametrize(
    ("method", "values"),
    [("fedpurin", "float32"), ("fedpurin", "int8"), ("fedavg", "float32"), ("pfedsd", "float32")],
)
def test_real_processes_give_the_digest_and_ledger_of_the_local_engine(
    cluster: Cluster, tmp_path: Path, method: str, values: str
) -> None:
    config = small(method, values=values).updated({"model": {"name": "cnn"}})
    local = run_job(Job.build(config), tmp_path / "local")
    result, traffic = run_on(cluster, tmp_path / "flower", config)
    assert result["digest"] == local["digest"]
    assert (tmp_path / "flower/ledger.jsonl").read_bytes() == (tmp_path / "local/ledger.jsonl").read_bytes()
    assert traffic.status == "finished:completed"
    # Flower counts what crosses its socket for this run: our bytes, its envelopes, and the app once per node.
    for counted, direction in ((traffic.inbound, "up"), (traffic.outbound, "down")):
        sent = ledger_bytes(tmp_path / "flower", direction)
        assert 0 < counted - sent < 20_000 + 0.02 * sent, (
            f"{direction}: {counted} counted, {sent} in the ledger"
        )


def test_a_client_killed_in_mid_round_is_left_out_and_comes_back_with_its_state(
    cluster: Cluster, tmp_path: Path
) -> None:
    config = small(rounds=3).updated({"data": {"dataset": "gate_data:behind_gate"}})
    home = cluster.site_folder(1) / "flower"
    (home / "hold").write_text("2")  # client 1 stops in round 2
    killed = None

    def kill(event: Event) -> None:
        nonlocal killed
        if event["event"] == "round" and event["round"] == 2:
            wait_for((home / "held").exists)
            cluster.nodes[1].kill()
            killed = time.monotonic()
            (home / "hold").unlink()
            cluster.start_node(1)

    result, _ = run_on(cluster, tmp_path / "run", config, kill, deadline=DEADLINE, minimum=2)
    assert killed is not None
    first, second, third, final = [
        json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    ]
    assert second["clients"] == [0, 2]
    assert [failure["client"] for failure in second["failed"]] == [1]
    assert second["seconds"]["round"] < DEADLINE
    assert third["clients"] == [0, 1, 2]
    assert third["merged"]["round"] == [2, 2, 2]
    assert first["clients"] == final["merged"]["clients"] == [0, 1, 2]
    # Client 1 went on from its own round 1: a client without state would have been reported in round 3.
    assert third["failed"] == []
    assert result["missing_clients"] == []


def test_when_all_clients_are_too_slow_the_run_fails(cluster: Cluster, tmp_path: Path) -> None:
    config = small(rounds=1)
    RunDirectory.create(tmp_path / "run", Job.build(config)).close()
    # Starting a Python process with torch takes longer than this.
    run = launch(cluster.link, tmp_path / "run", config, Terms.of(CLIENTS, deadline=0.5))
    with pytest.raises(EngineError, match=r"round 1: 0 accepted upload\(s\), but a round needs 2"):
        list(run.follow())
    assert not (tmp_path / "run/result.json").exists()
    deadline = time.monotonic() + 300
    while (status := cluster.link.traffic(run.flower_id).status) == "running":
        assert time.monotonic() < deadline
    assert status == "finished:failed"


def test_a_dead_server_process_is_noticed(cluster: Cluster, tmp_path: Path) -> None:
    config = small(rounds=1)
    RunDirectory.create(tmp_path / "run", Job.build(config)).close()
    run = launch(cluster.link, tmp_path / "run", config, Terms.of(CLIENTS))
    events = run.follow()
    os.kill(next(events)["pid"], 9)
    with pytest.raises(EngineError, match="process ended in mid-run"):
        list(events)


def wait_for(condition: Callable[[], bool], seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
