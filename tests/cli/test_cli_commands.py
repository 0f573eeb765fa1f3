"""What commands do and print; where settings come from; what help says and costs."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from cli_tools import Command

import fedpurin as package
from fedpurin.cli.common import FLAGS, add_config_flags, read_config
from fedpurin.cli.main import build_parser
from fedpurin.config import Config
from fedpurin.methods import METHODS
from tiny import tiny_config


def subcommands(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if words:
        yield words
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from subcommands(child, (*words, name))


COMMANDS = list(subcommands(build_parser()))


def test_the_names_that_stay_are_there() -> None:
    names = {" ".join(words) for words in COMMANDS}
    assert names >= {
        "run", "compare", "resume", "show", "ledger", "report", "data", "data list", "data get", "data check",
        "federation", "federation up", "federation keys", "federation server", "federation client", "watch",
    }  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example_that_parses(
    fedpurin: Command, words: tuple[str, ...]
) -> None:
    answer = fedpurin(*words, "--help")
    assert answer.code == 0
    found = re.search(r"(?i)examples?:\s+fedpurin (.+)", answer.out)
    assert found, answer.out
    example = re.split(r"\s{2,}", found[1])[0].split()  # what follows a wide gap explains it
    assert tuple(example[:1]) == words[:1]
    build_parser().parse_args(example)


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["show", "--help"], ["--version"]])
def test_help_is_quick_because_it_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys\nfrom fedpurin.cli import main\n"
        f"try: main({words!r})\nexcept SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'numpy', 'flwr', 'ray', 'plotly', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_version(fedpurin: Command) -> None:
    assert fedpurin("--version").out == f"fedpurin {package.__version__}\n"


def test_the_package_exports_exactly_these_names() -> None:
    assert set(package.__all__) == {
        "METHODS", "Clients", "Comparison", "Config", "Dataset", "FedpurinError", "Method", "Run",
        "RunResult", "Split", "clients", "compare", "load", "make_split", "resume", "run", "tune",
    }  # fmt: skip
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        package.nonsense  # noqa: B018


def test_importing_the_package_costs_nothing() -> None:
    code = "import sys, fedpurin; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


# Where settings come from


def parsed(*words: str) -> Config:
    parser = argparse.ArgumentParser()
    add_config_flags(parser)
    return read_config(parser.parse_args(words))


def test_flags_win_over_the_file_which_wins_over_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[run]\nclients = 7\nrounds = 8\n[train]\nlr = 0.5\n")
    config = parsed(str(file), "--preset", "paper-cifar10", "--rounds", "9")
    assert config.run.rounds == 9  # flag over file (8) and preset (200)
    assert config.run.clients == 7  # file over preset (20)
    assert config.train.lr == 0.5  # file over preset (0.1)
    assert config.train.batch_size == 100  # preset over the default (50)
    assert config.run.seed == 1  # default


def test_the_preset_of_a_flag_wins_over_the_preset_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('preset = "paper-cifar100"\n[run]\nclients = 3\n')
    assert parsed(str(file)).model.name == "resnet10"
    config = parsed(str(file), "--preset", "paper-cifar10")
    assert (config.model.name, config.run.clients) == ("resnet8", 3)


def test_without_anything_it_is_the_quickstart() -> None:
    assert parsed() == Config.preset("quickstart")


def test_every_flag_reaches_its_setting() -> None:
    given = {
        "method": "fedcac", "dataset": "cifar-10", "alpha": "0.7", "clients": "3", "rounds": "4", "seed": "5",
        "workers": "2", "engine": "ray", "values": "int8", "data-dir": "somewhere", "model": "mlp",
        "tau": "0.3", "beta": "2", "participation": "0.5", "device": "auto", "precision": "bfloat16",
    }  # fmt: skip
    assert given.keys() == FLAGS.keys()
    config = parsed(*(word for flag, value in given.items() for word in (f"--{flag}", value)))
    for flag, value in given.items():
        section, key = FLAGS[flag].split(".")
        assert str(getattr(getattr(config, section), key)) == value


def test_set_reaches_everything_else_and_is_a_flag() -> None:
    config = parsed("--tau", "0.3", "--set", "method.hessian=true", "--set", "train.lr=0.01")
    assert (config.method.tau, config.method.hessian, config.train.lr) == (0.3, True, 0.01)


# Runs


@pytest.fixture
def config_file(tmp_path: Path) -> str:
    file = tmp_path / "c.toml"
    file.write_text(tiny_config("fedpurin", tmp_path, run__rounds=2).to_toml())
    return str(file)


def test_run_says_how_it_goes_and_where_the_result_is(
    fedpurin: Command, config_file: str, tmp_path: Path
) -> None:
    answer = fedpurin("run", config_file, "--out", "here")
    assert answer.code == 0, answer.error
    for t in (1, 2):
        assert re.search(rf"FedPURIN\s+round\s+{t}/2, accuracy +[\d.]+ %, [\d.]+ KiB up", answer.out)
    assert "The run is in here" in answer.out
    again = fedpurin("show", "here")
    assert again.code == 0
    table = [line for line in again.out.splitlines() if "FedPURIN" in line]
    assert table
    assert table[0] in answer.out, "show prints the same table"
    result = json.loads((tmp_path / "here" / "result.json").read_text())
    assert f"{100 * result['accuracy']['merged']['last']:.1f}" in table[0]


def test_a_run_without_out_gets_a_folder_of_its_own(
    fedpurin: Command, config_file: str, tmp_path: Path
) -> None:
    for _ in range(2):
        assert fedpurin("run", config_file).code == 0
    names = sorted(p.name for p in (tmp_path / "runs").iterdir())
    # the split is a file, so alpha does nothing and is not named
    assert names == ["fedpurin-tiny-four-s1", "fedpurin-tiny-four-s1-2"]


def test_a_client_left_out_is_reported(fedpurin: Command, tmp_path: Path) -> None:
    settings = {"model__name": "tiny:plain_model", "train__epochs": 3, "run__rounds": 1}
    config = tiny_config("fedpurin", tmp_path, dataset="tiny:four_exploding", **settings)
    (tmp_path / "c.toml").write_text(config.to_toml())
    answer = fedpurin("run", "c.toml", "--out", "run")
    assert answer.code == 0
    assert "round 1: client 3 left out: client 3 diverged" in answer.out


def test_compare_runs_methods_and_seeds_and_goes_on_where_it_stopped(
    fedpurin: Command, config_file: str, tmp_path: Path
) -> None:
    words = ["compare", config_file, "--methods", "fedpurin,separate", "--seeds", "1,2", "--out", "both"]
    answer = fedpurin(*words)
    assert answer.code == 0, answer.error
    folders = ["fedpurin-s1", "fedpurin-s2", "separate-s1", "separate-s2"]
    assert sorted(p.name for p in (tmp_path / "both").iterdir() if p.is_dir()) == folders
    assert "2 seeds" in answer.out
    assert "±" in answer.out
    digests = {f: json.loads((tmp_path / "both" / f / "result.json").read_text())["digest"] for f in folders}
    assert len(set(digests.values())) == 4
    (tmp_path / "both" / "separate-s2" / "result.json").unlink()  # as if it had been stopped there
    resumed = fedpurin("resume", "both")
    assert resumed.code == 0, resumed.error
    assert "Separate s2: going on after round 2" in resumed.out
    assert (
        json.loads((tmp_path / "both" / "separate-s2" / "result.json").read_text())["digest"]
        == digests["separate-s2"]
    )


def test_ctrl_c_says_how_to_go_on(
    fedpurin: Command, config_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedpurin.progress import RunProgress

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunProgress, "client_done", interrupt)
        for words in (["run", config_file, "--out", "r"], ["compare", config_file, "--out", "c"]):
            answer = fedpurin(*words)
            assert answer.code == 130
            assert f"fedpurin resume {words[-1]}" in answer.out
    assert fedpurin("resume", "r").code == 0
    assert fedpurin("resume", "c").code == 0


def test_ledger_prints_and_saves_what_was_sent(fedpurin: Command, config_file: str, tmp_path: Path) -> None:
    fedpurin("run", config_file, "--out", "run")
    answer = fedpurin("ledger", "run", "--csv", "l.csv", "--json", "l.json")
    assert answer.code == 0
    assert "up" in answer.out
    lines = (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()
    assert len((tmp_path / "l.csv").read_text().splitlines()) == len(lines) + 1
    assert json.loads((tmp_path / "l.json").read_text())["exchanged"] == 123
    fedpurin("run", config_file, "--method", "separate", "--out", "silent")
    assert "nothing was sent" in fedpurin("ledger", "silent").out


def test_data_list_and_check(fedpurin: Command, tmp_path: Path) -> None:
    answer = fedpurin("data", "list", "--data-dir", str(tmp_path))
    assert answer.code == 0
    assert re.search(r"fashion-mnist-mini\s+bundled", answer.out)
    assert "fedpurin data get cifar-10" in answer.out
    assert fedpurin("data", "check", "cifar-10", "--data-dir", str(tmp_path)).code == 1
    assert "nonsense" in fedpurin.refuse("data", "check", "nonsense")


def test_methods_are_listed_with_their_settings(fedpurin: Command) -> None:
    shown = fedpurin("methods").out
    for name, kind in METHODS.items():
        assert name in shown
        assert all(f"method.{f.name}" in shown for f in fields(kind))
    alone = fedpurin("methods", "fedcac").out
    assert "method.beta" in alone
    assert "pfedsd" not in alone


def test_a_comparison_passes_a_setting_to_the_methods_that_have_it(fedpurin: Command, tmp_path: Path) -> None:
    few = ("--rounds", "1", "--clients", "2", "--set", "data.train_samples=20", "--set", "train.epochs=1")
    answer = fedpurin("compare", "--methods", "fedpurin,fedavg", "--tau", "0.2", *few, "--out", "both")
    assert answer.code == 0
    assert Config.from_toml(tmp_path / "both" / "fedpurin-s1" / "config.toml").method.tau == 0.2
    line = fedpurin.refuse("compare", "--methods", "fedavg,separate", "--tau", "0.2", "--out", "none")
    assert "method.tau" in line
    line = fedpurin.refuse("run", "--method", "separate", "--tau", "0.2")
    assert "setting method.tau; separate has no settings" in line


def test_a_run_whose_output_nobody_reads_says_how_to_go_on() -> None:
    """As in `fedpurin run | head -1`."""
    script = (
        "from pathlib import Path\nfrom rich.console import Console\n"
        "from fedpurin.cli.progress import watching\nconsole = Console()\n"
        "with watching(console, Path('runs/a'), tensorboard=False):\n"
        "    for _ in range(10_000):\n        console.print('round')\n"
    )
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=100
        )
    assert done.returncode == 1
    assert "Continue with: fedpurin resume runs/a" in done.stderr
    assert "Traceback" not in done.stderr
