"""Silence: after a round nobody sends anything, and everybody goes on alone from the last reply."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from law_cases import NAMES
from torch import Tensor

from fedpurin.errors import MismatchError
from fedpurin.layout import write_parameters
from fedpurin.methods import find_method
from fedpurin.settings import names_of
from fedpurin.train import key, train
from tiny import Federation, tiny_job

SILENT = 2  # the last round with messages
QUIET_NAMES = [name for name in NAMES if "silent_after" in names_of(find_method(name))]
every_name = pytest.mark.parametrize("name", QUIET_NAMES)


def federation(name: str, silent_after: int = SILENT, **settings: Any) -> Federation:
    return Federation(tiny_job(name, method__silent_after=silent_after, **settings))


def weights(fed: Federation) -> list[Tensor]:
    return [fed.states[client]["weights"] for client in range(4)]


def test_the_methods_that_can_fall_silent() -> None:
    assert QUIET_NAMES == ["fedavg", "fedper", "fedbn", "fedpurin"]


@every_name
@pytest.mark.parametrize("values", ["float32", "int8"])
def test_until_then_nothing_differs_and_afterwards_nothing_travels(name: str, values: str) -> None:
    quiet, usual = (federation(name, after, wire__values=values) for after in (SILENT, 0))
    for t in range(1, SILENT + 1):
        quiet.round(t)
        usual.round(t)
    assert all(torch.equal(a, b) for a, b in zip(weights(quiet), weights(usual), strict=True))
    quiet.round(SILENT + 1)
    last = [line for line in quiet.hub.take_ledger() if line["round"] >= SILENT]
    assert {(line["round"], line["direction"]) for line in last} == {(SILENT, "up"), (SILENT, "down")}
    before = quiet.handed_over
    for t in (SILENT + 2, SILENT + 3):
        record = quiet.round(t)
        assert record["clients"] == [0, 1, 2, 3]
        assert quiet.uploads == {}
    assert [quiet.reply(client) for client in range(4)] == [None] * 4
    assert quiet.hub.take_ledger() == []
    assert quiet.handed_over - before == 2 * 4 * len(quiet.work(0, 9).meta), "what no ledger counts"


@every_name
def test_a_silent_client_trains_on_from_its_own_model(name: str) -> None:
    """By hand: the same SGD over the same batches, from the weights that it ended the round before with."""
    fed = federation(name)
    for t in range(1, SILENT + 2):
        fed.round(t)
    t, client = SILENT + 2, 1
    model = fed.job.model(0)
    write_parameters(model, fed.states[client]["weights"])
    for buffer_name, buffer in model.named_buffers():
        buffer.copy_(fed.states[client][f"buffer.{buffer_name}"])
    seed = key(fed.job.config.run.order_seed_used, "training", t, client)
    loss = lambda m, x, y: torch.nn.functional.cross_entropy(m(x), y)  # noqa: E731
    train(model, fed.job.client_data(client), fed.job.config.train, loss, seed, "cpu")
    fed.round(t)
    by_hand = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    assert torch.equal(fed.states[client]["weights"], by_hand)


@every_name
def test_a_client_that_was_away_gets_the_last_reply_once(name: str) -> None:
    """Client 3 misses the first silent round; in the next it starts from the aggregation of round 2."""
    fed, twin = federation(name), federation(name)
    for f in (fed, twin):
        f.round(1)
        f.round(2)
    expected = twin.merged(3)
    fed.round(3, [0, 1, 2])
    fed.round(4, [0, 1], lost=(1,))
    assert torch.equal(fed.merged(3), expected)
    fed.round(5)
    assert fed.reply(3) is None
    assert fed.reply(1) is None


@every_name
def test_a_lost_silent_round_is_the_same_as_an_absence(name: str) -> None:
    lost, absent = federation(name), federation(name)
    for t in (1, 2, 3):
        lost.round(t)
        absent.round(t)
    lost.round(4, lost=(2,))
    absent.round(4, [0, 1, 3])
    lost.round(5)
    absent.round(5)
    assert all(torch.equal(a, b) for a, b in zip(weights(lost), weights(absent), strict=True))


def test_an_upload_in_silence_is_refused() -> None:
    fed, loud = federation("fedbn", 1), federation("fedbn", 0)
    for f in (fed, loud):
        f.round(1)
        f.hub.begin(2, [0, 1, 2, 3])
    work = loud.work(0, 2)
    assert work.upload is not None
    with pytest.raises(MismatchError, match="sent an upload in round 2"):
        fed.hub.accept(0, work.upload, work.meta)
    quiet = fed.work(0, 2)
    with pytest.raises(MismatchError, match="sent no upload in round 2"):
        loud.hub.accept(0, quiet.upload, quiet.meta)
