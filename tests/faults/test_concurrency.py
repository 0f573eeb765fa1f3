"""Two at once on one directory are refused or do not disturb each other; nothing is ever mixed."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks import assert_like_an_undisturbed_run
from faulty_disk import CountingDisk
from sweep import begin_or_go_on, on, short_config

from fedpurin import files
from fedpurin.config import Config
from fedpurin.engines.simulate import run_job
from fedpurin.errors import RunError
from fedpurin.federation import engine
from fedpurin.federation.launch import alone
from fedpurin.job import Job
from fedpurin.report.page import write_report
from fedpurin.runs import directory as runs_directory
from fedpurin.runs.directory import RunDirectory
from fedpurin.runs.run import load_run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Path]:
    folder = tmp_path_factory.mktemp("whole")
    begin_or_go_on(short_config(folder), folder / "run")
    return short_config(folder), folder / "run"


class Visited(CountingDisk):
    """Somebody looks in before everything that is done, and half-way through every line of a log."""

    def __init__(self, run: Path) -> None:
        super().__init__()
        self.run, self.visits, self.rounds = run, 0, 0

    def visit(self) -> None:
        if (self.run / "config.toml").exists():
            seen = load_run(self.run)
            assert seen.rounds >= self.rounds
            self.visits, self.rounds = self.visits + 1, seen.rounds

    def before(self, kind: str, path: Path) -> bool:
        self.visit()
        return super().before(kind, path)

    def append(self, path: Path, data: bytes) -> None:
        super().append(path, data[: len(data) // 2])
        self.visit()
        super().append(path, data[len(data) // 2 :])


def test_whoever_reads_a_run_that_writes_sees_whole_rounds(
    whole: tuple[Config, Path], tmp_path: Path
) -> None:
    config, undisturbed = whole
    disk = Visited(tmp_path / "run")
    with on(disk):
        begin_or_go_on(config, tmp_path / "run")
    assert disk.visits > 80
    assert disk.rounds == 3
    assert_like_an_undisturbed_run(tmp_path / "run", undisturbed)


class Reported(CountingDisk):
    """A report is made in the middle of the second checkpoint."""

    def __init__(self, run: Path) -> None:
        super().__init__()
        self.run, self.size = run, 0

    def before(self, kind: str, path: Path) -> bool:
        if path.name == "round-00002" and not self.size:
            self.size = write_report([self.run], self.run.parent / "report.html").stat().st_size
        return super().before(kind, path)


def test_a_report_of_a_run_that_writes_is_whole(whole: tuple[Config, Path], tmp_path: Path) -> None:
    config, undisturbed = whole
    disk = Reported(tmp_path / "run")
    with on(disk):
        begin_or_go_on(config, tmp_path / "run")
    assert disk.size > 10_000
    assert (tmp_path / "report.html").read_text().rstrip().endswith("</html>")
    assert_like_an_undisturbed_run(tmp_path / "run", undisturbed)


def test_of_two_runs_into_one_directory_the_second_is_refused(
    whole: tuple[Config, Path], tmp_path: Path
) -> None:
    config, undisturbed = whole
    refused: list[str] = []

    class Second(CountingDisk):
        def before(self, kind: str, path: Path) -> bool:
            if kind == "append" and not refused:
                refused.append("")
                with pytest.raises(RunError) as problem:
                    run_job(Job.build(config), tmp_path / "run")
                refused.append(str(problem.value))
            return super().before(kind, path)

    with on(Second()):
        begin_or_go_on(config, tmp_path / "run")
    assert "being written by another process" in refused[1]
    assert_like_an_undisturbed_run(tmp_path / "run", undisturbed)


def test_of_two_that_both_saw_an_empty_directory_one_gets_it(
    whole: tuple[Config, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other is quick: between our look and our lock it has made its run and let go of it."""
    config, _ = whole
    lock, path = runs_directory.take_lock, tmp_path / "run"
    first = Job.build(config)
    second = Job.build(config.updated({"run": {"seed": 9}}))

    def late(where: Path) -> object:
        monkeypatch.setattr(runs_directory, "take_lock", lock)
        RunDirectory.create(where, first).close()
        return lock(where)

    monkeypatch.setattr(runs_directory, "take_lock", late)
    with pytest.raises(RunError, match=r"not empty.*fedpurin resume"):
        RunDirectory.create(path, second)
    with RunDirectory.open(path) as kept:
        assert kept.config() == config


def test_a_federation_has_one_command_at_a_time(whole: tuple[Config, Path], tmp_path: Path) -> None:
    config, _ = whole
    job = Job.build(config.updated({"run": {"engine": "flower"}}))
    RunDirectory.create(tmp_path / "run", job).close()
    before = sorted(path.name for path in (tmp_path / "run").iterdir())
    with alone(tmp_path / "run"), pytest.raises(RunError, match="being run by another command"):
        engine.resume_run(tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted([*before, "federation"])


def test_a_federation_killed_after_its_last_round_still_hands_over_its_models(tmp_path: Path) -> None:
    """result.json is there, the models are still with the sites."""
    run = tmp_path / "run"
    for client in range(2):
        site = run / "federation" / f"site-{client}" / "abc"
        site.mkdir(parents=True)
        (site / "model.safetensors").write_bytes(bytes([client]))
    (run / "result.json").write_text('{"digest": "d"}')
    assert engine.resume_run(run) == {"digest": "d"}
    assert [(run / "models" / f"client-000{c}.safetensors").read_bytes() for c in (0, 1)] == [b"\0", b"\1"]
    assert not (run / "federation").exists()


def test_two_processes_may_make_one_folder_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OtherWasFirst(files.Disk):
        def make_folder(self, path: Path) -> None:
            path.mkdir()
            super().make_folder(path)

    monkeypatch.setattr(files, "disk", OtherWasFirst())
    files.make_folders(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(FileExistsError):
        files.make_folders(tmp_path / "a")
