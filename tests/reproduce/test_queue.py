"""The queue: order, resuming, stopping, one at a time, documents and commits."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from reproduce_tools import Reproduce, make_line

from fedpurin.errors import ConfigError, EngineError, RunError
from fedpurin.reproduce import queue as queues
from fedpurin.reproduce.execute import Means, Step, Stopped
from fedpurin.reproduce.queue import Queue
from fedpurin.reproduce.result_store import ResultStore
from fedpurin.reproduce.scales import Request

CHECKOUT = Path(__file__).resolve().parents[2]
QUEUE = """
[[cell]]
name = "groups"
question = "do groups help at all?"
method = "fedpurin"
rounds = 60
set = ["method.beta=1"]

[[cell]]
name = "later"
method = "fedpurin"
set = ["method.not_yet=3"]

[[cell]]
name = "seeds"
method = "fedbn"
rounds = 60
seeds = [1, 2]
"""


@pytest.fixture
def queue(experiments: Path) -> Path:
    (experiments / "queue.toml").write_text(QUEUE)
    return experiments


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cells that would have been run, in order; each is stored as finished at once."""
    done: list[str] = []

    def pretend(step: Step, store: ResultStore, means: Means, extras: Any) -> None:
        done.append(f"{step.cell.label} s{step.cell.config.run.seed}")
        store.append("runs", make_line(step.cell.config))

    monkeypatch.setattr(queues, "carry_out", pretend)
    monkeypatch.setattr(queues.os, "nice", lambda _: 0)
    return done


def test_cells_are_run_in_the_order_of_the_file(queue: Path, reproduce: Reproduce, ran: list[str]) -> None:
    assert reproduce("queue")[0] == 0
    assert ran == ["groups s1", "seeds s1", "seeds s2"]


def test_what_the_store_has_is_not_run_again(queue: Path, reproduce: Reproduce, ran: list[str]) -> None:
    reproduce("queue")
    ran.clear()
    _, text = reproduce("queue")
    assert ran == []
    assert "0 to run" in text


def test_a_cell_whose_models_were_never_checked_is_run_again_for_them(
    queue: Path, reproduce: Reproduce, ran: list[str]
) -> None:
    (queue / "queue.toml").write_text(
        '[[cell]]\nname = "norms"\nmethod = "fedavg"\nrounds = 12\nnorms = true\n'
    )
    config = Request(scale="paper", rounds=12).config("cifar-10", 0.5, 1, "fedavg")
    store = ResultStore(queue / "results")
    store.append("runs", make_line(config))
    reproduce("queue")
    assert ran == ["norms s1"]
    accuracy = {"merged": [5000] * 20, "settled": [6000] * 20}
    store.append("norms", {"key": "", "config": config.as_dict(), "accuracy": accuracy})
    ran.clear()
    reproduce("queue")
    assert ran == []


def test_a_dry_run_shows_cells_questions_and_what_waits(
    queue: Path, reproduce: Reproduce, ran: list[str]
) -> None:
    _, text = reproduce("queue", "--dry-run")
    assert "groups: fedpurin-cifar-10-a0.5-s1-t60-" in text
    assert "do groups help at all?" in text
    assert "later: waits: unknown setting method.not_yet" in text
    assert "3 to run" in text
    assert ran == []


def test_no_cell_starts_when_the_time_is_up(queue: Path, reproduce: Reproduce, ran: list[str]) -> None:
    _, text = reproduce("queue", "--minutes", "0")
    assert "the time is up" in text
    assert ran == []


def test_a_second_queue_on_the_same_store_is_refused(
    queue: Path, reproduce: Reproduce, ran: list[str]
) -> None:
    (queue / "results").mkdir()
    with FileLock(queue / "results" / "queue.lock"), pytest.raises(RunError, match="another queue works on"):
        reproduce("queue")
    assert ran == []
    reproduce("queue")
    assert len(ran) == 3


def test_a_cell_that_fails_does_not_keep_the_others_waiting(
    queue: Path, reproduce: Reproduce, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend = queues.carry_out

    def fail_first(step: Step, store: ResultStore, means: Means, extras: Any) -> None:
        if step.cell.label == "groups":
            raise EngineError("the workers died")
        pretend(step, store, means, extras)

    monkeypatch.setattr(queues, "carry_out", fail_first)
    _, text = reproduce("queue")
    assert "groups failed: the workers died" in text
    assert ran == ["seeds s1", "seeds s2"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, Stopped])
def test_an_interrupted_cell_is_stored_as_far_as_it_came(
    queue: Path,
    reproduce: Reproduce,
    ran: list[str],
    monkeypatch: pytest.MonkeyPatch,
    stop: type[BaseException],
) -> None:
    stored: list[bool] = []

    def interrupt(*_: Any) -> None:
        raise stop

    def store_partial(store: ResultStore, path: Path, *, partial: bool) -> str:
        stored.append(partial)
        return "its key"

    class Half:
        rounds = 7

    monkeypatch.setattr(queues, "carry_out", interrupt)
    monkeypatch.setattr(queues, "is_run", lambda path: True)
    monkeypatch.setattr(queues, "load_run", lambda path: Half())
    monkeypatch.setattr(queues, "add_run", store_partial)
    code, text = reproduce("queue")
    assert code == 0
    assert stored == [True]  # and the cells after it did not start
    assert "its key: stored as far as it came" in text


def test_documents_are_made_anew_from_what_was_stored(
    queue: Path, reproduce: Reproduce, ran: list[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- reproduce inventory -->\n<!-- end -->\n")
    (queue / "queue.toml").write_text(f'{QUEUE}\n[documents]\nfiles = ["page.md"]\n')
    reproduce("queue")
    assert "fedbn, fedpurin | 1, 2" in page.read_text()


def test_results_and_documents_are_committed_and_nothing_else(
    queue: Path, reproduce: Reproduce, ran: list[str], tmp_path: Path
) -> None:
    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("config", "user.name", "a")
    git("config", "user.email", "a@b")
    (tmp_path / "page.md").write_text("<!-- reproduce inventory -->\n<!-- end -->\n")
    (queue / "queue.toml").write_text(f'{QUEUE}\n[documents]\nfiles = ["page.md"]\n')
    (tmp_path / ".gitignore").write_text("*.lock\n.lock\n")
    git("add", "-A")
    git("commit", "-qm", "start")
    (tmp_path / "mine.txt").write_text("not finished")
    reproduce("queue")
    assert "committed: Results of the queue: 3 runs" in reproduce("queue", "--commit")[1]
    changed = git("show", "--name-only", "--format=", "HEAD").split()
    assert sorted(changed) == ["experiments/results/runs.jsonl", "page.md"]
    assert "fedpurin-cifar-10-a0.5-s1-t60-" in git("log", "-1", "--format=%b")
    assert "nothing new to commit" in reproduce("queue", "--commit")[1]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[[cell]]\nname = "a"\nmethod = "fedavg"\nround = 3', "unknown round; it accepts"),
        ('[[cell]]\nmethod = "fedavg"', "cell 1: it has no name"),
        ("[[cell]]\nname = 3 4", "is not valid TOML"),
        ("[documents]\nfile = 3", "unknown file; it accepts"),
        ("documents = 3", "documents.: it is 3, not a table"),
        ("[documents]\nfiles = 3", "it.files is 3, not a list"),
        ("[documents]\nfigures = ['figure-bars \"']", "is no command line"),
        ("cell = 3", r"should be written as \[\[cell\]\]"),
        ("cell = [3]", "cell 1: it is 3, not a table"),
        ('[[cell]]\nname = "a"\nmethod = "fedavg"\nseeds = 5', "it.seeds is 5, not a list"),
        ('[[cell]]\nname = "a"\nmethod = "fedavg"\nalpha = "x"', "it.alpha is 'x', not a number"),
        ('[[cell]]\nname = "a"\nmethod = "fedavg"\nset = [1]', r"it.set\[0\] is 1, not a text"),
        ('[[cell]]\nname = "a"\nmethod = "fedavg"\nrounds = 0', "it.rounds is 0, not a whole number from 1"),
    ],
)
def test_a_queue_that_cannot_be_understood_is_refused(experiments: Path, text: str, complaint: str) -> None:
    (experiments / "queue.toml").write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        Queue.load(experiments)


def test_a_figure_that_there_is_not_is_refused_before_anything_is_run(
    queue: Path, reproduce: Reproduce, ran: list[str]
) -> None:
    (queue / "queue.toml").write_text(f'{QUEUE}\n[documents]\nfigures = ["figure-nonsense"]\n')
    with pytest.raises(ConfigError, match="reproduce figure-nonsense: argument WHAT: invalid choice"):
        reproduce("queue")
    assert ran == []


def test_a_missing_queue_names_the_remedy(experiments: Path) -> None:
    with pytest.raises(ConfigError, match=r"write it .*--experiments DIR"):
        Queue.load(experiments)


def test_the_committed_queue_can_be_read_and_begins_with_the_question_of_groups() -> None:
    queue = Queue.load(CHECKOUT / "experiments")
    assert queue.wanted[0].name == "a-beta-1"
    names = [wanted.name for wanted in queue.wanted]
    assert len(set(names)) == len(names)
    for file in queue.files:
        assert file.is_file()
