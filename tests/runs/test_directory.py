"""The run directory: whole files, one writer, a digest that anybody can compute again."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from engine_tools import run
from fedpurin.config import Config
from fedpurin.core.bits import pack_bits, unpack_bits
from fedpurin.engines import simulate
from fedpurin.engines.driver import Watcher
from fedpurin.engines.inline import InlineWorkers
from fedpurin.errors import ModelError, RunError
from fedpurin.files import check_writable, write_atomic, write_with
from fedpurin.job import Job
from fedpurin.result import load_result
from fedpurin.runs import checkpoints as runs_checkpoints
from fedpurin.runs.directory import LOGS, RunDirectory, stored_config
from fedpurin.runs.ledger import Ledger
from fedpurin.runs.models import run_digest
from fedpurin.runs.places import default_path
from fedpurin.runs.run import load_run
from fedpurin.runs.unwritable import UnwritableError
from fedpurin.train import evaluate
from tiny import tiny_config, tiny_job


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "make_transport", InlineWorkers)
        run(tiny_config("fedpurin", folder, run__rounds=3, method__beta=2), folder / "run")
    return folder / "run"


def test_the_digest_can_be_computed_from_the_directory_alone(finished: Path) -> None:
    """SHA-256 of each client's SHA-256 of parameters, buffers by name and last mask; then the ledger."""
    index = load_file(finished / "checkpoints" / "round-00003" / "server.safetensors")
    masks = (finished / "checkpoints" / "masks.rows").read_bytes()
    layers = [layer["name"] for layer in json.loads((finished / "layout.json").read_text())["layers"]]
    whole = hashlib.sha256()
    for client in range(4):
        model = load_file(finished / "models" / f"client-{client:04d}.safetensors")
        own = hashlib.sha256()
        for name in [*layers, *sorted(set(model) - set(layers))]:
            own.update(model[name].numpy().tobytes())
        at = int(index["masks.slot"][client]) * 4096  # docs/run-directory.md
        own.update(masks[at : at + int(index["masks.size"])])
        whole.update(own.digest())
    whole.update((finished / "ledger.jsonl").read_bytes())
    assert json.loads((finished / "result.json").read_text())["digest"] == whole.hexdigest()


def test_saved_models_load_and_are_the_ones_that_were_evaluated(finished: Path) -> None:
    job = Job.build(Config.from_toml(finished / "config.toml"))
    final = json.loads((finished / "metrics.jsonl").read_text().splitlines()[-1])
    for client in range(4):
        model = job.model(client)
        model.load_state_dict(load_file(finished / "models" / f"client-{client:04d}.safetensors"))
        score = evaluate(model, job.client_data(client), "cpu")
        assert score.accuracy == final["merged"]["accuracy"][client]
        assert score.loss == pytest.approx(final["merged"]["loss"][client], rel=1e-6)


def test_coverage_counts_rounds(finished: Path) -> None:
    coverage = load_file(finished / "coverage.safetensors")
    assert coverage["client_ids"].tolist() == [0, 1, 2, 3]
    assert coverage["rounds"].tolist() == [3]
    lines = [json.loads(line) for line in (finished / "ledger.jsonl").read_text().splitlines()]
    for client in range(4):
        critical = sum(x["critical"] for x in lines if x["direction"] == "up" and x["client"] == client)
        assert int(coverage["client_counts"][client].sum()) == critical
    assert 0 < int(coverage["server_counts"].max()) <= 3


def test_layout_and_clients_are_described(finished: Path) -> None:
    layout = json.loads((finished / "layout.json").read_text())
    assert (layout["parameters"], layout["exchanged"]) == (135, 123)
    kinds = {layer["name"]: (layer["kind"], layer["exchanged"]) for layer in layout["layers"]}
    assert kinds["2.weight"] == ("norm", False)
    assert kinds["4.bias"] == ("head", True)
    clients = json.loads((finished / "clients.json").read_text())
    assert clients["train_samples"] == [12, 9, 20, 6]
    assert [sum(counts) for counts in clients["train_counts"]] == [12, 9, 20, 6]
    environment = json.loads((finished / "environment.json").read_text())
    assert environment["torch"] == torch.__version__
    assert environment.keys() >= {"fedpurin", "python", "cpu", "git_commit", "command"}


def test_only_the_two_newest_checkpoints_are_kept(finished: Path) -> None:
    folders = sorted(p.name for p in (finished / "checkpoints").iterdir() if p.is_dir())
    assert folders == ["round-00002", "round-00003"]


def test_the_digest_of_a_run_depends_on_order_and_ledger() -> None:
    a, b = "aa" * 32, "bb" * 32
    digests = {run_digest([a, b], b"x"), run_digest([b, a], b"x"), run_digest([a, b], b"y")}
    assert len(digests) == 3
    assert run_digest([a], b"x") == hashlib.sha256(bytes.fromhex(a) + b"x").hexdigest()


def test_missing_clients_leave_no_digest(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    directory = RunDirectory.open(tmp_path / "run")
    result = directory.finish({0: "aa" * 32, 2: "bb" * 32}, 4)
    directory.close()
    assert result["digest"] is None
    assert result["missing_clients"] == [1, 3]


EDITS = [
    ("lr = 0.1", "lr = 0.77", r"other settings.*train\.lr was its default, is 0\.77"),
    ("beta = 2", "beta = 4", r"method\.beta was 2, is 4"),
    ("rounds = 3", "rounds = 5", r"run\.rounds was 3, is 5"),
    ("lr = 0.1", "lr = -1.0", r"config\.toml is damaged: train\.lr = -1\.0"),
]


@pytest.mark.parametrize(("old", "new", "said"), EDITS)
def test_a_finished_run_is_not_shown_as_one_of_other_settings(
    finished: Path, tmp_path: Path, old: str, new: str, said: str
) -> None:
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    text = (path / "config.toml").read_text()
    assert old in text
    (path / "config.toml").write_text(text.replace(old, new))
    for read in (load_run, load_result):
        with pytest.raises(RunError, match=said):
            read(path)


def test_a_finished_run_says_what_it_was_made_with_even_if_the_file_was_edited_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulate, "make_transport", InlineWorkers)
    config = tiny_config("fedavg", tmp_path, run__rounds=2)
    path = tmp_path / "run"

    class Edit(Watcher):
        def finishing(self, asked: int) -> None:
            (path / "config.toml").write_text(config.updated({"data": {"alpha": 0.7}}).to_toml())

    run(config, path, Edit())
    (path / "config.toml").write_text(config.to_toml())
    assert load_run(path).summary["alpha"] == config.data.alpha


def test_results_that_do_not_say_what_they_were_made_with_are_read(finished: Path, tmp_path: Path) -> None:
    """Those of version 0.1; and what decides no number may change."""
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    text = (path / "config.toml").read_text()
    (path / "config.toml").write_text(text.replace("workers = 0", "workers = 3"))
    assert load_run(path).complete
    result = json.loads((path / "result.json").read_text())
    del result["setting"]
    (path / "result.json").write_text(json.dumps(result))
    (path / "config.toml").write_text(text.replace("lr = 0.1", "lr = 0.77"))
    assert load_run(path).complete


def test_one_writer_at_a_time(finished: Path) -> None:
    first = RunDirectory.open(finished)
    with pytest.raises(RunError, match="being written by another process"):
        RunDirectory.open(finished)
    first.close()
    RunDirectory.open(finished).close()


def test_a_model_that_cannot_be_built_leaves_no_directory(tmp_path: Path) -> None:
    job = tiny_job("fedavg", model__name="nonsense")
    with pytest.raises(ModelError):
        RunDirectory.create(tmp_path / "new", job)
    assert not (tmp_path / "new").exists()


def test_a_directory_in_use_is_refused_with_the_fitting_remedy(tmp_path: Path, finished: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("dear")
    with pytest.raises(RunError, match=r"not empty.*or empty it"):
        RunDirectory.create(tmp_path / "letters", tiny_job())
    with pytest.raises(RunError, match="fedpurin resume"):
        RunDirectory.create(finished, tiny_job())
    RunDirectory.open(finished).close()  # the refusal left no lock behind


def test_a_directory_whose_making_was_broken_off_is_made_anew(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path, tiny_job()).close()
    (tmp_path / "config.toml").rename(tmp_path / ".config.toml.123.tmp")
    RunDirectory.create(tmp_path, tiny_job()).close()
    assert not list(tmp_path.glob("*.tmp"))
    (tmp_path / "config.toml").unlink()
    (tmp_path / "metrics.jsonl").write_text("{}\n")  # somebody's rounds
    with pytest.raises(RunError, match=r"not empty.*or empty it"):
        RunDirectory.create(tmp_path, tiny_job())


def test_an_empty_directory_is_welcome(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, tiny_job())
    assert directory.config() == tiny_job().config
    assert not directory.complete
    assert directory.rewind() == (0, {})
    directory.close()


def test_names_of_new_directories_say_what_they_hold(tmp_path: Path) -> None:
    config = Config().updated({"data": {"dataset": "my.module:data", "alpha": 0.25}, "run": {"seed": 3}})
    first = default_path(config, tmp_path)
    assert first.name == "fedpurin-my-module-data-a0.25-s3"
    first.mkdir()
    assert default_path(config, tmp_path).name == f"{first.name}-2"


# Files


def test_a_file_never_takes_the_place_of_a_pipe_or_a_device(tmp_path: Path) -> None:
    """Found by hand: a report to /dev/full, by root, left a file there."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RunError, match="pipe cannot be written: it is a pipe or a device"):
        check_writable(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is a pipe"):
        write_atomic(tmp_path / "pipe", "text")
    assert (tmp_path / "pipe").is_fifo()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "f"
    write_atomic(file, "old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_with(file, fail)
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["f"]


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_is_reported_with_the_way_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory.create(tmp_path, tiny_job())
    monkeypatch.setattr(os, "fsync", _full)
    with pytest.raises(RunError, match=r"No space left on device; make room, then: fedpurin resume"):
        directory.append({"round": 1}, [])
    directory.close()


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EACCES, "make it writable"),
        (errno.EISDIR, "move away what is there"),
        (errno.EFBIG, "raise the limit on the size of files"),
        (None, "mend that"),
    ],
)
def test_only_a_full_disk_needs_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None, remedy: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number), "/x/there") if number else OSError("a symbolic link")

    directory = RunDirectory.create(tmp_path, tiny_job())
    monkeypatch.setattr(os, "fsync", fail)
    named, reason = (r" \(/x/there\)", os.strerror(number)) if number else ("", "a symbolic link")
    said = rf"cannot write to {tmp_path}{named}: {reason}; {remedy}.*, then: fedpurin"
    with pytest.raises(RunError, match=said):
        directory.append({"round": 1}, [])
    directory.close()


def test_a_disk_that_fills_up_inside_a_tensor_file_is_reported_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    directory = RunDirectory.create(tmp_path, tiny_job())
    monkeypatch.setattr(runs_checkpoints, "save_file", full)
    with pytest.raises(RunError, match=r"No space left on device; make room, then: fedpurin resume"):
        directory.checkpoint(1, {"part": {"x": torch.tensor([1])}})
    directory.close()


def test_the_checkpoint_a_run_went_back_to_stays_until_there_is_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory.create(tmp_path, tiny_job())
    for t in (1, 2, 3):
        directory.checkpoint(t, {"part": {"x": torch.tensor([t])}})
    (tmp_path / "checkpoints" / "round-00003" / "part.safetensors").write_bytes(b"damaged")
    assert directory.rewind() == (2, {"part": {"x": torch.tensor([2])}})
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", _full)
        with pytest.raises(RunError, match="No space left"):
            directory.checkpoint(3, {"part": {"x": torch.tensor([30])}})
    assert directory.rewind()[0] == 2
    directory.checkpoint(3, {"part": {"x": torch.tensor([30])}})
    assert directory.rewind() == (3, {"part": {"x": torch.tensor([30])}})
    directory.close()


def test_checkpoints_are_in_the_order_of_their_rounds_however_many_digits_they_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the new one cannot be written, the one before it is still there."""
    directory = RunDirectory.create(tmp_path, tiny_job(run__rounds=200_000))
    part = {"part": {"x": torch.tensor([1])}}
    for t in (99_998, 99_999):
        directory.checkpoint(t, part)
    with monkeypatch.context() as broken:
        broken.setattr(runs_checkpoints, "write_tensors", _full)
        with pytest.raises(RunError, match="No space left"):
            directory.checkpoint(100_000, part)
    assert (directory.rewind()[0], directory.warnings) == (99_999, [])
    directory.checkpoint(100_000, part)
    assert directory.rewind()[0] == 100_000
    directory.checkpoint(100_001, part)
    names = [path.name for path in runs_checkpoints.checkpoints(tmp_path / "checkpoints")]
    assert names == ["round-100000", "round-100001"]
    directory.close()


# Pipes


@pytest.fixture
def soon() -> Iterator[None]:
    """What waits without end fails after ten seconds instead."""

    def give_up(number: int, frame: object) -> None:
        raise TimeoutError("waits for a pipe")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


IN_A_RUN = [
    *("config.toml", "metrics.jsonl", "ledger.jsonl", "layout.json", "clients.json", "environment.json"),
    *("result.json", "coverage.safetensors", "models/client-0001.safetensors"),
    *("checkpoints/round-00003/checkpoint.json", "checkpoints/round-00003/server.safetensors"),
    *("checkpoints/round-00002/server.safetensors", "checkpoints/clients.rows"),
]


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("name", IN_A_RUN)
def test_nobody_waits_for_a_pipe(
    finished: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the place of any file. Who does not need the file may go on without it."""
    monkeypatch.setattr(simulate, "make_transport", InlineWorkers)
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    (path / name).unlink()
    os.mkfifo(path / name)
    for read in (load_run, Ledger.load, lambda path: load_run(path).coverage(), _models, _resume_again):
        with contextlib.suppress(RunError):
            read(path)


def _models(path: Path) -> None:
    load_result(path).client(1).state_dict()


def _resume_again(path: Path) -> None:
    if (path / "result.json").is_file():
        (path / "result.json").unlink()
    simulate.resume_run(path)


# Going back


@pytest.fixture
def three_rounds(tmp_path: Path) -> Iterator[RunDirectory]:
    """Three rounds in the logs, checkpoints of rounds 2 and 3."""
    directory = RunDirectory.create(tmp_path / "run", tiny_job())
    for t in (1, 2, 3):
        directory.append({"round": t}, [{"message": t}])
        directory.checkpoint(t, {"part": {"x": torch.tensor([t])}})
    yield directory
    directory.close()


def logs(directory: RunDirectory) -> list[list[str]]:
    return [(directory.path / log).read_text().splitlines() for log in LOGS]


def damage(directory: RunDirectory, t: int) -> None:
    (directory.path / "checkpoints" / f"round-{t:05d}" / "part.safetensors").write_bytes(b"damaged")


def test_going_back_to_an_older_checkpoint_is_said(three_rounds: RunDirectory) -> None:
    damage(three_rounds, 3)
    assert three_rounds.rewind()[0] == 2
    (warning,) = three_rounds.warnings
    assert "round-00003 is damaged" in warning
    assert [len(lines) for lines in logs(three_rounds)] == [2, 2]


@pytest.mark.parametrize("log", LOGS)
def test_a_changed_log_is_found_by_its_checksum(three_rounds: RunDirectory, log: str) -> None:
    """Still JSON, still as long: round 3's line says something else. Round 2's checkpoint covers less."""
    file = three_rounds.path / log
    file.write_bytes(file.read_bytes().replace(b"3}", b"7}"))
    assert three_rounds.rewind()[0] == 2
    assert f"{log} is not as it was" in three_rounds.warnings[0]


def test_checkpoints_without_checksums_of_the_logs_are_read(three_rounds: RunDirectory) -> None:
    """Those of version 0.1."""
    file = three_rounds.path / "checkpoints" / "round-00003" / "checkpoint.json"
    about = json.loads(file.read_text())
    del about["log_checksums"]
    file.write_text(json.dumps(about))
    assert three_rounds.rewind()[0] == 3
    three_rounds.append({"round": 4}, [])
    three_rounds.checkpoint(4, {"part": {"x": torch.tensor([4])}})
    assert three_rounds.rewind()[0] == 4
    assert three_rounds.warnings == []


@pytest.mark.parametrize("name", ["serve" + 5000 * "[", "../../elsewhere", "rest"])
def test_a_checkpoint_that_names_a_part_it_has_not_gives_way(three_rounds: RunDirectory, name: str) -> None:
    """The first was an error of the file system, on which a resume gives up; found by fuzzing."""
    file = three_rounds.path / "checkpoints" / "round-00003" / "checkpoint.json"
    about = json.loads(file.read_text())
    about["checksums"] = {name: 0}
    file.write_text(json.dumps(about))
    assert three_rounds.rewind()[0] == 2
    assert "names parts that are not there" in three_rounds.warnings[0]


def test_what_a_killed_process_had_begun_to_write_is_cleared_away(three_rounds: RunDirectory) -> None:
    begun = [three_rounds.path / ".result.json.99.tmp", three_rounds.path / "models" / ".tmpX1y2Z3"]
    (three_rounds.path / "models").mkdir()
    for file in begun:
        file.write_bytes(b"half")
    assert three_rounds.rewind()[0] == 3
    assert not any(file.exists() for file in begun)


def test_a_whole_checkpoint_needs_no_warning(three_rounds: RunDirectory) -> None:
    assert three_rounds.rewind()[0] == 3
    assert three_rounds.warnings == []


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_checkpoint_that_cannot_be_read_for_now_changes_nothing(
    three_rounds: RunDirectory, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    before = logs(three_rounds)
    monkeypatch.setattr(runs_checkpoints, "checksum", fail)
    with pytest.raises(RunError, match=rf"{os.strerror(number)}; nothing was changed; .*fedpurin resume"):
        three_rounds.rewind()
    assert logs(three_rounds) == before


def test_logs_are_kept_when_no_checkpoint_is_left(three_rounds: RunDirectory) -> None:
    before = logs(three_rounds)
    for t in (2, 3):
        damage(three_rounds, t)
    assert three_rounds.rewind() == (0, {})
    assert logs(three_rounds) == [[], []]
    kept = [(three_rounds.path / f"{log}.bak").read_text().splitlines() for log in LOGS]
    assert kept == before
    assert "metrics.jsonl is kept as" in three_rounds.warnings[3]


@pytest.mark.parametrize("line", ['{"round": NaN}', '{"round": Infinity}', "[]", "nonsense"])
@pytest.mark.parametrize("checkpoints", [True, False])
def test_logs_that_cannot_be_read_are_kept_too(
    three_rounds: RunDirectory, line: str, checkpoints: bool
) -> None:
    """Found by hand: the first two ended in a traceback, the others in a run that could not go on."""
    (three_rounds.path / "metrics.jsonl").write_text(line + "\n{}\n")
    if not checkpoints:
        shutil.rmtree(three_rounds.path / "checkpoints")
    assert three_rounds.rewind() == (0, {})
    assert any("begins anew; metrics.jsonl is kept as" in text for text in three_rounds.warnings)
    assert (three_rounds.path / "metrics.jsonl.bak").read_text() == line + "\n{}\n"


def test_logs_kept_before_are_not_overwritten(three_rounds: RunDirectory) -> None:
    (three_rounds.path / "metrics.jsonl.bak").write_text("of an earlier accident")
    shutil.rmtree(three_rounds.path / "checkpoints")
    assert three_rounds.rewind() == (0, {})
    assert (three_rounds.path / "metrics.jsonl.bak").read_text() == "of an earlier accident"
    assert len((three_rounds.path / "metrics.jsonl.bak2").read_text().splitlines()) == 3


def test_a_run_that_never_came_to_a_checkpoint_begins_anew_without_a_word(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, tiny_job())
    directory.append({"round": 1}, [{"message": 1}])
    assert directory.rewind() == (0, {})
    assert (logs(directory), directory.warnings) == ([[], []], [])
    assert not list(tmp_path.glob("*.bak"))
    directory.close()


@pytest.mark.parametrize("d", [1, 7, 8, 9, 64])
def test_packed_masks_are_least_significant_bit_first(d: int) -> None:
    mask = torch.arange(2 * d).view(2, d) % 3 == 0
    packed = pack_bits(mask)
    assert packed.shape == (2, -(-d // 8))
    assert torch.equal(unpack_bits(packed, d), mask)
    for row in range(2):
        expected = sum(int(bit) << j for j, bit in enumerate(mask[row].tolist()))
        assert int.from_bytes(packed[row].numpy().tobytes(), "little") == expected


def test_a_stored_configuration_without_end_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "config.toml").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(RunError, match=r"cannot be read: .*it is larger than 16 MiB"):
        stored_config(tmp_path)


def test_a_folder_that_was_made_without_permissions_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with umask 777: not even whether it is a run can be seen."""

    def denied(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("fedpurin.runs.unwritable.is_run", denied)
    problem = UnwritableError(tmp_path, PermissionError(13, "Permission denied", str(tmp_path / ".lock")))
    assert str(problem).endswith(".lock): Permission denied; make it writable")
