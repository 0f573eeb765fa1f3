"""`fedpurin bench`: what it counts and what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedpurin.bench import training
from fedpurin.bench.command import advice, summary
from fedpurin.bench.training import Rates, flops_per_sample
from fedpurin.cli.main import main


def test_the_limit_counts_forward_and_backward_of_every_layer() -> None:
    def conv(kernel: int, inputs: int, outputs: int, side: int) -> int:
        return 2 * kernel**2 * inputs * outputs * side**2

    first = conv(7, 3, 64, 16)
    blocks = 2 * conv(3, 64, 64, 8)
    blocks += conv(3, 64, 128, 4) + conv(3, 128, 128, 4) + conv(1, 64, 128, 4)
    blocks += conv(3, 128, 256, 2) + conv(3, 256, 256, 2) + conv(1, 128, 256, 2)
    # backward is twice forward: to the weights and to the inputs; the image needs no gradient
    assert flops_per_sample() == 2 * first + 3 * (blocks + 2 * 256 * 10)


def test_ratios_are_taken_inside_a_repetition_before_the_median() -> None:
    # a machine that halves its speed from repetition to repetition changes no ratio
    rates = [
        Rates(ours=1200 / k, task=1000 / k, plain=600 / k, limit=1500 / k, gemm=120 / k) for k in (1, 2, 4)
    ]
    found = {line["key"]: line["median"] for line in summary(rates)}
    assert found["ratio"] == pytest.approx(2.0)
    assert found["share"] == pytest.approx(0.8)
    assert found["ours"] == pytest.approx(600)


def test_a_machine_below_its_limit_gets_advice() -> None:
    slow = [Rates(ours=500, task=400, plain=400, limit=1500, gemm=120)]
    assert "33% of the rate" in advice(summary(slow))
    good = [Rates(ours=1200, task=1000, plain=600, limit=1500, gemm=120)]
    assert advice(summary(good)) == "This machine is set up well."


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file" / "figures.json", Path("/dev/full")):
        assert main(["bench", "--json", str(place)]) == 1
        out, error = capsys.readouterr()
        assert f"{place} cannot be written" in error
        assert "training" not in out


def test_the_figures_are_written_into_a_folder_that_is_made_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = [Rates(ours=1200, task=1000, plain=600, limit=1500, gemm=120)]
    monkeypatch.setattr(training, "measure", lambda repeats: rates)
    assert main(["bench", "--json", str(tmp_path / "new" / "figures.json")]) == 0
    written = json.loads((tmp_path / "new" / "figures.json").read_text())
    assert written["training"] == summary(rates)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["figures.json"]


def test_the_command_line_can_show_its_help_without_torch() -> None:
    code = "import sys, fedpurin.bench.command; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
