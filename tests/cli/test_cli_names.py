"""Names are printed as they are, whatever brackets, colons or other signs of markup are in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_tools import Command

import fedpurin as package
from fedpurin.tuning import search
from fedpurin.tuning.candidates import Candidate
from tiny import tiny_config

FOLDER = "m[bold][/x] :bug:"  # one folder in another: there is a slash in it


@pytest.fixture
def inside(fedpurin: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Commands that start in a folder of this name, with a configuration c.toml."""
    folder = tmp_path / FOLDER
    folder.mkdir(parents=True)
    config = tiny_config("fedavg", tmp_path, run__rounds=2, data__validation=0.3)
    (folder / "c.toml").write_text(config.to_toml())
    listed = [Candidate("1-fedavg", "FedAvg [/b]", config), Candidate("2-again", "FedAvg", config)]
    monkeypatch.setattr(search, "candidates", lambda _: (listed, ["a [/reason]"]))
    monkeypatch.chdir(folder)
    return fedpurin


def test_every_command_prints_names_with_brackets_as_they_are(inside: Command) -> None:
    run, both, found = f"run {FOLDER}", f"both {FOLDER}", f"found {FOLDER}"
    for words, says in {
        ("run", "c.toml", "--out", run): f"The run is in {run}\n",
        ("show", run): "FedAvg",
        ("ledger", run): f"Bytes of {run}, in MiB",
        ("ledger", run, "--csv", f"{run}.csv"): f"is in {run}.csv\n",
        ("watch", run): f"Complete: {run}\n",
        ("report", run, "-o", f"{run}.html"): f"The report is in {run}.html\n",
        ("figure", "accuracy", run, "-o", f"{run}.svg"): f"The figure is in {run}.svg\n",
        ("compare", "c.toml", "--methods", "fedavg", "--out", both): f"The runs are in {both}\n",
        ("tune", "c.toml", "--minutes", "1", "--out", found): f"fedpurin run '{found}/recommended.toml'\n",
        ("init", f"new {FOLDER}"): f"wrote new {FOLDER}/config.toml:",
        ("data", "list", "--data-dir", FOLDER): f"data directory: {FOLDER}\n",
    }.items():
        answer = inside(*words)
        assert answer.code == 0, answer.error
        assert says in answer.out, words
        assert "Traceback" not in answer.error


def test_ctrl_c_names_a_folder_with_brackets_as_it_is(
    inside: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedpurin.progress import RunProgress

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RunProgress, "client_done", interrupt)
    answer = inside("run", "c.toml", "--out", FOLDER)
    assert answer.code == 130
    assert f"Continue with: fedpurin resume '{FOLDER}'\n" in answer.out


def test_what_a_foreign_run_says_of_itself_is_no_markup(inside: Command) -> None:
    assert inside("run", "c.toml", "--out", "run").code == 0
    Path("run/result.json").unlink()
    config = Path("run/config.toml")
    config.write_text(config.read_text().replace('method = "fedavg"', 'method = "[/m]:x"'))
    answer = inside("show", "run")
    assert answer.code == 0, answer.error


def test_consoles_and_columns_of_text_are_made_in_one_place() -> None:
    """rich reads markup unless it is told not to; the one place tells it."""
    sources = Path(package.__file__).parent
    made = re.compile(r"(?<![\w.])(rich\.console\.)?Console\(|(?<!\w)TextColumn\(|from_markup|rich\.print")
    found = {
        str(file.relative_to(sources)) for file in sources.rglob("*.py") if made.search(file.read_text())
    }
    assert found == {"console.py", "federation/printing.py"}, "printing.py has a protocol of that name"
