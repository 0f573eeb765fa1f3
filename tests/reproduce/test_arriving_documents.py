"""What the queue still wants arrives in the real store: every block of the documents is made, and says so."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from reproduce_tools import make_line

from fedpurin.config import Config
from fedpurin.reproduce import actions
from fedpurin.reproduce.docs import BLOCK, renewed
from fedpurin.reproduce.queue import Queue
from fedpurin.reproduce.result_store import ResultStore
from fedpurin.runs.same_setting import cell_key

CHECKOUT = Path(__file__).parents[2]
EXPERIMENTS = CHECKOUT / "experiments"

pytestmark = pytest.mark.skipif(not EXPERIMENTS.is_dir(), reason="needs a checkout")


def arrived(store: ResultStore, config: Config) -> dict[str, Any]:
    """A finished run of this setting over the clients that the store's runs of its seed have."""
    like = [r for r in store.records() if r.config.data == config.data and r.config.run.clients == 20]
    splits = [r.split for r in like if r.seeds["split"] == config.run.seed]
    line = make_line(config, 0.7, split=splits[0] if splits else None, noise=0.05)
    sizes = [r.line for r in like if r.config.run.method == config.run.method] or [store.records()[0].line]
    return line | {name: sizes[-1][name] for name in ("parameters", "exchanged")}


def blocks(file: Path, experiments: Path) -> dict[str, str]:
    """Each block's words with what it now says."""
    text = renewed(file.read_text("utf-8"), lambda words: actions.block(words, str(experiments)), file.parent)
    return {match["words"]: match["body"] for match in BLOCK.finditer(text) if match["kind"] == "reproduce"}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experiments with every cell of the queue run to its end, and counts with delta scores."""
    folder = tmp_path_factory.mktemp("arrived") / "experiments"
    shutil.copytree(EXPERIMENTS, folder, ignore=shutil.ignore_patterns("*.lock"))
    store = ResultStore(folder / "results")
    for wanted in Queue.load(EXPERIMENTS).wanted:
        for cell in wanted.cells:
            if not store.finished(cell.config):
                store.append("runs", arrived(store, cell.config))
    counted = json.loads(json.dumps(store.lines("coverage")[-1]))
    counted["config"]["method"]["score"] = "delta"
    counted["key"] = cell_key(counted["config"])
    store.append("coverage", counted)
    return folder


@pytest.fixture(scope="module")
def said(filled: Path) -> dict[str, str]:
    """The blocks of docs/reproduction.md."""
    return blocks(CHECKOUT / "docs" / "reproduction.md", filled)


def bullet(text: str, words: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"- {words}"))


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"| {name}"))


SIXTY = "--scale paper --dataset cifar-10 --alpha 0.5 --rounds 60"


def test_the_page_follows_what_arrives(said: dict[str, str]) -> None:
    assert all(said.values())

    first = said["findings-headlines"]
    accuracy = bullet(first, "**Accuracy.**")
    assert "FedPer (" in accuracy
    assert "of 3 splits" in accuracy.partition("FedCAC (")[2].partition(")")[0]  # no longer one split
    assert "CIFAR-10, α = 0.5, 20 clients, T = 60, seed 1" in bullet(first, "**The score.**")

    assert "FedPer" in said["findings-curves"]
    assert "‡" not in row(said[f"table-accuracy {SIXTY}"], "FedCAC")
    assert bullet(said["findings-longer"], "pFedSD's best round").endswith("the paper: 71.10 %.")

    scores = bullet(said["findings-score"], "CIFAR-10, α = 0.5, 20 clients")
    for name in ("delta", "magnitude", "random"):
        assert f"{name} " in scores
        table = said["table-controls --scale paper --dataset cifar-10 --alpha 0.5 --seeds 1 --rounds 60"]
        assert " - |" not in row(table, name)

    full = said["findings-full"]
    assert "up to round 200" in bullet(full, "FedPURIN − FedBN")
    assert "up to round 200" in bullet(full, "FedPURIN − Separate")
    assert "†" not in said["table-accuracy --scale paper --dataset cifar-10 --alpha 0.1"]

    norms = said["figure-bn --scale paper --dataset cifar-10 --alpha 1 --rounds 60"]
    assert re.search(r" \d\d\.\d\d |\*\d\d\.\d\d\*", row(norms, "without BN"))
    fashion = "table-communication --scale paper --dataset fashion-mnist --alpha 0.1 --seeds 1 --rounds 60"
    assert "Fashion-MNIST α=0.1: FedPURIN" in said[f"{fashion} --method fedpurin"]

    assert "coverage-cifar-10-a0.5-delta-ridge.png" in said["findings-coverage"]


def test_claims_show_what_arrives_and_stay_undecided(said: dict[str, str]) -> None:
    claims = said["claims"]
    assert "CIFAR-10 α=0.5, round 60, 3 seeds" in row(claims, "FedPURIN above FedCAC")
    assert "CIFAR-10 α=0.1, round 200, 1 seed" in row(claims, "FedPURIN above FedBN")
    norm = row(claims, "Batch norm is better kept at home")
    assert re.search(r"without minus sent whole: CIFAR-10 α=1: [+-]\d", norm)
    assert "without minus selected: Fashion-MNIST mini" in norm  # which the queue does not want
    assert row(claims, "Exact gradients beat delta").endswith("T = 60, seed 1 |")
    assert "delta score" in row(claims, "Selection is uniform")
    assert "T = 60" in row(claims, "Uplink / downlink reduced by at least")
    undecided = [line for line in claims.splitlines() if "**undecided**" in line]
    assert len(undecided) == 14  # a run here and there decides none of them


def test_the_other_documents_of_the_queue_follow_as_well(filled: Path) -> None:
    """README's sentences; and none of the blocks fails."""
    files = [file for file in Queue.load(EXPERIMENTS).files if file.name != "reproduction.md"]
    told = {file.name: blocks(file, filled) for file in files}
    assert all(body for page in told.values() for body in page.values())
    summary = told["README.md"]["findings-summary"]
    assert "FedPURIN − FedCAC**, points up to round 60, 3 seeds" in summary
    assert re.search(r"FedPer \d\d\.\d\d \(66\.75; seed 1\)", summary)  # 66.75: the paper's
