"""A search: continued runs, the budget, the recommended configuration, interruption."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedpurin
from fedpurin.cli import main
from fedpurin.config import Config
from fedpurin.errors import ConfigError, EngineError, RunError
from fedpurin.report.charts import front as chart
from fedpurin.report.figures import as_groups
from fedpurin.runs.directory import stored_config
from fedpurin.runs.run import MIB, load_run
from fedpurin.tuning import search
from fedpurin.tuning.candidates import Candidate
from fedpurin.tuning.outcome import SearchOutcome, recommended_toml
from fedpurin.tuning.trial import SearchWatcher, Trial
from tiny import tiny_config

ROUNDS = 12
METHODS = ("separate", "fedfrugal", "fedpurin", "fedbn", "fedavg", "fedper", "fedcac")


def seven(config: Config) -> tuple[list[Candidate], list[str]]:
    """In place of some forty."""
    configs = [config.updated({"run": {"method": name}}) for name in METHODS]
    return [Candidate(f"{i}-{c.run.method}", c.method.label, c) for i, c in enumerate(configs)], []


@pytest.fixture(autouse=True, scope="module")
def few_candidates() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "candidates", seven)
        yield


def base(folder: Path, **settings: Any) -> Config:
    settings = {"run__rounds": ROUNDS, "run__engine": "inline", "data__validation": 0.3, **settings}
    return tiny_config("fedpurin", folder, **settings)


class Count(SearchWatcher):
    def __init__(self, stop_at: int = 0) -> None:
        self.rungs: list[tuple[int, int]] = []
        self.begun: list[str] = []
        self.stop_at = stop_at

    def rung_begun(self, rung: int, of: int, rounds: int, trials: int) -> None:
        self.rungs.append((rounds, trials))

    def trial_begun(self, trial: Trial, place: int, of: int) -> None:
        self.begun.append(trial.candidate.name)

    def client_done(self, trial: Trial, t: int, until: int, done: int, total: int) -> None:
        if self.stop_at and len(self.begun) == self.stop_at and done == 2:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SearchOutcome, Count]:
    """A search whose budget is enough for five rounds of FedAvg, or four."""
    folder, count = tmp_path_factory.mktemp("search"), Count()
    outcome = fedpurin.tune(base(folder), folder / "out", budget_mib=0.006, watcher=count)
    return folder / "out", outcome, count


def test_a_third_goes_on_from_rung_to_rung_and_runs_are_continued(
    searched: tuple[Path, SearchOutcome, Count],
) -> None:
    folder, outcome, count = searched
    assert count.rungs == [(2, 7), (4, 3), (12, 2)]
    assert len(outcome.finalists) == 2
    journal = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    assert len(journal) == 7 + 3 + 2
    for line in journal:
        assert line["rounds"] <= line["until"]
    complete = [run for run in (folder / "runs").iterdir() if (run / "result.json").exists()]
    assert len(complete) == 2  # the finalists
    for run in (folder / "runs").iterdir():
        assert not list((run / "checkpoints").iterdir())  # large, and of no more use


def test_the_recommended_configuration_holds_its_promise_to_the_byte(
    searched: tuple[Path, SearchOutcome, Count], tmp_path: Path
) -> None:
    _, outcome, _ = searched
    (tmp_path / "recommended.toml").write_text(recommended_toml(outcome))
    again = fedpurin.run(Config.from_toml(tmp_path / "recommended.toml"), tmp_path / "again")
    first = load_run(outcome.recommended.trial.path)
    assert again.summary["digest"] == first.summary["digest"]
    sent = float(again.ledger.total_m.sum()) / MIB / again.clients
    assert sent == pytest.approx(outcome.recommended.standing.mib)
    assert sent <= 0.006


def test_no_run_sends_more_than_the_budget_except_to_learn_what_a_round_costs(
    searched: tuple[Path, SearchOutcome, Count],
) -> None:
    _, outcome, _ = searched
    for row in outcome.rows:
        run = load_run(row.trial.path)
        sent = float(run.ledger.total_m.sum()) / MIB / run.clients
        assert sent <= 0.006 or run.rounds == 2
        if row.standing.fits and row.trial.candidate.config.run.method == "fedavg":
            assert row.standing.planned < ROUNDS  # as many rounds as the budget pays


def test_the_recommended_one_is_the_most_accurate_finalist_on_validation_samples(
    searched: tuple[Path, SearchOutcome, Count],
) -> None:
    _, outcome, _ = searched
    fitting = [row for row in outcome.finalists if row.standing.fits]
    assert outcome.recommended.standing.validation == max(row.standing.validation for row in fitting)
    run = load_run(outcome.recommended.trial.path)
    window = max(1, run.rounds // 3)
    by_hand = run.accuracy("validation")[-window:].mean()
    assert outcome.recommended.standing.validation == pytest.approx(by_hand)
    assert outcome.config == stored_config(outcome.recommended.trial.path)


def test_the_chart_has_the_same_front(searched: tuple[Path, SearchOutcome, Count]) -> None:
    _, outcome, _ = searched
    groups = as_groups([row.trial.path for row in outcome.finalists])
    on_front = {run.path for group in chart.front(groups) for run in group.runs}
    assert on_front == {row.trial.path for row in outcome.rows if row.on_front}
    if any(group.sends for group in groups):
        view = chart.build(groups).view(samples="trained")  # type: ignore[union-attr]
        assert {column.title for column in view.table.columns} >= {"Validation", "Test (not used)"}


def test_an_interrupted_search_goes_on_to_the_same_end(tmp_path: Path) -> None:
    config = base(tmp_path, run__rounds=6)
    whole = fedpurin.tune(config, tmp_path / "whole", budget_mib=1.0)
    with pytest.raises(KeyboardInterrupt):
        fedpurin.tune(config, tmp_path / "cut", budget_mib=1.0, watcher=Count(stop_at=9))
    count = Count()
    cut = fedpurin.tune(config, tmp_path / "cut", budget_mib=1.0, watcher=count)
    assert len(count.begun) == 2  # seven trials of the first rung and one of the second were done before
    for a, b in zip(whole.rows, cut.rows, strict=True):
        assert (a.trial.label, a.standing, a.rung, a.recommended) == (
            b.trial.label,
            b.standing,
            b.rung,
            b.recommended,
        )
    digests = [load_run(o.recommended.trial.path).summary["digest"] for o in (whole, cut)]
    assert digests[0] == digests[1]
    again = Count()
    fedpurin.tune(config, tmp_path / "cut", budget_mib=1.0, watcher=again)
    assert again.begun == []  # all is done: nothing runs again
    with pytest.raises(RunError, match="holds another search"):
        fedpurin.tune(config, tmp_path / "cut", budget_mib=2.0)
    with pytest.raises(RunError, match="holds another search"):
        fedpurin.tune(config.updated({"train": {"lr": 0.2}}), tmp_path / "cut", budget_mib=1.0)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("done")
    fedpurin.tune(base(folder, run__rounds=2), folder / "out", budget_mib=1.0)
    return folder


@pytest.mark.parametrize("torn", [5, 30])
def test_a_search_goes_on_after_a_journal_that_was_cut_short(done: Path, tmp_path: Path, torn: int) -> None:
    folder = Path(shutil.copytree(done, tmp_path / "copy"))
    config, journal = base(done, run__rounds=2), folder / "out" / search.JOURNAL
    os.truncate(journal, journal.stat().st_size - torn)
    for begun in (["6-fedcac"], []):  # what the journal lost, and then nothing
        count = Count()
        fedpurin.tune(config, folder / "out", budget_mib=1.0, watcher=count)
        assert count.begun == begun
    assert journal.read_text().count("\n") == len(METHODS)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{}", "line 1 has no trial"),
        ("[]", "line 1 should be an object"),
        ('{"trial": "a", "until": 2, "seconds": "x", "failed": ""}', "line 1.seconds is 'x', not a number"),
        ('{"trial": "a", "until": 2, "seconds": 1, "failed": null}', "line 1.failed is None, not a text"),
    ],
)
def test_a_journal_of_another_shape_is_named(done: Path, tmp_path: Path, line: str, says: str) -> None:
    folder = Path(shutil.copytree(done, tmp_path / "copy"))
    (folder / "out" / search.JOURNAL).write_text(line + "\n")
    with pytest.raises(RunError, match=rf"journal.jsonl.*{re.escape(says)}"):
        fedpurin.tune(base(done, run__rounds=2), folder / "out", budget_mib=1.0)


@pytest.mark.parametrize("content", [b"\xff", b"5", b"", None])
def test_a_search_described_by_something_else_is_another_one(
    done: Path, tmp_path: Path, content: bytes | None
) -> None:
    folder = Path(shutil.copytree(done, tmp_path / "copy"))
    (folder / "out" / search.SEARCH).unlink()
    if content is None:
        os.mkfifo(folder / "out" / search.SEARCH)
    else:
        (folder / "out" / search.SEARCH).write_bytes(content)
    with pytest.raises(RunError, match=r"another search|it is a pipe"):
        fedpurin.tune(base(done, run__rounds=2), folder / "out", budget_mib=1.0)


def test_when_the_time_is_over_the_rest_is_not_tried_and_said_so(tmp_path: Path) -> None:
    outcome = fedpurin.tune(base(tmp_path, run__rounds=4), tmp_path / "out", minutes=1e-6)
    assert len(outcome.rows) == 2  # as few as a rung may have
    assert outcome.not_tried[0] == "there was no time for FedPURIN; FedBN; FedAvg; FedPer; FedCAC"
    assert outcome.config.run.rounds < 4


def test_a_candidate_that_fails_is_left_out_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Trial.advance

    def advance(self: Trial, *arguments: Any) -> None:
        if self.candidate.config.run.method != "fedbn":
            raise EngineError("round 1: every client diverged")
        original(self, *arguments)

    monkeypatch.setattr(Trial, "advance", advance)
    outcome = fedpurin.tune(base(tmp_path, run__rounds=2), tmp_path / "out", budget_mib=1.0)
    assert [row.trial.label for row in outcome.rows] == ["FedBN"]
    assert "FedAvg: round 1: every client diverged" in outcome.not_tried


def test_the_command_ends_with_a_table_a_page_and_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.toml").write_text(base(tmp_path, run__rounds=2).to_toml())
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "my.toml", "--budget-mib", "1", "--out", "found"]) == 0
    out = capsys.readouterr().out
    for said in ("test (not used)", "Not tried:", "fedpurin run found/recommended.toml", "Rung 1 of 1"):
        assert said in out
    page = (tmp_path / "found" / "report.html").read_text()
    for said in ("Recommended configuration", "Not tried", "Accuracy against traffic: the front"):
        assert said in page
    assert Config.from_toml(tmp_path / "found" / "recommended.toml").data.validation == 0.3


@pytest.mark.parametrize(
    ("changes", "limits", "message"),
    [
        ({}, {}, r"needs a budget"),
        ({}, {"budget_mib": -1.0}, r"--budget-mib -1.0 must be a number above 0"),
        ({}, {"minutes": float("nan")}, r"--minutes nan must be a number above 0"),
        ({"run": {"engine": "flower"}}, {"minutes": 1.0}, r"choose run.engine = local, ray or inline"),
        ({"run": {"share_metrics": False}}, {"minutes": 1.0}, r"set run.share_metrics = true"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anything_is_written(
    changes: dict[str, Any], limits: dict[str, float], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        fedpurin.tune(base(tmp_path).updated(changes), tmp_path / "out", **limits)
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    with pytest.raises(RunError, match="is not empty and no search"):
        fedpurin.tune(base(tmp_path), tmp_path / "out", minutes=1.0)
