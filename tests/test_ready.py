"""What cannot run is refused before it begins, in one line, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedpurin.errors import ModelError, RunError
from fedpurin.files import check_writable
from fedpurin.ready import check_ready
from tiny import CLASSES, tiny_job

INPUTS = 16


class Pair(nn.Module):
    """As some models do while they train: the scores and something else."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(INPUTS, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor] | Tensor:
        scores: Tensor = self.head(x.flatten(1))
        return (scores, x) if self.training else scores


def sized(outputs: int, inputs: int = INPUTS) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs))


MODELS = {
    "too_few": lambda: sized(CLASSES - 1),
    "too_many": lambda: sized(CLASSES + 1),
    "other_inputs": lambda: sized(CLASSES, inputs=7),
    "not_flat": lambda: nn.Linear(4, CLASSES),
    "a_pair": Pair,
}
too_few, too_many, other_inputs, not_flat, a_pair = MODELS.values()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("too_few", r"too_few gives \[2, 2\] for 2 samples; it must give \[2, 3\]"),
        ("too_many", r"too_many gives \[2, 4\] for 2 samples; it must give \[2, 3\]"),
        ("other_inputs", r"other_inputs fails on samples of shape \[1, 4, 4\]: RuntimeError: mat1 and mat2"),
        ("not_flat", r"not_flat gives \[2, 1, 4, 3\] for 2 samples; it must give \[2, 3\]"),
        ("a_pair", r"a_pair gives a tuple; its forward must return one tensor, \[n, 3\]"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_refused(model: str, says: str) -> None:
    job = tiny_job("fedavg", model__name=f"test_ready:{model}")
    with pytest.raises(ModelError, match=says):
        check_ready(job)


def test_a_model_that_fits_passes_and_no_random_state_moves() -> None:
    job = tiny_job("fedavg")
    before = torch.get_rng_state()
    check_ready(job)
    check_ready(job, torch.zeros(1, *job.shape))  # a site with a single sample
    assert torch.equal(torch.get_rng_state(), before)


def test_where_a_file_can_be_written_is_tried_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    check_writable(tmp_path / "new" / "newer" / "report.html")
    for place in ("file/report.html", "folder"):
        with pytest.raises(RunError, match="cannot be written"):
            check_writable(tmp_path / place)
    with pytest.raises(RunError, match="cannot be written"):
        check_writable(Path("/proc/report.html"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]
