"""`settle` of FedPURIN: choose the mask, then train the last epochs inside it."""

from __future__ import annotations

import pytest
import torch

from fedpurin.core.bits import unpack_bits
from fedpurin.errors import ConfigError
from fedpurin.layout import read_parameters, write_parameters
from fedpurin.methods.base import Ending
from fedpurin.methods.fedpurin import FedPURIN
from fedpurin.train import key, train
from tiny import Federation, tiny_job

SCORES = ["gradient", "delta", "magnitude", "random"]


def settled(score: str, settle: int = 1) -> Federation:
    return Federation(tiny_job("fedpurin", method__score=score, method__settle=settle, train__epochs=3))


@pytest.mark.parametrize("score", SCORES)
def test_what_is_sent_is_what_was_trained(score: str) -> None:
    """Zeroing ends training without `settle`; with it the model was trained as it is sent."""
    fed = settled(score)
    work = fed.work(0, 1)
    weights_D, mask = work.state["weights"], unpack_bits(work.state["mask"], fed.job.selection.d)
    values = fed.job.selection.take(weights_D[None])[0]
    assert (values[~mask] == 0).all()
    assert 0 < mask.sum() < len(mask)
    plain = settled(score, settle=0).work(0, 1)
    assert not torch.equal(plain.state["weights"], weights_D)


def test_the_mask_is_chosen_before_the_last_epoch_and_holds_in_it() -> None:
    """By hand: two epochs, the mask by magnitude, then the third with zeros put back after each step."""
    fed = settled("magnitude")
    job, site = fed.job, fed.site
    state, data = site.initial_state(0), job.client_data(0)
    seed = key(job.config.run.order_seed_used, "training", 1, 0)
    model = job.model(0)
    write_parameters(model, state["weights"])
    chosen: list[torch.Tensor] = []

    def choose() -> torch.Tensor:
        now_D = read_parameters(model)
        magnitude_nd = job.selection.take(now_D.abs()[None])
        everything = torch.ones(1, len(now_D), dtype=torch.bool)
        start = 0
        for size in job.selection.sizes:
            layer = magnitude_nd[0, start : start + size]
            keep = int(0.5 * size)
            limit = layer.sort(descending=True).values[keep - 1] if keep else float("inf")
            magnitude_nd[0, start : start + size] = layer >= limit
            start += size
        chosen.append(job.selection.put(everything, magnitude_nd.bool())[0])
        return chosen[-1]

    train(
        model,
        data,
        job.config.train,
        lambda m, x, y: FedPURIN.criterion(m(x), y),
        seed,
        "cpu",
        ending=Ending(inside=1),
        choose=choose,
    )
    assert len(chosen) == 1
    end_D = read_parameters(model)
    assert (end_D[~chosen[0]] == 0).all()
    ours = fed.work(0, 1).state
    mask = unpack_bits(ours["mask"], job.selection.d)
    assert torch.equal(mask, job.selection.take(chosen[0][None])[0])
    assert torch.equal(
        job.selection.take(ours["weights"][None])[0][mask], job.selection.take(end_D[None])[0][mask]
    )


def test_without_an_epoch_before_the_mask_it_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the last 3 epochs .* train.epochs = 3 leaves none"):
        settled("gradient", settle=3)


def test_curvature_is_measured_too_late_for_it() -> None:
    with pytest.raises(ConfigError, match="choose another score"):
        settled("curvature")
