"""Every write, sync, rename and removal of a short run fails, is torn or is the last: nothing is lost."""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checks import LOGS, assert_nothing_half_written
from faulty_disk import FAULTS, CountingDisk, FaultyDisk
from sweep import Sweep, begin_or_go_on, on, places, short_config

from fedpurin.errors import RunError
from fedpurin.runs.checkpoints import DAMAGED, read_checkpoint

SECOND = 7  # seed of the second faults


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A folder in memory: the disk's forgetting is ours, and real syncs would only take time."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def sweep(memory: Path) -> Sweep:
    config = short_config(memory)
    return Sweep(config, memory / "undisturbed", places(config, memory / "undisturbed"))


def some(all_n: list[int], fault: str, step: int) -> list[int]:
    """Every `step`-th, beginning with another one for each fault. `make torture` takes all of them."""
    return all_n[FAULTS.index(fault) * 5 % step :: step]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_disk_may_fail_anywhere(sweep: Sweep, fault: str, memory: Path) -> None:
    for n in some(sweep.every(fault), fault, 24):
        sweep.strike(fault, n, memory)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_disk_may_fail_anywhere_and_again_in_the_run_that_resumes(
    sweep: Sweep, fault: str, memory: Path
) -> None:
    draw = random.Random(SECOND)
    for n in some(sweep.every(fault), fault, 8):
        sweep.strike(fault, n, memory, again=draw)


def test_a_disk_that_is_full_in_the_first_round_leaves_nothing_to_resume_and_says_so(
    sweep: Sweep, memory: Path
) -> None:
    path = memory / "full"
    first_state = sweep.kinds.index("put") + 1
    with on(FaultyDisk("full", first_state)), pytest.raises(RunError) as caught:
        begin_or_go_on(sweep.config, path)
    assert not path.exists()
    assert str(caught.value).endswith("make room, then: run the same command again")
    begin_or_go_on(sweep.config, path)


def test_a_short_run_has_every_kind_of_place(sweep: Sweep) -> None:
    assert set(sweep.kinds) == {"fill", "append", "put", "sync", "rename", "make_folder", "remove"}
    assert len(sweep.kinds) > 100


CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}


def test_nothing_changes_a_run_directory_behind_the_disks_back(sweep: Sweep, tmp_path: Path) -> None:
    """Else the faults above would miss it. Python itself reports what is done to files."""
    run, behind, busy = tmp_path / "run", [], False

    class Noting(CountingDisk):
        def before(self, kind: str, path: Path) -> bool:
            nonlocal busy
            busy = True
            return super().before(kind, path)

        def after(self, kind: str, path: Path) -> None:
            nonlocal busy
            busy = False

    def hook(event: str, about: tuple[Any, ...]) -> None:
        if busy or not watched or not about or not isinstance(about[0], str | os.PathLike):
            return
        writes = event == "open" and bool(about[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        path = Path(os.fspath(about[0]))
        if event == "os.mkdir" and path.is_dir():
            return  # the lock makes sure of its folder
        if (event in CHANGES or writes) and path.is_relative_to(run) and path.name != ".lock":
            behind.append((event, str(path)))

    watched = True
    sys.addaudithook(hook)  # cannot be taken back, so it is told to look away
    try:
        with on(Noting()):
            begin_or_go_on(sweep.config, run)
    finally:
        watched = False
    assert behind == []


@pytest.mark.parametrize("name", ["config.toml", "result.json", "models/client-0000.safetensors"])
def test_a_half_file_under_its_final_name_would_be_seen(sweep: Sweep, tmp_path: Path, name: str) -> None:
    begin_or_go_on(sweep.config, tmp_path / "run")
    assert_nothing_half_written(tmp_path / "run")
    file = tmp_path / "run" / name
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(Exception, match=r".+"):
        assert_nothing_half_written(tmp_path / "run")


def test_every_single_bit_of_a_checkpoint_counts(sweep: Sweep) -> None:
    """All bits of its description, one of every byte of its tensors."""
    run = sweep.undisturbed
    newest = sorted((run / "checkpoints").iterdir())[-1]
    logs = {name: run / name for name in LOGS}
    read_checkpoint(newest, logs)
    for file in sorted(newest.iterdir()):
        sound = file.read_bytes()
        for at in range(0, 8 * len(sound), 1 if file.suffix == ".json" else 8):
            changed = bytearray(sound)
            changed[at // 8] ^= 1 << at % 8
            file.write_bytes(changed)
            with pytest.raises(DAMAGED):
                read_checkpoint(newest, logs)
        file.write_bytes(sound)
