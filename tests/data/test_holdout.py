"""Validation samples are held out of a client's training samples, and of nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpurin.config import Config
from fedpurin.data import hold_out
from fedpurin.errors import ConfigError, DataError
from fedpurin.job import Job
from fedpurin.train import ClientData
from tiny import tiny_job


def test_the_samples_that_come_first_in_the_rank_are_held_out() -> None:
    rank = np.array([5, 0, 3, 1, 4, 2])
    train, held = hold_out(np.array([0, 2, 4, 5]), 0.5, rank, 0)  # ranks 5, 3, 4, 2: the least are of 5 and 2
    assert held.tolist() == [2, 5]
    assert train.tolist() == [0, 4]


@pytest.mark.parametrize(
    ("samples", "share", "held"), [(50, 0.2, 10), (9, 0.1, 1), (3, 0.01, 1), (2, 0.9, 1)]
)
def test_at_least_one_sample_is_held_out_and_one_is_left(samples: int, share: float, held: int) -> None:
    train, validation = hold_out(np.arange(samples), share, np.arange(samples), 0)
    assert (len(train), len(validation)) == (samples - held, held)


def test_copies_of_a_sample_stay_together() -> None:
    """The paper's split draws a sample twice where a class has too few."""
    train, held = hold_out(np.array([7, 3, 7, 1, 3]), 0.4, np.arange(8), 0)
    assert held.tolist() == [1]  # 0.4 * 3 distinct samples
    assert train.tolist() == [7, 3, 7, 3]
    train, held = hold_out(np.array([3, 7, 3]), 0.5, np.arange(8), 0)
    assert (held.tolist(), train.tolist()) == ([3, 3], [7])


def test_a_client_with_one_sample_is_told_so() -> None:
    with pytest.raises(DataError, match=r"client 4 has one training sample.*data.validation = 0$"):
        hold_out(np.array([8, 8]), 0.1, np.arange(9), 4)


def split_job(seed: int = 1, **data: float | str) -> Job:
    settings = {"train_samples": 40, "test_samples": 10, "alpha": 0.1, "validation": 0.25, **data}
    return Job.build(Config().updated({"run": {"clients": 8, "seed": seed}, "data": settings}))


def test_a_client_trains_on_exactly_the_rest_and_is_tested_on_the_same_samples_as_ever() -> None:
    job, without = split_job(), split_job(validation=0.0)
    assert job.split is not None
    assert without.split is not None
    assert job.split.fingerprint == without.split.fingerprint
    for client, all_of_it in enumerate(job.split.train):
        train, held = job.training[client], job.validation[client]
        assert not set(train) & set(held)
        assert sorted([*train, *held]) == sorted(all_of_it)
        data, whole = job.client_data(client), without.client_data(client)
        assert data.validation is not None
        assert whole.validation is None
        assert torch.equal(data.train_y, whole.train_y[torch.from_numpy(~np.isin(all_of_it, held))])
        assert torch.equal(data.test_x, whole.test_x)
        assert torch.equal(data.test_y, whole.test_y)
        assert len(data.train_y) + len(data.validation[1]) == 40


def test_clients_that_share_a_sample_mostly_hold_it_out_together() -> None:
    """8 clients x 800 of the 6,000 bundled samples."""
    job = split_job(train_samples=800)
    assert job.split is not None
    everywhere = {int(i) for held in job.validation for i in held}
    trained = {int(i) for train in job.training for i in train}
    shared = [i for i in everywhere if sum(i in part for part in job.split.train) > 1]
    assert len(shared) > 100
    assert len([i for i in shared if i in trained]) < len(shared) / 2


def test_the_choice_depends_on_the_seed_of_the_split_alone() -> None:
    first, again, other = split_job(), split_job(), split_job(seed=2)
    order = split_job().config.updated({"run": {"order_seed": 9, "model_seed": 9, "method": "fedavg"}})
    pairs = zip(first.validation, again.validation, Job.build(order).validation, strict=True)
    assert all(np.array_equal(a, b) and np.array_equal(a, c) for a, b, c in pairs)
    assert not all(np.array_equal(a, b) for a, b in zip(first.validation, other.validation, strict=True))


def test_a_sites_own_data_are_divided_by_its_client_number() -> None:
    job = tiny_job(data__validation=0.3)
    x, y = torch.arange(20.0)[:, None], torch.arange(20) % 3
    sides = [job.own_data(ClientData(x, y, x[:3], y[:3]), client) for client in (0, 1)]
    for data in sides:
        assert data.validation is not None
        assert len(data.validation[1]) == 6
        assert sorted([*data.train_x[:, 0].tolist(), *data.validation[0][:, 0].tolist()]) == x[:, 0].tolist()
        assert torch.equal(data.test_x, x[:3])
    assert not torch.equal(sides[0].train_x, sides[1].train_x)
    plain = ClientData(x, y, x[:3], y[:3])
    assert tiny_job().own_data(plain, 0) is plain


def test_clients_json_counts_what_is_trained_on() -> None:
    about = split_job().describe_clients()
    assert about["train_samples"] == [len(part) for part in split_job().training]
    assert about["validation_samples"] == [40 - n for n in about["train_samples"]]
    assert [sum(row) for row in about["train_counts"]] == about["train_samples"]
    assert "validation_samples" not in split_job(validation=0.0).describe_clients()


@pytest.mark.parametrize("share", [-0.1, 0.95, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match=r"data\.validation"):
        Config().updated({"data": {"validation": share}})
