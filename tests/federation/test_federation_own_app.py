"""FedPURIN inside a Flower app: the example app on a grid without processes, and between real ones."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr")
from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from in_flower import task
from in_flower.client_app import app

from fedpurin.federation.service import Service, flower_environment, free_port, program, wait_healthy
from fedpurin.flower import FedPURINStrategy, FlowerClient

TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # Flower sets these in a task


class Grid:
    """Nodes 70, 71, ...; messages go straight to the ClientApp. `broken` nodes answer with errors."""

    def __init__(self, nodes: int) -> None:
        self.contexts = {
            70 + i: Context(1, 70 + i, {"partition-id": i, "num-partitions": nodes}, RecordDict(), {})
            for i in range(nodes)
        }
        self.broken: set[tuple[int, str]] = set()
        self.sizes: list[int] = []

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def send_and_receive(self, messages: Iterable[Message], timeout: float | None = None) -> list[Message]:
        return [self._answer(message) for message in messages]

    def _answer(self, message: Message) -> Message:
        node, kind = message.metadata.dst_node_id, message.metadata.message_type
        message.metadata.__dict__["_message_id"] = f"m{node}"
        if (node, kind) in self.broken:
            reply = Message(Error(1, "it crashed"), reply_to=message)
        else:
            reply = app(message, self.contexts[node])
            if "fedpurin" in reply.content.config_records:
                self.sizes.append(len(reply.content.config_records["fedpurin"].get("upload", b"")))
        reply.metadata.__dict__["_src_node_id"] = node
        return reply


def test_the_example_app_learns_and_sends_half() -> None:
    torch.manual_seed(2)  # the app draws from torch's own generator, as users' apps do
    grid: Any = Grid(3)
    result = FedPURINStrategy(task.make_model, clients=3).start(grid=grid, num_rounds=6)
    # ten classes, four at each client; 0.58 to 0.69 with the seeds 1 to 4
    assert result.evaluate_metrics_clientapp[6]["accuracy"] > 0.5
    assert set(result.train_metrics_clientapp[1]) == {"loss"}
    whole = 4 * sum(p.numel() for p in task.make_model().parameters())
    assert len(grid.sizes) == 18
    assert max(grid.sizes) < 0.55 * whole


def test_a_client_that_fails_is_left_out_and_comes_back() -> None:
    grid: Any = Grid(3)
    grid.broken = {(71, "train")}
    strategy = FedPURINStrategy(task.make_model, clients=3, fraction_evaluate=0.0)
    strategy.start(grid=grid, num_rounds=1)
    assert strategy.server.hub.confirmed_N.tolist() == [1, 0, 1]
    assert "it crashed" in strategy.server.hub.failed[0]["reason"]


def test_a_message_of_another_strategy_is_refused() -> None:
    message = Message(RecordDict(), dst_node_id=70, message_type="train")
    with pytest.raises(Exception, match="does the server use FedPURINStrategy"):
        FlowerClient(message, Grid(1).contexts[70], task.make_model)


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
def test_the_example_app_between_real_processes(tmp_path: Path) -> None:
    """As Flower's users do it: a SuperLink, three SuperNodes, `flwr run`. Only the app's folder is sent."""
    example = Path(task.__file__).parents[1]
    env = flower_environment(tmp_path / "home")
    link = f"127.0.0.1:{free_port()}"
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(f'[superlink.link]\naddress = "{link}"\ninsecure = true\n')
    start = [program("flower-superlink"), "--insecure", "--host", "127.0.0.1", "--port", link.split(":")[1]]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Service("the SuperLink", start, log=tmp_path / "link.log", env=env))
        wait_healthy(server, f"http://{link}/health", timeout=180)
        for client in range(3):
            node = [program("flower-supernode"), "--insecure", "--superlink", link, "--host", "127.0.0.1"]
            node += ["--port", str(free_port()), "--node-config", f"partition-id={client} num-partitions=3"]
            log = tmp_path / f"node-{client}.log"
            stack.enter_context(Service(f"SuperNode {client}", node, log=log, env=env))
        command = [program("flwr"), "run", str(example), "link", "--stream", "--run-config", "rounds=2"]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    told = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
    assert done.returncode == 0, told
    assert told.count("Received 3 results and 0 failures") == 2, told  # of evaluation
    accuracy = [float(value) for value in re.findall(r"'accuracy': '?([\d.e-]+)", told)]
    assert accuracy, told
    assert accuracy[-1] > 0.2  # ten classes, two rounds
