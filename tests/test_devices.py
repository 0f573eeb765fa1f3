"""Devices and precision. No GPU is at hand: CUDA's part is tested by pretence, bfloat16 on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fedpurin
from engine_tools import assert_same_runs, run, run_until
from fedpurin import devices
from fedpurin.config import Config
from fedpurin.engines.local import can_hand_over
from fedpurin.engines.ray import gpu_share
from fedpurin.engines.simulate import resume_run
from fedpurin.errors import ConfigError
from fedpurin.sections import RunSection
from fedpurin.train import evaluate, train
from tiny import tiny_config, tiny_job


@pytest.fixture
def no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


# Which device


def test_auto_takes_cuda_then_mps_then_cpu(no_devices: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices.chosen("auto") == "cpu"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert devices.chosen("auto") == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert devices.chosen("auto") == "cuda"
    assert devices.chosen("cpu") == "cpu"


def test_a_device_that_is_not_there_is_refused(no_devices: None) -> None:
    devices.check_device("cpu")
    for device in ("cuda", "cuda:0", "mps"):
        with pytest.raises(
            ConfigError, match=f"run.device = '{device}', but torch .* choose run.device = cpu"
        ):
            devices.place(device)


def test_a_gpu_beyond_the_last_is_refused(two_gpus: None) -> None:
    assert devices.place("cuda:1", worker=2) == "cuda:1"
    with pytest.raises(ConfigError, match="devices 0 to 1 only"):
        devices.place("cuda:2")


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:-1", "auto:1", "cuda:x"])
def test_a_device_that_cannot_be_is_refused_with_the_choices(device: str) -> None:
    with pytest.raises(ConfigError, match="choose auto, cpu, cuda"):
        Config().updated({"run": {"device": device}})


def test_workers_take_turns_over_the_gpus(two_gpus: None) -> None:
    assert [devices.place("cuda", worker) for worker in range(5)] == [f"cuda:{i}" for i in (0, 1, 0, 1, 0)]
    assert devices.place("auto", worker=3) == "cuda:1"


@pytest.mark.parametrize(
    ("device", "gpus", "workers", "share"),
    [("cuda", 2, 8, 0.25), ("auto", 1, 3, 0.3333), ("cuda", 8, 2, 1.0), ("cpu", 2, 2, 0), ("auto", 0, 2, 0)],
)
def test_ray_gives_each_actor_its_part_of_a_gpu(device: str, gpus: float, workers: int, share: float) -> None:
    assert gpu_share(device, gpus, workers) == share
    assert share * workers <= gpus


def test_python_objects_reach_workers_by_fork_only_where_these_use_no_gpu(
    two_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tiny_job("fedavg", run__device="auto", run__method="fedavg")
    assert can_hand_over(job)
    job = replace(job, given=fedpurin.given.Given())
    assert not can_hand_over(job)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr("sys.platform", "linux")
    assert can_hand_over(job)


def test_a_run_with_auto_says_what_it_took_and_goes_on_after_a_stop(
    no_devices: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config("fedpurin", tmp_path, run__engine="inline")
    run(config, tmp_path / "cpu")
    auto = config.updated({"run": {"device": "auto"}})
    run_until(auto, tmp_path / "auto", 3)
    assert json.loads((tmp_path / "auto" / "environment.json").read_text())["device"] == "cpu"
    assert Config.from_toml(tmp_path / "auto" / "config.toml").run.device == "auto"
    resume_run(tmp_path / "auto")
    assert_same_runs(tmp_path / "auto", tmp_path / "cpu")


def test_where_others_choose_the_record_says_so(two_gpus: None) -> None:
    assert devices.record(RunSection(device="auto")) == "cuda"
    assert (
        devices.record(RunSection(device="auto", engine="flower")) == "auto, chosen where each client trains"
    )
    assert devices.record(RunSection(device="cpu", engine="ray")) == "cpu"


# On the device


class Traced:
    """What is asked of a tensor on its way to a GPU."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def pin_memory(self) -> Traced:
        self.asked.append("pinned")
        return self

    def to(self, device: str, **options: bool) -> Traced:
        self.asked.append((device, options))
        return self


def test_samples_go_to_a_gpu_from_pinned_memory_and_are_not_waited_for() -> None:
    x: Any = Traced()
    devices.upload(x, "cuda:1")
    assert x.asked == ["pinned", ("cuda:1", {"non_blocking": True})]
    plain = torch.arange(3)
    assert devices.upload(plain, "cpu") is plain


def test_every_method_runs_on_another_device() -> None:
    """In a process of its own: torch cannot be forked once it trained on a device, and other tests fork."""
    cases = Path(__file__).with_name("pretended_cases.py")
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", str(cases)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


# Mixed precision


class Watched(nn.Module):
    """Remembers in which types its layer computed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 3)
        self.seen: list[torch.dtype] = []

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x.flatten(1))
        self.seen.append(out.dtype)
        return out


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_training_and_evaluation_compute_in_the_precision_that_is_set(precision: str) -> None:
    job = tiny_job("fedavg", train__precision=precision)
    watched = Watched()
    model = devices.prepared(watched, "cpu", precision)
    outputs: list[Tensor] = []

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        outputs.append(model(x))
        return F.cross_entropy(outputs[-1], y)

    train(model, job.client_data(0), job.config.train, loss, 1, "cpu")
    evaluate(model, job.client_data(0), "cpu")
    assert set(watched.seen) == {getattr(torch, precision)}
    assert {output.dtype for output in outputs} == {torch.float32}
    for p in model.parameters():
        assert p.dtype == torch.float32
        assert p.grad is not None
        assert p.grad.dtype == torch.float32


def test_the_forward_pass_is_that_of_torch_autocast() -> None:
    job = tiny_job("fedavg")
    x = torch.rand(4, 1, 4, 4)
    plain, ours = job.model(0).eval(), devices.prepared(job.model(0).eval(), "cpu", "bfloat16")
    with torch.autocast("cpu", torch.bfloat16):
        expected = plain(x).float()
    assert torch.equal(ours(x), expected)
    assert not torch.equal(ours(x), plain(x))


@pytest.mark.parametrize("method", ["fedpurin", "pfedsd", "fedfrugal"])
def test_bfloat16_gives_one_digest_with_any_number_of_workers(method: str, tmp_path: Path) -> None:
    config = tiny_config(method, tmp_path, train__precision="bfloat16", run__rounds=3)
    run(config.updated({"run": {"engine": "inline"}}), tmp_path / "inline")
    run(config.updated({"run": {"workers": 2}}), tmp_path / "local")
    assert_same_runs(tmp_path / "inline", tmp_path / "local")
    exact = run(
        config.updated({"run": {"engine": "inline"}, "train": {"precision": "float32"}}), tmp_path / "exact"
    )
    assert exact["digest"] != json.loads((tmp_path / "local" / "result.json").read_text())["digest"]


def test_a_models_output_of_another_kind_is_left_to_the_check_of_the_model() -> None:
    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x

    assert isinstance(devices.prepared(Pair(), "cpu", "bfloat16")(torch.ones(1)), tuple)


def test_the_precision_is_a_setting_of_the_experiment_and_of_python_calls(tmp_path: Path) -> None:
    data = {name: (torch.rand(12, 4), torch.arange(12) % 2) for name in "ab"}
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    found = fedpurin.run(
        model=model, data=data, rounds=2, precision="bfloat16", device="auto", engine="inline",
        out=tmp_path / "run", progress=False,
    )  # fmt: skip
    stored = Config.from_toml(found.path / "config.toml")
    assert (stored.train.precision, stored.run.device) == ("bfloat16", "auto")
    with pytest.raises(fedpurin.FedpurinError, match="holds another run"):
        fedpurin.run(model=model, data=data, rounds=2, engine="inline", out=tmp_path / "run", progress=False)
