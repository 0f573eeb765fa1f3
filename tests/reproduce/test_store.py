"""The store: stable keys, append-only lines, nothing finished is ever lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from reproduce_tools import make_line

from fedpurin.config import Config
from fedpurin.errors import RunError
from fedpurin.reproduce import result_store as stores
from fedpurin.reproduce.result_store import ResultStore


def changed(**sections: dict[str, object]) -> Config:
    return Config().updated(sections)


def test_a_record_comes_back_as_it_was_stored(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.append("runs", make_line(Config(), 0.7312))
    record = ResultStore(tmp_path).record(Config())
    assert record is not None
    assert record.complete
    assert record.best() == pytest.approx(73.12)
    assert record.clients().shape == (12, 10)


def test_the_first_rounds_of_a_longer_run_need_not_be_run_again(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
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
    store = ResultStore(tmp_path)
    store.append("runs", make_line(Config(), 0.5, done=3))
    assert not store.finished(Config())
    store.append("runs", make_line(Config(), 0.8))
    store.append("runs", make_line(Config(), 0.6, done=4))
    record = store.record(Config())
    assert record is not None
    assert record.best() == pytest.approx(80)


def test_a_torn_last_line_is_cut_off_by_the_next_one(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.append("runs", make_line(Config()))
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write('{"key": "half a li')
    store.append("runs", make_line(changed(run={"seed": 2})))
    assert len(ResultStore(tmp_path).records()) == 2


@pytest.mark.parametrize("line", ["{}", '{"config": 3}', '{"config": {"run": []}}', "[]", "nonsense"])
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(f"{line}\n{line}\n")
    with pytest.raises(RunError, match=r"runs\.jsonl"):
        ResultStore(tmp_path).records()
    assert file.read_text() == f"{line}\n{line}\n"


def test_a_line_written_before_a_setting_existed_is_still_found(tmp_path: Path) -> None:
    line = make_line(Config())
    del line["config"]["wire"]["feedback"]
    store = ResultStore(tmp_path)
    store.append("runs", line)
    assert store.finished(Config())


def test_processes_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    """Lines longer than one write, so that one process would meet another's half-written line."""
    line = make_line(Config()) | {"padding": "x" * 300_000}
    (tmp_path / "line.json").write_text(json.dumps(line))
    program = """
import json, sys
from pathlib import Path
from fedpurin.reproduce.result_store import ResultStore
folder, process = Path(sys.argv[1]), int(sys.argv[2])
line = json.loads((folder / "line.json").read_text())
store = ResultStore(folder / "results")
for number in range(15):
    line["config"]["run"]["seed"] = 100 * process + number
    store.append("runs", line)
"""
    words = [sys.executable, "-c", program, str(tmp_path)]
    writers = [subprocess.Popen([*words, str(process)]) for process in range(3)]
    assert [writer.wait(timeout=300) for writer in writers] == [0, 0, 0]
    found = {record.config.run.seed for record in ResultStore(tmp_path / "results").records()}
    assert found == {100 * process + number for process in range(3) for number in range(15)}


def test_nothing_is_written_while_another_process_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ResultStore(tmp_path)
    store.append("runs", make_line(Config()))
    before = (tmp_path / "runs.jsonl").read_bytes()
    monkeypatch.setattr(stores, "PATIENCE", 0.1)
    with FileLock(tmp_path / ".lock"), pytest.raises(RunError, match="written by another process"):
        store.append("runs", make_line(changed(run={"seed": 2})))
    assert (tmp_path / "runs.jsonl").read_bytes() == before


def test_what_another_process_stored_meanwhile_is_seen(tmp_path: Path) -> None:
    store, other = ResultStore(tmp_path), ResultStore(tmp_path)
    assert not store.finished(Config())
    other.append("runs", make_line(Config()))
    with store.locked():
        assert store.finished(Config())
