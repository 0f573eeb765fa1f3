"""Every method on a device of pretence; run by test_devices.py in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fedpurin
from engine_tools import assert_same_runs
from fedpurin.engines import site
from fedpurin.methods import AnyMethod
from pretended import NAME, Pretending
from tiny import METHOD_CASES, case_name, job_for


def test_the_pretended_device_refuses_what_a_gpu_refuses() -> None:
    with Pretending():
        there = torch.ones(3).to(NAME)
        assert there.device.type == NAME
        assert torch.equal((there * 2).cpu(), torch.full((3,), 2.0))
        with pytest.raises(RuntimeError, match="same device"):
            there + torch.ones(3)


@pytest.mark.parametrize("method", METHOD_CASES, ids=case_name)
def test_every_method_runs_on_another_device_to_the_same_bytes(
    method: AnyMethod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stays behind on the CPU, or is forgotten on the device, ends in an error."""
    job = job_for(method, run__engine="inline", run__rounds=4, data__validation=0.2)
    simulate_run(replace(job), tmp_path / "cpu")
    used: list[str] = []
    monkeypatch.setattr(site, "place", lambda device: used.append(device) or NAME)
    with Pretending():
        simulate_run(replace(job), tmp_path / "there")
    assert used
    assert_same_runs(tmp_path / "cpu", tmp_path / "there")


def simulate_run(job: Any, path: Path) -> None:
    fedpurin.engines.simulate.run_job(job, path)
