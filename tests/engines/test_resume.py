"""A run that stopped, wherever it stopped, goes on to the same bytes as one that never did."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine_tools import Stop, StopAt, assert_same_runs, run, run_until
from fedpurin.config import Config
from fedpurin.engines import simulate
from fedpurin.engines.driver import Watcher
from fedpurin.engines.inline import InlineWorkers
from fedpurin.engines.simulate import resume_run
from fedpurin.errors import RunError
from fedpurin.job import Job
from fedpurin.methods import METHODS
from tiny import tiny_config, tiny_job

without_workers = pytest.mark.usefixtures("in_process")
LOSSY = {"wire__values": "int8", "wire__feedback": True, "wire__pack": True}
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in METHODS),
    ("fedpurin", LOSSY),
    ("fedavg", LOSSY),
    ("fedcac", {"run__participation": 0.5}),
    ("fedpurin", {"run__participation": 0.5, "method__average": "support"}),
    ("fedbn", {"run__participation": 0.5, "method__silent_after": 2}),
    ("fedpurin", {"method__silent_after": 3, "method__score": "curvature", "method__tau_end": 0.2}),
    ("fedfrugal", {"run__participation": 0.5}),
]


@without_workers
@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_a_run_can_be_stopped_in_any_round(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """Five rounds with beta = 3: stopped in the middle of 1 and 3, and between log and checkpoint of 4."""
    config = tiny_config(name, tmp_path, run__rounds=5, **settings)
    run(config, tmp_path / "whole")
    run_until(config, tmp_path / "stopped", 1, after_client=2)
    for t, after_client in ((3, 1), (4, None)):
        with pytest.raises(Stop):
            resume_run(tmp_path / "stopped", StopAt(t, after_client=after_client))
    resume_run(tmp_path / "stopped")
    assert_same_runs(tmp_path / "whole", tmp_path / "stopped")


@without_workers
@pytest.mark.parametrize("every", [2, 4])
def test_rare_checkpoints_cost_repeated_rounds_and_nothing_else(every: int, tmp_path: Path) -> None:
    config = tiny_config("fedpurin", tmp_path, run__rounds=5, run__checkpoint_every=every)
    run(config, tmp_path / "whole")
    run_until(config, tmp_path / "stopped", 4, after_client=3)
    started: list[int] = []

    class Note(Watcher):
        def start(self, job: Job, path: Path, t: int) -> None:
            started.append(t)

    resume_run(tmp_path / "stopped", Note())
    assert started == [2 if every == 2 else 0]  # the last multiple of `every` below 4
    assert_same_runs(tmp_path / "whole", tmp_path / "stopped")


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run, and one that stopped in round 4 with checkpoints of rounds 2 and 3."""
    folder = tmp_path_factory.mktemp("runs")
    config = tiny_config("fedpurin", folder, run__rounds=4, method__beta=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "make_transport", InlineWorkers)
        run(config, folder / "whole")
        run_until(config, folder / "stopped", 4, after_client=2)
    checkpoints = sorted(p.name for p in (folder / "stopped" / "checkpoints").glob("round-*"))
    assert checkpoints == ["round-00002", "round-00003"]
    return folder


@pytest.fixture
def stopped(originals: Path, tmp_path: Path, in_process: None) -> tuple[Path, Path]:
    """The whole run, which no test may change, and a copy of the stopped one."""
    shutil.copytree(originals / "stopped", tmp_path / "stopped")
    return originals / "whole", tmp_path / "stopped"


def test_a_torn_last_line_is_dropped(stopped: tuple[Path, Path]) -> None:
    whole, path = stopped
    for log in ("metrics.jsonl", "ledger.jsonl"):
        with (path / log).open("ab") as file:
            file.write(b'{"round": 4, "cli')
    resume_run(path)
    assert_same_runs(whole, path)


def test_logs_cut_short_go_back_to_the_checkpoint_they_still_cover(stopped: tuple[Path, Path]) -> None:
    """The machine lost the tail of a file: round 3's lines are not all there, round 2's are."""
    whole, path = stopped
    log = path / "ledger.jsonl"
    os.truncate(log, log.stat().st_size - 5)
    resume_run(path)
    assert_same_runs(whole, path)


@pytest.mark.parametrize("part", ["clients", "server", "coverage"])
@pytest.mark.parametrize("damage", ["cut", "empty", "missing", "bit"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    stopped: tuple[Path, Path], part: str, damage: str
) -> None:
    whole, path = stopped
    file = path / "checkpoints" / "round-00003" / f"{part}.safetensors"
    content = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(content[:-7])
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "missing":
        file.unlink()
    else:
        content[-3] ^= 0x10  # in the data of a tensor: still a well-formed file
        file.write_bytes(content)
    resume_run(path)
    assert_same_runs(whole, path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"round": 3}',
        '{"round": 3, "lengths": {}}',
        '{"round": 7, "lengths": {}}',
        "\udcff",
    ],
)
def test_a_damaged_description_of_a_checkpoint_gives_way_too(stopped: tuple[Path, Path], text: str) -> None:
    whole, path = stopped
    file = path / "checkpoints" / "round-00003" / "checkpoint.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    resume_run(path)
    assert_same_runs(whole, path)


def _about(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = path / "checkpoints" / "round-00003" / "checkpoint.json"
    about = json.loads(file.read_text())
    change(about)
    file.write_text(json.dumps(about))


def _other_setting(about: dict[str, Any]) -> None:
    about.update(setting=[1], setting_checksum=zlib.crc32(b"[1]"))


ABOUT = {
    **{f"no {part}": lambda a, p=part: a["checksums"].pop(p) for part in ("clients", "server", "coverage")},
    "setting is no table": _other_setting,
    "negative length": lambda a: a["lengths"].update({"metrics.jsonl": -1}),
}


@pytest.mark.parametrize("change", ABOUT.values(), ids=ABOUT.keys())
def test_a_checkpoint_without_what_a_run_needs_gives_way(
    stopped: tuple[Path, Path], change: Callable[[dict[str, Any]], object]
) -> None:
    whole, path = stopped
    _about(path, change)
    _goes_on_from_round_2(whole, path)


def _goes_on_from_round_2(whole: Path, path: Path) -> None:
    warned: list[str] = []

    class Note(Watcher):
        def warned(self, text: str) -> None:
            warned.append(text)

    resume_run(path, Note())
    assert "round-00003 is damaged" in warned[0]
    assert len(warned) == 1
    assert_same_runs(whole, path)


TENSORS: dict[str, tuple[str, str, Callable[[Tensor], Tensor]]] = {
    "huge records": ("clients", "clients.size", lambda x: torch.full_like(x, 2**40)),
    "negative slots": ("clients", "clients.slot", lambda x: torch.full_like(x, -1)),
    "other clients": ("clients", "clients.client", lambda x: x + 99),
    "one client twice": ("clients", "clients.client", torch.zeros_like),
    "few slots": ("clients", "clients.slot", lambda x: x[:1]),
    "few confirmed": ("server", "confirmed", lambda x: x[:1]),
    "rounds to come": ("server", "confirmed", lambda x: torch.full_like(x, 99)),
    "a round to come": ("server", "aggregated", lambda x: x + 99),
    "another mean": ("server", "method.theta_bar", lambda x: x[:3]),
    "other counts": ("coverage", "server_counts", lambda x: x[:3]),
}
GONE = [
    ("server", "aggregated"),
    ("server", "confirmed"),
    ("clients", "clients.size"),
    ("coverage", "rounds"),
]


@pytest.mark.parametrize(
    ("part", "name", "change"),
    [*TENSORS.values(), *((part, name, None) for part, name in GONE)],
    ids=[*TENSORS, *(f"no {name}" for _, name in GONE)],
)
def test_tensors_that_do_not_fit_the_run_give_way_though_their_checksum_is_right(
    stopped: tuple[Path, Path], part: str, name: str, change: Callable[[Tensor], Tensor] | None
) -> None:
    whole, path = stopped
    file = path / "checkpoints" / "round-00003" / f"{part}.safetensors"
    tensors = {key: tensor.clone() for key, tensor in load_file(file).items()}
    old = tensors.pop(name)
    if change:
        tensors[name] = change(old).contiguous()
    save_file(tensors, file)
    _about(path, lambda about: about["checksums"].update({part: zlib.crc32(file.read_bytes())}))
    _goes_on_from_round_2(whole, path)


@pytest.mark.parametrize("name", ["environment.json", "models", "coverage.safetensors"])
def test_what_would_stop_the_result_is_found_before_the_first_round(
    stopped: tuple[Path, Path], name: str
) -> None:
    _, path = stopped
    file = path / name
    before = (path / "metrics.jsonl").read_bytes()
    if name == "coverage.safetensors":
        file.mkdir()
    else:
        file.write_bytes(b"")
    with pytest.raises(RunError, match=re.escape(str(file))):
        resume_run(path)
    assert (path / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("gone", ["checkpoints", "metrics.jsonl", "ledger.jsonl"])
def test_without_checkpoints_or_logs_the_run_begins_anew(stopped: tuple[Path, Path], gone: str) -> None:
    whole, path = stopped
    if (path / gone).is_dir():
        shutil.rmtree(path / gone)
    else:
        (path / gone).unlink()
    resume_run(path)
    assert_same_runs(whole, path)


def test_a_checkpoint_that_was_being_written_does_not_count(stopped: tuple[Path, Path]) -> None:
    whole, path = stopped
    half = path / "checkpoints" / ".round-00004.tmp"
    half.mkdir()
    (half / "clients.safetensors").write_bytes(b"half")
    resume_run(path)
    assert_same_runs(whole, path)
    assert not half.exists()


def test_a_complete_run_is_not_continued(stopped: tuple[Path, Path]) -> None:
    whole, _ = stopped
    before = {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()}
    with pytest.raises(RunError, match="complete; show it with: fedpurin show"):
        resume_run(whole)
    assert before == {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()}


def test_another_model_or_other_clients_are_not_continued_with(stopped: tuple[Path, Path]) -> None:
    whole, path = stopped
    text = (path / "config.toml").read_text()
    other = path.parent / "other.json"
    split = tiny_job(counts=(9, 12, 20, 6)).split
    assert split is not None
    split.save(other)
    here = Config.from_text(text).data.split_file
    for old, new, message in (
        ("tiny:tiny_model", "tiny:plain_model", "the model and its exchanged parameters of layout"),
        (here, str(other), "the clients and their data of clients"),
    ):
        assert old in text
        (path / "config.toml").write_text(text.replace(old, new))
        with pytest.raises(RunError, match=message):
            resume_run(path)
    (path / "config.toml").write_text(text)
    resume_run(path)
    assert_same_runs(whole, path)


CHANGED = [
    ("rounds = 4", "rounds = 2", "beyond the 2 rounds of"),
    ("order_seed = -1", "order_seed = 5", "run.order_seed was its default, is 5"),
    ("lr = ", "lr = 1", "train.lr was"),
    ("beta = 2", "beta = 3", "method.beta was 2, is 3"),
    ('values = "auto"', 'values = "int8"', "wire.values was its default, is int8"),
]


@pytest.mark.parametrize(("old", "new", "said"), CHANGED)
def test_a_changed_setting_is_not_continued_with(
    stopped: tuple[Path, Path], old: str, new: str, said: str
) -> None:
    """Such a run would be neither the one that was begun nor the one that is asked for."""
    whole, path = stopped
    text = (path / "config.toml").read_text()
    assert old in text
    sound = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    (path / "config.toml").write_text(text.replace(old, new))
    with pytest.raises(RunError, match=re.escape(said)):
        resume_run(path)
    (path / "config.toml").write_bytes(sound[path / "config.toml"])
    assert sound == {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    resume_run(path)
    assert_same_runs(whole, path)


@without_workers
def test_a_checkpoint_says_what_it_was_made_with_and_not_what_the_file_says_by_then(tmp_path: Path) -> None:
    config = tiny_config("fedpurin", tmp_path, run__rounds=4, run__checkpoint_every=2)
    path = tmp_path / "run"
    begun = config.to_toml()

    class Edit(StopAt):
        def round_begun(self, t: int, of: int, asked: int) -> None:
            if t == 2:
                (path / "config.toml").write_text(begun.replace("lr = 0.1", "lr = 0.5"))

    with pytest.raises(Stop):
        run(config, path, Edit(3))
    with pytest.raises(RunError, match=r"train\.lr was its default, is 0\.5.*undo the change"):
        resume_run(path)
    (path / "config.toml").write_text(begun)
    resume_run(path)
    run(config, tmp_path / "whole")
    assert_same_runs(tmp_path / "whole", path)


def test_a_run_may_get_more_rounds_than_it_was_begun_with(stopped: tuple[Path, Path]) -> None:
    """It ends as one that was planned so."""
    _, path = stopped
    text = (path / "config.toml").read_text().replace("rounds = 4", "rounds = 5")
    (path / "config.toml").write_text(text)
    resume_run(path)
    run(Config.from_text(text), path.parent / "planned")
    assert_same_runs(path.parent / "planned", path)


def test_what_changes_no_number_may_change(stopped: tuple[Path, Path]) -> None:
    """Where and how fast it runs, and where a split file lies."""
    whole, path = stopped
    config = Config.from_toml(path / "config.toml")
    moved = path.parent / "moved.json"
    shutil.copy(config.data.split_file, moved)
    table = {"run": {"checkpoint_every": 2, "workers": 1}, "data": {"split_file": str(moved)}}
    (path / "config.toml").write_text(config.updated(table).to_toml())
    resume_run(path)
    assert_same_runs(whole, path)


@pytest.mark.parametrize("method", ["fedavg", "fedpurin"])
def test_checkpoints_and_logs_of_another_run_are_not_continued_with(
    stopped: tuple[Path, Path], method: str
) -> None:
    """All of them sound, and of one piece: only what they were made with gives them away."""
    _, path = stopped
    config = tiny_config(method, path.parent, run__rounds=4, run__order_seed=9)
    other = path.parent / "other"
    run_until(config, other, 4, after_client=2)
    shutil.rmtree(path / "checkpoints")
    shutil.copytree(other / "checkpoints", path / "checkpoints")
    for log in ("metrics.jsonl", "ledger.jsonl"):
        shutil.copy(other / log, path / log)
    before = (path / "metrics.jsonl").read_bytes()
    with pytest.raises(RunError, match=r"other settings .*run\.order_seed was 9"):
        resume_run(path)
    assert (path / "metrics.jsonl").read_bytes() == before


def test_a_run_stopped_before_its_result_was_written_writes_it(stopped: tuple[Path, Path]) -> None:
    whole, path = stopped
    copy = path.parent / "copy"
    shutil.copytree(whole, copy)
    (copy / "result.json").unlink()
    resume_run(copy)
    assert_same_runs(whole, copy)


def test_two_processes_cannot_write_one_run(stopped: tuple[Path, Path]) -> None:
    """While this process continues the run, another one is refused in one line and changes nothing."""
    whole, path = stopped
    refused: list[subprocess.CompletedProcess[str]] = []

    class Second(Watcher):
        def client_done(self, t: int, client: int, done: int, total: int) -> None:
            if not refused:
                words = [sys.executable, "-m", "fedpurin", "resume", str(path)]
                refused.append(subprocess.run(words, capture_output=True, text=True, timeout=120))

    resume_run(path, Second())
    assert refused[0].returncode == 1
    assert refused[0].stderr.count("\n") == 1
    assert "being written by another process" in refused[0].stderr
    assert_same_runs(whole, path)


# Real processes, really killed

BETA = {"method__beta": 10}
KILLED: list[tuple[str, dict[str, Any]]] = [("fedpurin", BETA), ("fedpurin", LOSSY | BETA), ("pfedsd", {})]


def start(config: Config, folder: Path) -> subprocess.Popen[str]:
    (folder / "config.toml").write_text(config.to_toml())
    words = [sys.executable, "-m", "fedpurin", "run", str(folder / "config.toml")]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.Popen(
        [*words, "--out", str(folder / "stopped")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,  # a group of its own, to which a test can send what Ctrl-C sends
    )


def wait_for_round(process: subprocess.Popen[str], t: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if f"round {t:>3}/" in line:
            return
    raise AssertionError(f"the run ended before round {t}: {process.communicate()[1]}")


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
@without_workers  # the processes that are killed are real; what they are compared with need not be
@pytest.mark.parametrize(("name", "settings"), KILLED)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_process_is_continued_to_the_same_bytes(
    name: str, settings: dict[str, Any], how: signal.Signals, tmp_path: Path
) -> None:
    config = tiny_config(name, tmp_path, run__rounds=60, run__workers=2, **settings)
    process = start(config, tmp_path)
    wait_for_round(process, 5)
    workers = children_of(process.pid)
    assert len(workers) == 2
    if how == signal.SIGKILL:
        os.kill(process.pid, how)
    else:
        os.killpg(process.pid, how)  # Ctrl-C reaches the whole group
    output, errors = process.communicate(timeout=120)
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert f"fedpurin resume {tmp_path / 'stopped'}" in output
    assert "Traceback" not in errors
    assert not (tmp_path / "stopped" / "result.json").exists()
    for worker in workers:
        wait_until_gone(worker)
    resume_run(tmp_path / "stopped")
    run(config, tmp_path / "whole")
    assert_same_runs(tmp_path / "whole", tmp_path / "stopped")


def wait_until_gone(pid: int) -> None:
    """Workers end by themselves when their parent is gone; the test's time limit is the only one."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([descriptor], [], [])
    os.close(descriptor)


@pytest.mark.slow
def test_ctrl_c_while_workers_start_says_nothing_but_that_it_stopped(tmp_path: Path) -> None:
    process = start(tiny_config("fedavg", tmp_path, run__workers=2), tmp_path)
    while len(children_of(process.pid)) < 2 and process.poll() is None:
        pass
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in output + errors
    assert len(errors.splitlines()) <= 1
    assert json.loads((tmp_path / "stopped" / "environment.json").read_text())["fedpurin"]
