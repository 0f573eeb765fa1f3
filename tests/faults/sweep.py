"""One fault at every single place of a short run, and at a second place of the run that resumes it."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from checks import (
    assert_advice_can_be_followed,
    assert_like_an_undisturbed_run,
    assert_nothing_half_written,
)
from faulty_disk import WRITES, CountingDisk, Died, FaultyDisk, PowerCut

from fedpurin import files
from fedpurin.config import Config
from fedpurin.engines.simulate import resume_run, run_job
from fedpurin.errors import RunError
from fedpurin.files import Disk
from fedpurin.job import Job
from tiny import tiny_config

COMPLETE = "complete before it"


@contextmanager
def on(disk: Disk) -> Iterator[None]:
    before, files.disk = files.disk, disk
    try:
        yield
    finally:
        files.disk = before


def begin_or_go_on(config: Config, path: Path) -> None:
    """What a person does after a crash, and what a comparison does by itself."""
    if (path / "config.toml").exists():
        resume_run(path)
    else:
        run_job(Job.build(config), path)


def short_config(folder: Path) -> Config:
    """Two clients and three rounds: the third checkpoint is the first that removes an old one."""
    return tiny_config("fedpurin", folder, (9, 6), run__rounds=3, method__beta=1, run__engine="inline")


def places(config: Config, path: Path) -> list[str]:
    """The kinds of all that is done to the disk in an undisturbed run, in order."""
    counting = CountingDisk()
    with on(counting):
        begin_or_go_on(config, path)
    return [kind for kind, _ in counting.log]


class Sweep:
    """`undisturbed` is a finished run of the configuration."""

    def __init__(self, config: Config, undisturbed: Path, kinds: list[str]) -> None:
        self.config, self.undisturbed, self.kinds = config, undisturbed, kinds

    def every(self, fault: str) -> list[int]:
        """All n at which this fault differs from the others."""
        writes_only = fault == "torn"
        return [n for n, kind in enumerate(self.kinds, 1) if kind in WRITES or not writes_only]

    def strike(self, fault: str, n: int, folder: Path, again: random.Random | None = None) -> Counter[str]:
        """Fault, resume, compare. With `again` the resumed run is struck too, anywhere. Counts outcomes."""
        path = folder / f"{fault}-{n}"
        seen: Counter[str] = Counter([self._suffer(fault, n, path)])
        if again and not (path / "result.json").exists():
            seen[self._suffer(fault, again.randint(1, len(self.kinds)), path)] += 1
        if not (path / "result.json").exists():
            begin_or_go_on(self.config, path)
        assert_like_an_undisturbed_run(path, self.undisturbed)
        shutil.rmtree(path)
        return seen

    def _suffer(self, fault: str, n: int, path: Path) -> str:
        disk = (PowerCut if fault in ("lost", "overtaken") else FaultyDisk)(fault, n)
        with on(disk):
            try:
                begin_or_go_on(self.config, path)
                outcome = COMPLETE
            except Died:
                outcome = "died"
            except RunError as problem:
                if "cannot write" not in str(problem):
                    raise
                assert_advice_can_be_followed(str(problem), path)
                outcome = "stopped with an error that says how to go on"
        assert_nothing_half_written(path)
        return outcome
