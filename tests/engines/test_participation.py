"""Not everybody takes part in every round: who is asked, what is averaged, what a returning client gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedpurin.config import Config
from fedpurin.core.bits import unpack_bits
from fedpurin.engines.driver import Watcher
from fedpurin.engines.hub import Hub
from fedpurin.engines.simulate import resume_run, run_job
from fedpurin.engines.site import Site
from fedpurin.engines.states import State
from fedpurin.job import Job
from fedpurin.methods import METHODS

MASKED = ["fedcac", "fedpurin"]
DENSE = ["fedavg", "fedper", "fedbn", "pfedsd"]


def config(method: str, participation: float, clients: int = 6, rounds: int = 4, **run: Any) -> Config:
    return Config().updated({"method": {"beta": 3}}).updated(
        {
            "run": {
                "method": method, "participation": participation, "clients": clients, "rounds": rounds, **run,
            },
            "data": {"train_samples": 16, "test_samples": 8},
            "model": {"name": "mlp"},
            "train": {"epochs": 1, "batch_size": 8},
        }
    )  # fmt: skip


@dataclass
class Federation:
    """Hub and site in this process; the test says who takes part."""

    job: Job
    states: dict[int, State] = field(default_factory=dict)
    t: int = 0

    def __post_init__(self) -> None:
        self.hub, self.site = Hub(self.job), Site(self.job)
        self.states = {c: self.site.initial_state(c) for c in range(self.job.config.run.clients)}

    def round(self, clients: list[int]) -> dict[str, Any]:
        self.t += 1
        self.hub.begin(self.t, clients)
        for client in clients:
            work = self.site.work(
                client, self.t, self.hub.reply(client), self.states[client], self.job.client_data(client)
            )
            self.hub.accept(client, work.upload, work.meta)
            self.states[client] = work.state
        return self.hub.close(self.t)

    def exchanged(self, client: int) -> Tensor:
        """[d]: as uploaded, for methods that upload everything they exchange."""
        return self.job.selection.take(self.states[client]["weights"][None])[0]

    def mask(self, client: int) -> Tensor:
        return unpack_bits(self.states[client]["mask"], self.job.selection.d)

    def after_reply(self, client: int) -> Tensor:
        """[d]: what the client starts its next round from."""
        finish = self.site.finish(
            client, self.t, self.hub.reply(client), self.states[client], self.job.client_data(client)
        )
        return self.job.selection.take(finish.state["weights"][None])[0]


def federation(method: str, **settings: Any) -> Federation:
    return Federation(Job.build(config(method, 0.5, **settings)))


# Who takes part


def participants(seed: int, participation: float, clients: int) -> list[list[int]]:
    hub = Hub(Job.build(config("fedavg", participation, clients=clients, seed=seed)))
    return [hub.participants(t) for t in range(1, 61)]


def test_the_same_seed_asks_the_same_clients_and_another_seed_others() -> None:
    assert participants(1, 0.2, 20) == participants(1, 0.2, 20)
    assert participants(1, 0.2, 20) != participants(2, 0.2, 20)


def test_a_round_asks_its_share_of_distinct_clients_and_in_time_everybody() -> None:
    rounds = participants(1, 0.1, 20)
    assert all(len(asked) == 2 == len(set(asked)) for asked in rounds)
    assert all(asked == sorted(asked) for asked in rounds)
    # 60 draws of 2 out of 20: a given client is never drawn with probability 0.9^60 = 0.002; seed 1 draws all
    assert set().union(*rounds) == set(range(20))


def test_at_least_one_client_is_asked_and_with_1_0_all() -> None:
    assert all(len(asked) == 1 for asked in participants(1, 0.01, 5))
    assert participants(1, 1.0, 5)[0] == [0, 1, 2, 3, 4]


# What is averaged


@pytest.mark.parametrize("method", [*DENSE, "fedcac"])
def test_the_global_mean_is_that_of_those_present(method: str) -> None:
    fed = federation(method)
    fed.round([0, 1, 2, 3, 4, 5])
    fed.round([1, 4])
    expected = torch.stack([fed.exchanged(1), fed.exchanged(4)]).double().mean(0)
    torch.testing.assert_close(fed.hub.server.theta_bar.double(), expected, rtol=1e-5, atol=1e-7)


def test_fedpurins_global_mean_is_that_of_the_masked_models_of_those_present() -> None:
    fed = federation("fedpurin")
    fed.round([0, 1, 2, 3, 4, 5])
    fed.round([1, 4])
    sent = [torch.where(fed.mask(c), fed.exchanged(c), 0.0).double() for c in (1, 4)]
    torch.testing.assert_close(
        fed.hub.server.theta_bar.double(), torch.stack(sent).mean(0), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("method", MASKED)
def test_overlap_and_collaborators_are_those_of_the_clients_present(method: str) -> None:
    fed = federation(method)
    fed.round([0, 1, 2, 3, 4, 5])
    record = fed.round([1, 2, 5])
    assert record["clients"] == [1, 2, 5]
    assert len(record["overlap"]) == 3
    common = int((fed.mask(1) & fed.mask(5)).sum())
    n1, n5 = int(fed.mask(1).sum()), int(fed.mask(5).sum())
    assert record["overlap"][0][2] == pytest.approx(1 - (n1 + n5 - 2 * common) / (2 * n1), abs=1e-4)
    assert all(set(group) <= {1, 2, 5} for group in record["collaborators"])
    assert all(i not in group for i, group in zip([1, 2, 5], record["collaborators"], strict=True))


# What a client gets that was away


@pytest.mark.parametrize("method", MASKED)
@pytest.mark.parametrize("first", [[0, 1, 2, 3, 4, 5], [0, 2]], ids=["after everybody", "after two"])
def test_a_returning_client_gets_the_latest_mean_and_its_critical_part_as_last_merged(
    method: str, first: list[int]
) -> None:
    fed = federation(method)
    fed.round(first)
    merged = fed.after_reply(0)  # before anything else is aggregated
    old_mean = fed.hub.server.theta_bar.clone()
    mask = fed.mask(0)
    fed.round([1, 2, 3])
    fed.round([2, 4])
    now, mean = fed.after_reply(0), fed.hub.server.theta_bar
    assert not torch.equal(mean[~mask], old_mean[~mask])
    assert torch.equal(now[mask], merged[mask])
    assert torch.equal(now[~mask], mean[~mask])


@pytest.mark.parametrize("method", MASKED)
def test_what_others_do_meanwhile_does_not_touch_a_waiting_critical_part(method: str) -> None:
    fed = federation(method)
    fed.round([0, 1, 2, 3, 4, 5])
    assert fed.hub.kept(0) is not None, "this test needs a client 0 that has collaborators"
    before = torch.where(fed.mask(0), fed.hub.kept(0), 0.0)
    fed.round([1, 2, 3, 4, 5])
    assert torch.equal(torch.where(fed.mask(0), fed.hub.kept(0), 0.0), before)


@pytest.mark.parametrize("method", DENSE)
def test_a_returning_client_of_a_dense_method_gets_the_latest_mean(method: str) -> None:
    fed = federation(method)
    fed.round([0, 1, 2])
    fed.round([1, 2])
    assert torch.equal(fed.after_reply(0), fed.hub.server.theta_bar)


@pytest.mark.parametrize("method", [*DENSE, *MASKED])
def test_a_client_seen_for_the_first_time_late_gets_the_mean_everywhere(method: str) -> None:
    fed = federation(method)
    fed.round([0, 1])
    fed.round([1, 2])
    assert torch.equal(fed.after_reply(5), fed.hub.server.theta_bar)


def test_a_separate_client_goes_on_where_it_stopped() -> None:
    fed = federation("separate")
    fed.round([0, 1])
    stopped = fed.states[0]["weights"].clone()
    fed.round([1])
    assert fed.hub.reply(0) is None
    finish = fed.site.finish(0, fed.t, None, fed.states[0], fed.job.client_data(0))
    assert torch.equal(finish.state["weights"], stopped)


def test_a_reply_carries_the_round_that_was_aggregated_last_not_the_clients_own() -> None:
    fed = federation("fedpurin")
    fed.round([0, 1])
    fed.round([1, 2])
    fed.round([0, 3])
    lines = [line for line in fed.hub.take_ledger() if line["direction"] == "down" and line["client"] == 0]
    assert [line["round"] for line in lines] == [2]  # asked in rounds 1 (nothing to say yet) and 3


def test_somebody_failing_among_all_leaves_its_critical_part_as_it_was() -> None:
    fed = federation("fedpurin")
    fed.round([0, 1, 2, 3, 4, 5])
    waiting = torch.where(fed.mask(3), fed.hub.kept(3), 0.0)
    fed.t += 1
    fed.hub.begin(fed.t, [0, 1, 2, 3, 4, 5])
    for client in (0, 1, 2, 4, 5):
        reply, data = fed.hub.reply(client), fed.job.client_data(client)
        work = fed.site.work(client, fed.t, reply, fed.states[client], data)
        fed.hub.accept(client, work.upload, work.meta)
    fed.hub.fail(3, "diverged")
    record = fed.hub.close(fed.t)
    assert record["clients"] == [0, 1, 2, 4, 5]
    assert torch.equal(torch.where(fed.mask(3), fed.hub.kept(3), 0.0), waiting)
    assert fed.hub.known(3).round == 1


# Through worker processes


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_one_and_two_workers_give_the_same_digest(method: str, tmp_path: Path) -> None:
    one, two = (
        run_job(Job.build(config(method, 0.4, workers=workers)), tmp_path / str(workers))
        for workers in (1, 2)
    )
    assert one["digest"] == two["digest"]
    assert one["missing_clients"] == []


class StopAfter(Watcher):
    def __init__(self, last: int) -> None:
        self.last = last

    def round_done(self, record: dict[str, Any], ledger_lines: list[dict[str, Any]]) -> None:
        if record["round"] == self.last:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "fedpurin"])
def test_an_interrupted_run_resumes_to_the_same_digest(method: str, tmp_path: Path) -> None:
    settings = config(method, 0.4, workers=1)
    whole = run_job(Job.build(settings), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_job(Job.build(settings), tmp_path / "torn", StopAfter(3))  # after the checkpoint of round 2
    assert resume_run(tmp_path / "torn")["digest"] == whole["digest"]
