"""The reader of run directories says what the files say, and refuses what is not a run."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_run import Spec, make_run

from fedpurin.errors import RunError
from fedpurin.result import load_result
from fedpurin.runs.run import MOMENTS, find_runs, load_run


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def copy(run: Path, target: Path) -> Path:
    shutil.copytree(run, target)
    return target


def test_accuracy_and_loss_are_those_of_the_lines(comparison: Path) -> None:
    run = load_run(comparison / "fedpurin")
    for line in lines_of(run.path / "metrics.jsonl")[:-1]:
        for moment in ("trained", "upload"):
            row = run.accuracy(moment)[line["round"] - 1]
            assert row[line["clients"]].tolist() == line[moment]["accuracy"]
            assert run.loss(moment)[line["round"] - 1][line["clients"]].tolist() == line[moment]["loss"]


def test_merged_values_go_to_the_round_they_belong_to(comparison: Path) -> None:
    run = load_run(comparison / "fedpurin")
    merged = run.accuracy("merged")
    assert merged.shape == (6, 8)
    for line in lines_of(run.path / "metrics.jsonl"):
        part = line["merged"]
        for client, t, value in zip(part["clients"], part["round"], part["accuracy"], strict=True):
            assert merged[t - 1, client] == value
    assert not np.isnan(merged).any(), "the closing line completes the last round"


def test_clients_that_did_not_take_part_are_nan(half_way: Path) -> None:
    run = load_run(half_way)
    for line in run.lines:
        absent = sorted(set(range(8)) - set(line["clients"]))
        assert np.isnan(run.accuracy("trained")[line["round"] - 1][absent]).all()
        assert not np.isnan(run.accuracy("trained")[line["round"] - 1][line["clients"]]).any()


def test_a_value_that_was_not_shared_is_nan(comparison: Path, tmp_path: Path) -> None:
    path = copy(comparison / "fedavg", tmp_path / "run")
    lines = lines_of(path / "metrics.jsonl")
    lines[0]["trained"]["accuracy"][2] = None
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (path / "result.json").unlink()  # of before
    assert np.isnan(load_run(path).accuracy("trained")[0, 2])


def _twice(text: str) -> str:
    return "".join(2 * line for line in text.splitlines(keepends=True))


def _without_second(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[:1] + lines[2:])


SPOILT = {
    "ledger.jsonl": (_twice, _without_second, lambda _: ""),
    "metrics.jsonl": (
        _without_second,
        lambda _: "",
        lambda text: text.replace('"accuracy": [0.', '"accuracy": [1.'),
    ),
    "config.toml": (lambda text: re.sub("(?m)^seed = .*", "seed = 99", text),),
    "result.json": (lambda text: re.sub('"seed": [0-9]*', '"seed": 99', text),),
}


@pytest.mark.parametrize(("name", "spoil"), [(n, s) for n, many in SPOILT.items() for s in many])
def test_a_result_that_does_not_follow_from_what_is_beside_it_is_refused(
    comparison: Path, tmp_path: Path, name: str, spoil: Callable[[str], str]
) -> None:
    """Whole lines that are lost, won or changed, and files of other runs, are all sound by themselves."""
    path = copy(comparison / "fedavg", tmp_path / "run")
    text = (path / name).read_text()
    result = json.loads((path / "result.json").read_text())
    crc = zlib.crc32((path / "ledger.jsonl").read_bytes())
    (path / "result.json").write_text(json.dumps(result | {"ledger_checksum": crc}))
    (path / name).write_text(spoil((path / name).read_text()))
    assert (path / name).read_text() != text
    with pytest.raises(RunError, match=r"is damaged: .*; restore (it|them), or run again"):
        load_run(path)
    with pytest.raises(RunError, match="is damaged"):
        load_result(path)


@pytest.mark.parametrize("method", ["separate", "fedavg", "fedpurin"])
def test_the_derived_summary_is_that_of_result_json(comparison: Path, method: str) -> None:
    run = load_run(comparison / method)
    stored, derived = run.summary, run.derive_summary()
    for moment in MOMENTS:
        assert derived["accuracy"][moment] == pytest.approx(stored["accuracy"][moment])
    assert derived["mib_per_client_round"] == pytest.approx(stored["mib_per_client_round"])
    assert derived["seconds"] == pytest.approx(stored["seconds"])


def test_a_run_that_stopped_half_way_is_read_up_to_its_last_whole_line(half_way: Path) -> None:
    run = load_run(half_way)
    assert (run.rounds, run.planned_rounds, run.complete) == (3, 10, False)
    assert run.summary["rounds"] == 3
    assert run.summary["digest"] is None
    assert len(run.ledger) == 3 * 4 * 2  # rounds x participants x directions


def test_a_run_without_a_finished_round_is_empty_not_broken(half_way: Path, tmp_path: Path) -> None:
    path = copy(half_way, tmp_path / "run")
    (path / "metrics.jsonl").write_text("")
    (path / "ledger.jsonl").unlink()
    run = load_run(path)
    assert run.rounds == 0
    assert run.summary["accuracy"]["trained"]["best"] is None


def test_the_ledger_keeps_every_byte_of_every_section(comparison: Path) -> None:
    run = load_run(comparison / "fedpurin")
    lines = lines_of(run.path / "ledger.jsonl")
    assert run.ledger.total_m.sum() == sum(sum(line["bytes"].values()) for line in lines)
    up = [line for line in lines if line["direction"] == "up" and line["round"] == 3]
    per_round = run.ledger.per_round("up", run.ledger.total_m, run.rounds)
    assert per_round[3] == sum(sum(line["bytes"].values()) for line in up)


def test_groups_overlap_and_kept_shares_follow_the_lines(comparison: Path) -> None:
    run = load_run(comparison / "fedpurin")
    line = lines_of(run.path / "metrics.jsonl")[1]
    assert run.collaborators(2) == dict(zip(line["clients"], line["collaborators"], strict=True))
    ids, matrix = run.overlap(2) or ([], np.zeros(0))
    assert ids == line["clients"]
    assert matrix.tolist() == line["overlap"]
    names, shares = run.kept()
    assert shares[names.index("classifier.weight"), 1] == line["kept"]["classifier.weight"]
    assert load_run(comparison / "fedavg").collaborators(2) is None
    assert load_run(comparison / "fedavg").coverage() is None


def test_a_comparison_directory_stands_for_its_runs(comparison: Path, tmp_path: Path) -> None:
    assert find_runs([comparison]) == sorted(comparison.iterdir())
    assert find_runs([comparison, comparison / "fedavg"]) == sorted(comparison.iterdir())
    with pytest.raises(RunError, match="holds no run"):
        find_runs([tmp_path])
    with pytest.raises(RunError, match="not a directory"):
        find_runs([tmp_path / "missing"])


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("config.toml", "run = [", "config.toml cannot be read"),
        ("clients.json", "{", "clients.json is not valid JSON"),
        ("clients.json", "[]", "should hold a JSON object"),
        ("result.json", '{"method"', "result.json is not valid JSON"),
        ("metrics.jsonl", 'nonsense\n{"round": 1}\n', "line 1 is not JSON"),
        ("metrics.jsonl", '{"round": 0}\n', "line 1.round is 0, not a whole number from 1"),
        ("metrics.jsonl", '{"round": 1, "clients": [8], "trained": {"accuracy": [1]}}\n', r"in 0\.\.7"),
        (
            "metrics.jsonl",
            '{"round": 1, "clients": [0, 1], "trained": {"accuracy": [1]}}\n',
            "1 values of accuracy",
        ),
        (
            "metrics.jsonl",
            '{"round": 1, "clients": [0, 1], "collaborators": [[]]}\n',
            "1 lists of collaborators",
        ),
        ("metrics.jsonl", '{"round": 1, "clients": [0], "overlap": [[1, 1]]}\n', "no table of 1 x 1 clients"),
        ("metrics.jsonl", '{"round": 99}\n', "a line is of round 99, the run has"),
        (
            "metrics.jsonl",
            '{"round": 1, "trained": {"accuracy": ["a"]}}\n',
            r"accuracy\[0\] is 'a', not a num",
        ),
        ("metrics.jsonl", '{"round": 1, "seconds": 4}\n', "line 1.seconds is 4, not a table"),
        ("clients.json", '{"train_samples": 7}', "it.train_samples is 7, not a list"),
        ("clients.json", '{"train_counts": [[1e999]]}', r"train_counts\[0\]\[0\] is inf, not a whole number"),
        ("result.json", '{"dataset": "a", "rounds": 1}', "it has no accuracy"),
        ("layout.json", '{"layers": [3]}', r"layers\[0\] is 3, not a table"),
        ("config.toml", "run = 7", "it.run is 7, not a table"),
        ("ledger.jsonl", '{"round": 1}\n', "not a message: it has no client"),
        (
            "ledger.jsonl",
            '{"round": 1, "client": 0, "direction": "off", "bytes": {}}\n',
            "direction is 'off'",
        ),
        (
            "ledger.jsonl",
            '{"round": 1, "client": -1, "direction": "up", "bytes": {}}\n',
            "whole number from 0",
        ),
        ("ledger.jsonl", '{"round": 1, "client": 99, "direction": "up", "bytes": {}}\n', "client ids"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(
    comparison: Path, tmp_path: Path, file: str, content: str, complaint: str
) -> None:
    path = copy(comparison / "fedpurin", tmp_path / "run")
    (path / file).write_text(content)
    with pytest.raises(RunError, match=complaint):
        load_run(path)


def test_a_folder_without_config_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no config\.toml"):
        load_run(tmp_path)


def test_large_runs_load(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run", Spec(clients=1000, rounds=3, participation=0.1)))
    assert run.accuracy("trained").shape == (3, 1000)
    assert run.overlap(1) is None, "overlap is recorded for up to 64 participants"
