"""TensorBoard events and the terminal watcher, without waiting for anything."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from make_run import Spec, make_run
from rich.console import Console

from fedpurin.errors import MissingExtraError, RunError
from fedpurin.report.tensorboard import tensorboard_writer
from fedpurin.report.watch import Follower, Tail, sparkline, watch
from fedpurin.runs.run import load_run


def test_events_hold_the_means_of_every_round(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Spec(clients=3, rounds=2, beta=2))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    ledger = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    writer = tensorboard_writer(run)
    for line in lines:
        writer.round(line, [entry for entry in ledger if entry["round"] == line["round"]])
    writer.close()

    scalars = read_events(run / "tensorboard")
    assert scalars["accuracy/upload"] == pytest.approx(
        {t: mean(lines[t - 1]["upload"]["accuracy"]) for t in (1, 2)}
    )
    # merged of round 1 is in the second line, merged of round 2 in the closing line
    merged = {1: mean(lines[1]["merged"]["accuracy"]), 2: mean(lines[2]["merged"]["accuracy"])}
    assert scalars["accuracy/merged"] == pytest.approx(merged)
    up = [sum(e["bytes"].values()) for e in ledger if e["round"] == 1 and e["direction"] == "up"]
    assert scalars["mib_per_client/up"][1] == pytest.approx(mean(up) / 2**20)
    assert scalars["critical/classifier.weight"][2] == pytest.approx(lines[1]["kept"]["classifier.weight"])


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def read_events(folder: Path) -> dict[str, dict[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    found = {}
    for tag in events.Tags()["tensors"] + events.Tags()["scalars"]:
        found[tag] = {event.step: event.value for event in events.Scalars(tag)}
    return found


def test_without_tensorboard_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"fedpurin\[tensorboard\]"):
        tensorboard_writer(tmp_path)


class GrowingRun:
    """A run directory that gets one more round each time the watcher waits."""

    def __init__(self, path: Path) -> None:
        whole = make_run(path / "whole", Spec(clients=3, rounds=4, beta=2))
        self.result = (whole / "result.json").read_text()
        self.metrics = (whole / "metrics.jsonl").read_text().splitlines(keepends=True)
        self.ledger = (whole / "ledger.jsonl").read_text().splitlines(keepends=True)
        self.path = path / "growing"
        self.path.mkdir()
        (self.path / "config.toml").write_text((whole / "config.toml").read_text())
        self.waits = 0

    def wait(self, seconds: float) -> None:
        self.waits += 1
        if self.metrics:
            with (self.path / "ledger.jsonl").open("a") as file:
                file.writelines(self.ledger[:6])  # 3 clients, both ways
            with (self.path / "metrics.jsonl").open("a") as file:
                file.write(self.metrics[0])
            self.metrics, self.ledger = self.metrics[1:], self.ledger[6:]
        else:
            (self.path / "result.json").write_text(self.result)


@pytest.mark.parametrize("terminal", [True, False])
def test_watching_shows_every_round_and_ends_with_the_result(tmp_path: Path, terminal: bool) -> None:
    run = GrowingRun(tmp_path)
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100)
    watch(run.path, console, wait=run.wait, clock=lambda: 0.0)
    text = out.getvalue().replace("\u00a0", " ")
    upload = json.loads((run.path / "metrics.jsonl").read_text().splitlines()[3])["upload"]["accuracy"]
    assert run.waits == 6  # four rounds, the closing line, the result
    assert f"{100 * mean(upload):.1f} %" in text
    assert "Complete" in text
    for t in (1, 2, 3, 4):
        assert (f"{t} of 4" if terminal else f"round {t}/4") in text


def test_time_left_is_the_pace_of_the_last_rounds(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path)
    for _ in range(3):
        run.wait(0)
    follower = Follower(run.path, lambda: 0.0)
    assert follower.step() is False
    assert follower.progress.seconds_left() == pytest.approx(1.5)  # one round of 1.5 s is left
    sizes = [json.loads(line) for line in (run.path / "ledger.jsonl").read_text().splitlines()]
    total = sum(sum(entry["bytes"].values()) for entry in sizes)
    assert follower.progress.mib_per_client() == pytest.approx(total / 2**20 / 3)


def test_looking_once_does_not_wait(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path)
    run.wait(0)
    out = io.StringIO()
    watch(run.path, Console(file=out, width=100), follow=False, wait=lambda _: pytest.fail("waited"))
    assert out.getvalue().startswith("round 1/4")


def test_a_key_press_ends_the_watching_only(tmp_path: Path) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    out = io.StringIO()
    watch(GrowingRun(tmp_path).path, Console(file=out, width=200), wait=interrupt)
    assert "the run itself goes on" in out.getvalue()


def test_a_long_silence_is_mentioned(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path)
    run.wait(0)
    now = [0.0]
    follower = Follower(run.path, lambda: now[0])
    follower.step()
    out = Console(file=io.StringIO(), width=100)
    out.print(follower.panel())
    assert "no news" not in out.file.getvalue()  # type: ignore[attr-defined]
    now[0] = 16.0  # more than ten rounds of 1.5 s
    out.print(follower.panel())
    assert "no news for" in out.file.getvalue()  # type: ignore[attr-defined]


def test_a_resumed_run_that_was_cut_back_is_read_again(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path)
    for _ in range(3):
        run.wait(0)
    follower = Follower(run.path, lambda: 0.0)
    follower.step()
    for name, kept in (("metrics.jsonl", 1), ("ledger.jsonl", 6)):
        lines = (run.path / name).read_text().splitlines(keepends=True)
        (run.path / name).write_text("".join(lines[:kept]))
    follower.step()
    assert follower.progress.rounds == 1
    assert len(follower.progress.seconds) == 1


def test_a_line_still_being_written_waits_for_its_end(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    tail = Tail(file)
    assert tail.lines() == []
    file.write_text('{"a": 1}\n{"a"')
    assert tail.lines() == [{"a": 1}]
    with file.open("a") as stream:
        stream.write(": 2}\n")
    assert tail.lines() == [{"a": 2}]


def test_a_curve_fits_one_line_of_text() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([0.3]) == "▁"
    assert len(sparkline([float(i) for i in range(99)])) == 40
    assert sparkline([]) == ""


def test_a_folder_that_is_no_run_cannot_be_watched(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run directory"):
        watch(tmp_path, Console(file=io.StringIO()))


BAD_LINES = [
    b"{}", b"[]", b"5", b"garbage", b"[" * 100_000, b"\xff\xfe", b'{"round": "x"}',
    b'{"round": 1, "client": 0, "direction": "up", "bytes": [1], "seconds": 1}',
    b'{"round": 1, "client": 0, "direction": "up", "bytes": {"values": "b"}, "seconds": 1}',
    b'{"round": 1, "clients": [0], "trained": [1], "direction": 1}',
    b'{"round": 1, "clients": [0], "trained": {"accuracy": ["a"]}, "direction": 1}',
    b'{"round": 1, "clients": [0], "seconds": {"round": "a"}, "direction": 1}',
]  # fmt: skip


@pytest.mark.parametrize("name", ["metrics.jsonl", "ledger.jsonl"])
@pytest.mark.parametrize("line", BAD_LINES, ids=range(len(BAD_LINES)))
def test_a_line_that_is_damaged_is_named_while_watching(tmp_path: Path, name: str, line: bytes) -> None:
    run = make_run(tmp_path / "run", Spec(clients=3, rounds=2, beta=2))
    whole = (run / name).read_bytes()
    (run / name).write_bytes(whole[: whole.find(b"\n") + 1] + line + b"\n" + whole)
    with pytest.raises(RunError, match=rf"{name}.*(is damaged|should be an object)"):
        watch(run, Console(file=io.StringIO()), follow=False)


def test_numbers_that_are_not_finite_do_not_end_the_watching(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Spec(clients=3, rounds=2, beta=2))
    (run / "metrics.jsonl").write_text(
        '{"round": 1, "clients": [0, 1], "trained": {"accuracy": [NaN, 0.5]}, "seconds": {"round": NaN}}\n'
        '{"round": 2, "clients": [0, 1], "trained": {"accuracy": [1e999, 0.7]}}\n'
    )
    out = io.StringIO()
    watch(run, Console(file=out, force_terminal=True, width=100), follow=False)
    assert "70.0" in out.getvalue()


@pytest.mark.parametrize(
    "rounds",
    ['"x"', "[1]", "inf", "-1", "9" * 30, "{a = 1}"],
    ids=["text", "list", "inf", "-1", "9", "table"],
)
def test_a_configuration_with_a_wrong_number_of_rounds_is_named_while_watching(
    tmp_path: Path, rounds: str
) -> None:
    (tmp_path / "config.toml").write_text(f"[run]\nrounds = {rounds}\n")
    with pytest.raises(RunError, match=r"config.toml is damaged: it.run.rounds is "):
        watch(tmp_path, Console(file=io.StringIO()), follow=False)


@pytest.mark.parametrize(
    "name",
    ["config.toml", "metrics.jsonl", "ledger.jsonl", "clients.json", "result.json", "environment.json"],
)
def test_of_a_file_that_may_not_be_read_nobody_is_told_to_delete_it(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", Spec(clients=3, rounds=2, beta=2))
    opened = Path.open

    def refuse(path: Path, *words: Any, **options: Any) -> Any:
        if path.name == name:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *words, **options)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(RunError, match=f"{name} cannot be read: Permission denied; change its permissions"):
        load_run(run)


@pytest.mark.parametrize("name", ["config.toml", "metrics.jsonl", "ledger.jsonl"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_the_watcher_waits_for_no_pipe(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    run = make_run(tmp_path / "run", Spec(clients=3, rounds=2, beta=2))
    (run / name).unlink()
    make(run / name)
    with pytest.raises(RunError, match=f"{name} cannot be read"):
        watch(run, Console(file=io.StringIO()), follow=False)
