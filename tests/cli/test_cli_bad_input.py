"""Mistakes on the command line: one line that names the mistake and the remedy, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import Command

from fedpurin.methods import METHODS
from tiny import tiny_config

ONE_CLASS = """
import numpy as np
def one_class():
    x, y = np.zeros((50, 1, 8, 8), np.uint8), np.zeros(50, int)
    return x, y, x, y
def broken():
    raise OSError("the disk is gone")
"""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--tau", "0"], ["method.tau", "0", "greater than 0 and at most 1"]),
        (["--tau", "1.5"], ["method.tau", "1.5", "at most 1"]),
        (["--tau", "NaN"], ["method.tau", "nan"]),
        (["--tau", "half"], ["method.tau", "'half'", "a number"]),
        (["--beta", "0"], ["method.beta", "0", "at least 1"]),
        (["--alpha", "0"], ["data.alpha", "0", "greater than 0"]),
        (["--clients", "0"], ["run.clients", "0", "at least 1"]),
        (["--rounds", "1.5"], ["run.rounds", "'1.5'", "a whole number"]),
        (["--set", "data.train_samples=6001"], ["6001 train samples", "6000", "fewer"]),
        (["--set", "data.test_samples=99999"], ["99999 test samples", "fewer"]),
        (["--method", "fedavgg"], ["'fedavgg'", *METHODS]),
        (["--engine", "mpi"], ["'mpi'", "local, ray, flower"]),
        (["--values", "int4"], ["'int4'", "bfloat16, float16, float32, int8"]),
        (["--model", "vgg"], ["'vgg'", "resnet8, resnet10, cnn, mlp"]),
        (["--set", "model.head=top"], ["'top'", "classifier"]),
        (["--preset", "papers"], ["'papers'", "quickstart"]),
        (["--dataset", "notes.txt"], ["'notes.txt'", "fashion-mnist-mini", "cifar-10"]),
        (["--dataset", "own_data_for_test:one_class"], ["one class", "two"]),
        (["--dataset", "own_data_for_test:broken"], ["own_data_for_test:broken", "the disk is gone"]),
        (["--dataset", "own_data_for_test:nothing"], ["nothing"]),
        (["--dataset", "no_such_module_here:f"], ["no_such_module_here"]),
        (["--dataset", "own"], ["data.shape", "data.classes"]),
        (
            ["--dataset", "own", "--set", "data.shape=[1, 28, 28]", "--set", "data.classes=10"],
            ['"own"', "fedpurin federation"],
        ),
        (["--dataset", "fashion-mnist", "--data-dir", "data"], ["train-images-idx3-ubyte.gz"]),
        (["--dataset", "cifar-10", "--data-dir", "data"], ["cifar-10"]),
        (["--set", "data.split_file=notes.txt"], ["notes.txt", "split"]),
        (["--set", "tau=0.5"], ["'tau=0.5'", "SECTION.KEY=VALUE"]),
        (["--set", "method.tao=0.5"], ["method.tao", "tau", "beta", "score"]),
        (["--set", "methods.tau=0.5"], ["methods", "run, data, model, train, wire, robust, method"]),
        (["notes.txt"], ["notes.txt", "TOML"]),
        (["missing.toml"], ["missing.toml"]),
        (
            ["unknown.toml"],
            [
                "train.learning_rate",
                "batch_size, epochs, loss, lr, metric, momentum, optimiser, precision, weight_decay",
            ],
        ),
        (["iid.toml", "--alpha", "0.3"], ["data.alpha does nothing with data.partition = iid"]),
        (["idle.toml"], ["data.alpha does nothing with data.partition = classes", "leave one of them out"]),
        (["--set", "data.classes_per_client=3"], ["classes_per_client", "data.partition = dirichlet"]),
        (["--set", "data.shape=[1, 8, 8]"], ["data.shape", "data.dataset = fashion-mnist-mini"]),
        (["--set", "wire.feedback=true", "--values", "float32"], ["wire.feedback", "wire.values = float32"]),
        (["--clients", "3", "--set", "data.split_file=split.json"], ["run.clients", "split.json"]),
        (["--alpha", "3", "--set", "data.split_file=split.json"], ["data.alpha", "split.json"]),
        (["--clients"], ["--clients", "--help"]),
        (["--no-such-flag"], ["--no-such-flag", "--help"]),
    ],
)
@pytest.mark.parametrize("command", ["run", "compare"])
def test_what_cannot_run_is_refused_before_anything_is_written(
    fedpurin: Command, tmp_path: Path, command: str, words: list[str], says: list[str]
) -> None:
    if command == "compare" and "--method" in words:
        words = ["--methods", words[1]]
    (tmp_path / "notes.txt").write_text("just some text\n")
    (tmp_path / "unknown.toml").write_text("[train]\nlearning_rate = 0.1\n")
    (tmp_path / "iid.toml").write_text('[data]\npartition = "iid"\n')
    (tmp_path / "idle.toml").write_text('[data]\npartition = "classes"\nalpha = 0.3\n')
    (tmp_path / "own_data_for_test.py").write_text(ONE_CLASS)
    (tmp_path / "data").mkdir()
    for name in ("train-images-idx3-ubyte.gz", "cifar-10-binary.tar.gz"):
        (tmp_path / "data" / name).write_text("a text file")
    before = set(tmp_path.iterdir())
    line = fedpurin.refuse(command, *words, "--out", "result")
    for word in says:
        assert word in line
    left = {p for p in set(tmp_path.iterdir()) - before if p.name != "__pycache__"}
    assert left == set()


@pytest.mark.parametrize("command", ["run", "compare"])
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--model", "tiny:only_two"], ["tiny:only_two", "[2, 2]", "[2, 10]"]),
        (["--set", "run.device=cuda:99"], ["'cuda:99'", "run.device = cpu"]),
        (["--tensorboard"], ["TensorBoard", "fedpurin[tensorboard]"]),
        (["--engine", "ray"], ["ray", "fedpurin[ray]"]),
        (["--engine", "flower"], ["flower-superlink", "fedpurin[flower]"]),
    ],
)
def test_what_only_training_would_show_is_tried_first(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    words: list[str],
    says: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for missing in ("ray", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))  # no command of Flower's is beside it
    line = Command(capsys).refuse(command, *words, "--out", "result")
    for word in says:
        assert word in line
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_could_not_be_written_is_refused_before_the_runs(
    fedpurin: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    line = fedpurin.refuse("compare", "--report", "file/report.html", "--out", "result")
    assert "file/report.html cannot be written" in line
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "fedpurin[report]" in fedpurin.refuse("compare", "--report", "r.html", "--out", "result")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_reproduction_that_could_not_be_written_is_refused_before_the_runs(
    fedpurin: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    words = ["reproduce", "figure-rounds", "--scale", "mini"]
    assert "file/figure-rounds cannot be written" in fedpurin.refuse(*words, "--out", "file")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "fedpurin[report]" in fedpurin.refuse(*words)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_directory_that_cannot_be_written_is_named(fedpurin: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for command in ("run", "compare"):
        assert "file/below" in fedpurin.refuse(command, "--out", "file/below")
        assert "file" in fedpurin.refuse(command, "--out", "file")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_half_written_run_directory(fedpurin: Command, tmp_path: Path) -> None:
    """The process was killed before config.toml, which comes last, was there."""
    half = tmp_path / "half"
    half.mkdir()
    (half / "environment.json").write_text("{}")
    assert "not a run directory" in fedpurin.refuse("resume", "half")
    for command in (["show"], ["ledger"], ["report", "-o", "r.html"], ["watch"]):
        assert "half" in fedpurin.refuse(command[0], "half", *command[1:])
    assert [p.name for p in half.iterdir()] == ["environment.json"]
    assert [p.name for p in tmp_path.iterdir()] == ["half"]
    (half / "notes.txt").write_text("mine")  # what no run has written stays
    assert "empty it" in fedpurin.refuse("run", "--out", "half")
    (half / "notes.txt").unlink()
    (tmp_path / "c.toml").write_text(tiny_config("fedavg", tmp_path, run__rounds=1).to_toml())
    assert fedpurin("run", "c.toml", "--out", "half").code == 0  # it can be started again


@pytest.mark.parametrize("content", ["", "[run", "[run]\nclients = 0\n", "[unknown]\n"])
def test_a_run_whose_configuration_is_damaged(fedpurin: Command, tmp_path: Path, content: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text(content)
    if content:
        fedpurin.refuse("resume", "run")
    fedpurin.refuse("show", "run")
    fedpurin.refuse("ledger", "run")


@pytest.mark.parametrize("command", ["resume", "show", "ledger", "watch", "report"])
@pytest.mark.parametrize("what", ["nothing", "file", "folder"])
def test_what_is_no_run_is_not_read_as_one(
    fedpurin: Command, tmp_path: Path, command: str, what: str
) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    assert what in fedpurin.refuse(command, what)
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_complete_run_is_neither_resumed_nor_overwritten(fedpurin: Command, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(tiny_config("fedavg", tmp_path, run__rounds=1).to_toml())
    assert fedpurin("run", "c.toml", "--out", "done").code == 0
    assert "complete; show it with: fedpurin show done" in fedpurin.refuse("resume", "done")
    assert "fedpurin resume done" in fedpurin.refuse("run", "c.toml", "--out", "done")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--methods", "fedavg,fedavgg"], "'fedavgg'"),
        (["--methods", ""], "choose one of"),
        (["--seeds", "1,x"], "'1,x'"),
        (["--seeds", "-1"], "run.seed = -1"),
    ],
)
def test_a_comparison_checks_all_its_runs_first(
    fedpurin: Command, tmp_path: Path, words: list[str], says: str
) -> None:
    assert says in fedpurin.refuse("compare", *words, "--out", "result")
    assert list(tmp_path.iterdir()) == []


def test_a_comparison_does_not_mix_with_another(fedpurin: Command, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(tiny_config("fedavg", tmp_path, run__rounds=1).to_toml())
    assert fedpurin("compare", "c.toml", "--methods", "fedavg", "--out", "both").code == 0
    assert "another comparison" in fedpurin.refuse(
        "compare", "c.toml", "--methods", "separate,fedavg", "--out", "both"
    )
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    assert "not empty" in fedpurin.refuse("compare", "c.toml", "--out", "full")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff", "not valid JSON"),
        (b"[]", "not a list"),
        (b"{}", "it has no configs"),
        (b'{"configs": [], "seeds": [1]}', "it.configs is [], not a table"),
        (b'{"configs": {"a": 5}, "seeds": [1]}', "it.configs.a is 5, not a table"),
        (b'{"configs": {"a": {"run": 5}}, "seeds": [1]}', "it.configs.a.run is 5, not a table"),
        (b'{"configs": {"a": {"run": {"method": "a"}}}, "seeds": [1]}', "run.method = 'a' is unknown"),
        (b'{"configs": {"a": {}}, "seeds": 5}', "it.seeds is 5, not a list"),
        (b'{"configs": {"a": {}}, "seeds": ["../../up"]}', "it.seeds[0] is '../../up', not a whole number"),
        (b'{"configs": {"a": {}}, "seeds": []}', "names no runs"),
        (b'{"configs": {"a": {}, "../../up": {}}, "seeds": [1]}', "no method has the name '../../up'"),
    ],
)
def test_a_comparison_that_is_damaged_is_named_and_nothing_is_written(
    fedpurin: Command, tmp_path: Path, content: bytes, says: str
) -> None:
    (tmp_path / "deep" / "both").mkdir(parents=True)
    (tmp_path / "deep" / "both" / "compare.json").write_bytes(content)
    line = fedpurin.refuse("resume", "deep/both")
    assert "deep/both/compare.json" in line
    assert says in line
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["both", "compare.json", "deep"]


def test_a_pipe_in_the_place_of_a_comparison_is_not_waited_for(fedpurin: Command, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(tiny_config("fedavg", tmp_path, run__rounds=1).to_toml())
    (tmp_path / "both").mkdir()
    os.mkfifo(tmp_path / "both" / "compare.json")
    words = ["compare", "c.toml", "--methods", "fedavg", "--out", "both"]
    assert "compare.json: it is a pipe" in fedpurin.refuse(*words)
    assert "both" in fedpurin.refuse("resume", "both")


def test_all_clients_diverging_is_one_line(fedpurin: Command, tmp_path: Path) -> None:
    settings = {"model__name": "tiny:plain_model", "train__epochs": 3, "train__lr": 1e30}
    (tmp_path / "c.toml").write_text(tiny_config("fedavg", tmp_path, **settings).to_toml())
    assert "lower train.lr" in fedpurin.refuse("run", "c.toml", "--out", "run")
    assert not (tmp_path / "run").exists()  # there is nothing in it to continue


def test_no_command_shows_the_help(fedpurin: Command) -> None:
    answer = fedpurin()
    assert answer.code == 0
    assert "COMMAND" in answer.out


def test_an_unknown_command_lists_the_known_ones(fedpurin: Command) -> None:
    line = fedpurin.refuse("runn")
    assert "'runn'" in line
    assert "compare" in line


def test_an_output_that_is_full_ends_in_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "fedpurin", "methods"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert ended.returncode == 1
    assert ended.stderr == "fedpurin: error: the output cannot be written: No space left on device\n"
