"""In a real notebook kernel: the example notebook, its progress and figures, and the stop button."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
SECONDS = 300
IMAGE = re.compile(r'<img alt="accuracy" src="data:image/png;base64,[A-Za-z0-9+/]{5000,}')
PROGRESS = re.compile(r'<progress value="([\d.]+)" max="(\d+)"')
LONG = """
import fedpurin, numpy as np
from torch import nn
draw = np.random.default_rng(0)
data = {n: (draw.normal(size=(40, 4)).astype("float32"), np.arange(40) % 2) for n in "abc"}
run = fedpurin.run(
    model=lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
    data=data, rounds=12, epochs=30, out="runs/long", ENGINE
)
print("rounds:", run.rounds)
"""

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the kernel's own


def html_of(cell: Any) -> str:
    return "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)


def test_the_example_notebook_runs_with_progress_and_figures(tmp_path: Path) -> None:
    book = nbformat.read(NOTEBOOK, 4)
    assert not any(cell.get("outputs") for cell in book.cells), "store it without outputs"
    NotebookClient(book, timeout=SECONDS, resources={"metadata": {"path": str(tmp_path)}}).execute()
    data, one, three, model = (cell for cell in book.cells if cell.cell_type == "code")
    assert "'desk 5'" in str(data.outputs)
    assert PROGRESS.findall(html_of(one)) == [("8", "8")]  # a line that changed in place, at its end
    assert IMAGE.search(html_of(one))
    assert PROGRESS.findall(html_of(three)) == [("8", "8")] * 3
    assert any("application/vnd.plotly.v1+json" in output.get("data", {}) for output in three.outputs)
    said, labels = ast.literal_eval(model.outputs[0]["data"]["text/plain"])
    assert sum(a == b for a, b in zip(said, labels, strict=True)) >= 6


class Kernel:
    def __init__(self, folder: Path) -> None:
        self.manager = KernelManager()
        self.manager.start_kernel(cwd=str(folder))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=SECONDS)

    def messages(self, code: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Start a cell; what it shows until it is over."""
        request = self.client.execute(code)
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=SECONDS)
            except Empty:
                pytest.fail("the kernel is silent")
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return
            yield message["msg_type"], message["content"]

    def stop(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    started = Kernel(tmp_path)
    yield started
    started.stop()


@pytest.mark.parametrize("engine", ["inline", "local"])
def test_the_stop_button_and_the_same_cell_again(kernel: Kernel, engine: str) -> None:
    cell = LONG.replace("ENGINE", f'engine="{engine}", workers=2')
    pressed, shown, ended = False, "", ""
    for kind, content in kernel.messages(cell):
        page = content.get("data", {}).get("text/html", "")
        shown = page or shown
        if not pressed and "round 3/12" in page:
            kernel.manager.interrupt_kernel()
            pressed = True
        if kind == "error":
            ended = content["ename"]
    assert ended == "KeyboardInterrupt"
    assert "the same call goes on" in shown
    said = "".join(c.get("text", "") or str(c.get("data")) for _, c in kernel.messages(cell))
    assert "going on after round" in said
    assert "rounds: 12" in said
