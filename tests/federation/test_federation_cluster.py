"""A SuperLink and three sites as real processes on loopback."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from federation_fakes import simulated, small
from flwr.app import Message
from flwr.supercore.task_identity import TaskIdentity

from fedpurin.config import Config
from fedpurin.engines.flower import APP, records
from fedpurin.engines.flower.journal import Line
from fedpurin.engines.flower.runtime import Door, Tasks
from fedpurin.engines.flower.settings import PROGRESS, Terms
from fedpurin.federation.cluster import CONNECTION, Cluster, Traffic
from fedpurin.federation.guard import descendants
from fedpurin.federation.launch import Launched
from fedpurin.federation.service import Service
from fedpurin.job import Job
from fedpurin.runs.directory import RunDirectory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # a busy machine is slow, not wrong
CLIENTS = 3
GATE = "gate_data:behind_gate"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, nothing_left: None) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)  # sites find gate_data
        with Cluster(tmp_path_factory.mktemp("cluster"), CLIENTS, allow=(GATE,)) as cluster:
            yield cluster


def run_on(
    cluster: Cluster, path: Path, config: Config, watch: Callable[[Line], None] = lambda event: None
) -> tuple[dict[str, Any], Traffic]:
    RunDirectory.create(path, Job.build(config)).close()
    run = Launched(cluster.link, path, config, Terms.of(CLIENTS, deadline=900))
    run.tended.append(cluster.tend)
    for event in run.follow():
        watch(event)
    return json.loads((path / "result.json").read_text()), cluster.link.traffic(run.flower_id)


def ledger_bytes(path: Path, direction: str) -> int:
    lines = [json.loads(line) for line in (path / "ledger.jsonl").read_text().splitlines()]
    return sum(sum(line["bytes"].values()) for line in lines if line["direction"] == direction)


def wait_for(condition: Callable[[], object], seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@pytest.mark.parametrize(("method", "values"), [("fedpurin", "int8"), ("pfedsd", "float32")])
def test_real_processes_give_the_digest_and_ledger_of_the_local_engine(
    cluster: Cluster, tmp_path: Path, method: str, values: str
) -> None:
    config = small(method, values=values).updated({"model": {"name": "cnn"}})
    local = simulated(config, tmp_path / "local")
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


def program_of(service: Service) -> int:
    """The process that a service's guard looks after."""
    return descendants(service.pid)[0]


def test_a_site_killed_with_an_order_in_hand_answers_it_after_its_restart(
    cluster: Cluster, tmp_path: Path
) -> None:
    config = small().updated({"data": {"dataset": GATE}})
    home = cluster.sites[1].home
    (home / "hold").touch()
    killed = []

    def kill(event: Line) -> None:
        if event["event"] == "round" and not killed:
            wait_for((home / "held").exists)
            killed.append(program_of(cluster.sites[1].worker.service))
            os.kill(killed[0], 9)
            (home / "hold").unlink()

    result, _ = run_on(cluster, tmp_path / "run", config, kill)
    first = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[0])
    assert first["failed"] == []
    assert result["digest"] == simulated(small(), tmp_path / "local")["digest"]


# A server that tries to run code at the sites

EVIL = """
from pathlib import Path
Path({mark!r}).write_text("I was here")
from flwr.clientapp import ClientApp
app = ClientApp()
"""


def another_app(folder: Path, text: str) -> str:
    return text.replace("fedpurin-federation", "evil").replace(
        "fedpurin.engines.flower.client_app:app", "evil:app"
    )


def changed_app(folder: Path, text: str) -> str:
    return text.replace("fedpurin.engines.flower.client_app:app", "evil:app")


def other_version(folder: Path, text: str) -> str:
    return text.replace('version = "2.0.0"', 'version = "3.0.0"')


@pytest.fixture
def task_identity() -> Iterator[None]:
    """Taking a task sets these for the whole process."""
    before = TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id
    yield
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = before


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (another_app, "the app fedpurin/evil: this site answers with the installed fedpurin only"),
        (changed_app, "it was changed"),
        (other_version, "of version 3.0.0, the installed one of 2.0.0: install the same fedpurin on both"),
    ],
)
def test_no_code_that_a_server_sends_is_run_at_a_site(
    cluster: Cluster,
    tmp_path: Path,
    task_identity: None,
    change: Callable[[Path, str], str],
    reason: str,
) -> None:
    app, mark = tmp_path / "app", tmp_path / "mark"
    shutil.copytree(APP, app)
    (app / "pyproject.toml").write_text(change(app, (APP / "pyproject.toml").read_text()))
    (app / "evil.py").write_text(EVIL.format(mark=str(mark)))
    config = small()
    (tmp_path / "settings.toml").write_text(f"run = 'evil'\nconfig = '''{config.to_toml()}'''\njob = ''\n")
    cluster.link.flwr("run", str(app), CONNECTION, "--run-config", str(tmp_path / "settings.toml"))
    with closing(Tasks(Door(**cluster.link.door()))) as tasks, tasks.serve_run("evil", 300) as grid:
        nodes = [node.node_id for node in grid.get_nodes()]
        orders = [Message(records.content(round=1), node, records.WORK, ttl=600) for node in nodes]
        waiting = set(grid.push_messages(orders))
        answers: list[Message] = []
        while waiting:
            news = list(grid.pull_messages(waiting))
            waiting -= {answer.metadata.reply_to_message_id for answer in news}  # each can be pulled once
            answers += news
    for answer in answers:
        assert reason in str(records.read(answer)["error"])
    for client in range(CLIENTS):  # the people at the sites are told, too
        wait_for(lambda client=client: reason in (cluster.site_folder(client) / PROGRESS).read_text())
        assert not list(cluster.sites[client].home.glob("**/evil*"))
    assert not mark.exists()
