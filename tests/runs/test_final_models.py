"""Final models and counts that are not what the run wrote are found when they are read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine_tools import run
from fedpurin.errors import RunError
from fedpurin.reproduce.record import coverage_record, norms_record
from fedpurin.result import load_result
from fedpurin.runs.models import model_file
from fedpurin.runs.run import load_run
from tiny import tiny_config


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "run"
    run(tiny_config("fedpurin", path.parent, run__rounds=2, run__engine="inline"), path)
    return path


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def swapped(path: Path) -> None:
    one, other = model_file(path, 0), model_file(path, 1)
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)


def flipped(path: Path) -> None:
    data = bytearray(model_file(path, 0).read_bytes())
    data[-1] ^= 1
    model_file(path, 0).write_bytes(data)


def truncated(path: Path) -> None:
    os.truncate(model_file(path, 0), 100)


def replaced(path: Path) -> None:
    save_file({"weights": np.zeros(3, np.float32)}, model_file(path, 0))


def piped(path: Path) -> None:
    model_file(path, 0).unlink()
    os.mkfifo(model_file(path, 0))


def removed(path: Path) -> None:
    model_file(path, 0).unlink()


damages = pytest.mark.parametrize("damage", [swapped, flipped, truncated, replaced, piped, removed])


@damages
@pytest.mark.parametrize("known", [True, False])
def test_a_model_that_is_not_the_clients_own_is_refused(
    copy: Path, damage: Callable[[Path], None], known: bool
) -> None:
    """Without checksums, as in results of version 0.1, at least what cannot be read is told in a line."""
    if not known:
        result = json.loads((copy / "result.json").read_text())
        del result["model_checksums"]
        (copy / "result.json").write_text(json.dumps(result))
    damage(copy)
    first = load_result(copy).client(0)
    if known or damage not in (swapped, flipped, replaced):
        with pytest.raises(RunError, match=r"client-0000\.safetensors"):
            first.state_dict()
    else:
        first.state_dict()


@damages
def test_nothing_is_measured_with_such_a_model(copy: Path, damage: Callable[[Path], None]) -> None:
    damage(copy)
    with pytest.raises(RunError, match=r"client-000\d\.safetensors"):
        norms_record(copy)


def test_a_run_of_version_0_1_whose_model_has_other_parameters_is_refused_in_a_line(copy: Path) -> None:
    result = json.loads((copy / "result.json").read_text())
    del result["model_checksums"]
    (copy / "result.json").write_text(json.dumps(result))
    replaced(copy)
    with pytest.raises(RunError, match=r"client-0000\.safetensors is no model of"):
        norms_record(copy)


def test_the_models_of_a_whole_run_are_read_as_they_were_written(finished: Path) -> None:
    for client in range(4):
        assert load_result(finished).client(client).state_dict().keys()


Counts = dict[str, Any]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c.pop("client_counts"), "client_counts is no table of"),
        (lambda c: c.update(rounds=np.array([1])), "counts outside 0..1"),
        (lambda c: c.update(rounds=np.array([], np.int64)), "rounds is no table of 1"),
        (lambda c: c.update(client_ids=np.array(3)), "client_ids is no table of 0"),
        (
            lambda c: c.update(server_counts=c["server_counts"].astype(np.float32)),
            "server_counts is no table",
        ),
        (lambda c: c.update(server_counts=c["server_counts"][:-1].copy()), "server_counts is no"),
        (lambda c: c.update(client_counts=-c["client_counts"] - 1), "client_counts has counts outside"),
    ],
)
@pytest.mark.parametrize("complete", [True, False])
def test_counts_of_critical_parameters_that_do_not_fit_the_run_are_refused(
    copy: Path, change: Callable[[Counts], object], says: str, complete: bool
) -> None:
    file = copy / "coverage.safetensors"
    if not complete:  # those of the newest checkpoint are read instead
        (copy / "result.json").unlink()
        file.unlink()
        file = max(copy.glob("checkpoints/round-*")) / "coverage.safetensors"
    counts = load_file(file)
    change(counts)
    save_file(counts, file)
    with pytest.raises(RunError, match=says):
        coverage_record(copy)


@pytest.mark.parametrize("key", ["shape", "size", "kind", "exchanged"])
def test_a_layer_of_which_not_all_is_said_is_refused(copy: Path, key: str) -> None:
    layout = json.loads((copy / "layout.json").read_text())
    del layout["layers"][0][key]
    (copy / "layout.json").write_text(json.dumps(layout))
    with pytest.raises(RunError, match=f"layout.json is damaged: .* has no {key}"):
        load_run(copy)
