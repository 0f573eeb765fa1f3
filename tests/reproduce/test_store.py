"""The store: stable keys, append-only lines, nothing finished is ever lost."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from reproduce_tools import make_line

from fedpurin.config import METHOD_NAMES, Config
from fedpurin.methods import METHODS
from fedpurin.reproduce.cells import METHOD_OPTIONS, cell_key
from fedpurin.reproduce.store import Store


def changed(**sections: dict[str, object]) -> Config:
    return Config().updated(sections)


@pytest.mark.parametrize(
    "sections",
    [
        {"run": {"workers": 7}},
        {"run": {"engine": "ray"}},
        {"run": {"checkpoint_every": 5}},
        {"data": {"dir": "/somewhere/else"}},
        {"method": {"temperature": 9.0}},  # FedPURIN has no teacher
    ],
)
def test_what_does_not_change_the_numbers_does_not_change_the_key(
    sections: dict[str, dict[str, object]],
) -> None:
    assert cell_key(changed(**sections)) == cell_key(Config())


@pytest.mark.parametrize(
    "sections",
    [
        {"run": {"seed": 2}},
        {"run": {"rounds": 13}},
        {"data": {"alpha": 0.2}},
        {"method": {"beta": 5}},
        {"train": {"epochs": 4}},
        {"wire": {"values": "float16"}},
    ],
)
def test_what_changes_the_numbers_changes_the_key(sections: dict[str, dict[str, object]]) -> None:
    assert cell_key(changed(**sections)) != cell_key(Config())


def test_options_a_method_never_reads_do_not_matter() -> None:
    def key(**method: object) -> str:
        return cell_key(changed(run={"method": "fedavg"}, method=method))

    assert key(beta=3, tau=0.2) == key()
    delta = {"score": "delta"}
    half = {**delta, "gradient_dtype": "float16"}  # a delta is never rounded
    assert cell_key(changed(method=half)) == cell_key(changed(method=delta))


def test_the_options_listed_for_each_method_are_those_it_has() -> None:
    assert set(METHOD_OPTIONS) == set(METHOD_NAMES)
    for name, kind in METHODS.items():
        assert METHOD_OPTIONS[name] == {f.name for f in fields(kind)}, name


def test_a_record_comes_back_as_it_was_stored(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append("runs", make_line(Config(), 0.7312))
    record = Store(tmp_path).record(Config())
    assert record is not None
    assert record.complete
    assert record.best() == pytest.approx(73.12)
    assert record.clients().shape == (12, 10)


def test_the_first_rounds_of_a_longer_run_need_not_be_run_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    line = make_line(changed(run={"rounds": 12}), done=7)
    line["clients"]["upload"][5] = [10_000] * 10
    store.append("runs", line)
    five = store.record(changed(run={"rounds": 5}))
    assert five is not None
    assert (five.complete, five.done, five.config.run.rounds) == (True, 5, 5)
    assert five.clients().shape == (5, 10)
    assert five.best() == pytest.approx(80)  # round 6 is not among them
    assert len(five.mib("up")) == len(five.mib("down")) == 5
    seven = store.record(changed(run={"rounds": 7}))
    assert seven is not None
    assert not seven.complete  # its last replies were not sent
    assert store.record(changed(run={"rounds": 8})) is None
    assert store.record(changed(run={"rounds": 5}, method={"beta": 2})) is None


def test_an_unfinished_copy_never_hides_a_finished_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append("runs", make_line(Config(), 0.5, done=3))
    assert not store.finished(Config())
    store.append("runs", make_line(Config(), 0.8))
    store.append("runs", make_line(Config(), 0.6, done=4))
    record = store.record(Config())
    assert record is not None
    assert record.best() == pytest.approx(80)


def test_a_torn_last_line_is_cut_off_by_the_next_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append("runs", make_line(Config()))
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write('{"key": "half a li')
    store.append("runs", make_line(changed(run={"seed": 2})))
    assert len(Store(tmp_path).records()) == 2


def test_a_line_written_before_a_setting_existed_is_still_found(tmp_path: Path) -> None:
    line = make_line(Config())
    del line["config"]["wire"]["feedback"]
    store = Store(tmp_path)
    store.append("runs", line)
    assert store.finished(Config())
