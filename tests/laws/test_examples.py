"""The methods of examples/methods against their papers' definitions, written by hand."""

from __future__ import annotations

import copy

import pytest
import torch
from law_cases import NAMES
from torch import Tensor, nn
from torch.nn import functional as F

import reference
from examples.methods.ditto import Ditto, Global
from examples.methods.fedprox import Anchor, FedProx
from fedpurin.layout import read_gradients, read_parameters, write_parameters
from fedpurin.train import as_batch, batches, key, prepare_inputs
from tiny import CLASSES, Federation, job_for, tiny_job, tiny_model

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
PULL = 0.8
LR, MOMENTUM = 0.1, 0.9  # the defaults of [train]


def sgd(
    fed: Federation, client: int, t: int, start_D: Tensor, anchor_D: Tensor, pull: float, name: str
) -> Tensor:
    """Local training by hand: gradient of the cross-entropy, plus pull * (w - anchor), momentum, step."""
    data = fed.job.client_data(client)
    model = copy.deepcopy(fed.job.model(0))
    model.train()
    write_parameters(model, start_D)
    x, y = prepare_inputs(data.train_x, "cpu"), data.train_y
    w, velocity = start_D.clone(), torch.zeros_like(start_D)
    order = torch.Generator().manual_seed(key(fed.job.config.run.order_seed_used, name, t, client))
    for _ in range(fed.job.config.train.epochs):
        for index in batches(len(y), fed.job.config.train.batch_size, order):
            model.zero_grad()
            F.cross_entropy(model(as_batch(x[index])), y[index]).backward()  # type: ignore[no-untyped-call]
            velocity = MOMENTUM * velocity + read_gradients(model) + pull * (w - anchor_D)
            w = w - LR * velocity
            write_parameters(model, w)
    return w


def mean_of(fed: Federation) -> Tensor:
    clients = sorted(fed.uploads)
    rows = [fed.uploads[c].values_nd[0].tolist() for c in clients]
    samples = [float(fed.job.train_samples()[c]) for c in clients]
    return torch.tensor(reference.theta_bar(rows, [[True] * len(rows[0])] * len(rows), samples))


def test_the_definitions_below_cover_every_example() -> None:
    assert [name.rpartition(":")[2] for name in NAMES if ":" in name] == ["FedProx", "Ditto"]


def test_the_defaults_of_training_are_those_used_here() -> None:
    train = tiny_job("fedavg").config.train
    assert (train.lr, train.momentum, train.weight_decay) == (LR, MOMENTUM, 0.0)


# FedProx


def test_fedprox_pulls_towards_the_model_that_the_round_started_from() -> None:
    """Rounds 1 and 2, and 3 for a client that missed the second."""
    fed = Federation(job_for(FedProx(mu=PULL)))
    start = fed.job.common_start()
    for t, clients in ((1, [0, 1, 2, 3]), (2, [0, 1, 3]), (3, [0, 1, 2, 3])):
        fed.round(t, clients)
        for client in clients:
            by_hand = sgd(fed, client, t, start, start, PULL, "training")
            torch.testing.assert_close(fed.uploads[client].values_nd[0], by_hand, **CLOSE)
        start = mean_of(fed)


def test_fedprox_without_a_pull_is_fedavg_to_the_bit() -> None:
    prox, plain = Federation(job_for(FedProx(mu=0.0))), Federation(tiny_job("fedavg"))
    pulled = Federation(job_for(FedProx(mu=PULL)))
    for t in (1, 2, 3):
        for fed in (prox, plain, pulled):
            fed.round(t)
    assert torch.equal(prox.hub.server.theta_bar, plain.hub.server.theta_bar)
    assert not torch.equal(pulled.hub.server.theta_bar, plain.hub.server.theta_bar)


# Ditto


def test_ditto_trains_the_global_model_as_fedavg_to_the_bit() -> None:
    ditto, plain = Federation(job_for(Ditto(pull=PULL))), Federation(tiny_job("fedavg"))
    for t, clients in ((1, [0, 1, 2, 3]), (2, [0, 1, 3]), (3, [0, 1, 2, 3])):
        for fed in (ditto, plain):
            fed.round(t, clients)
        for client in clients:
            assert torch.equal(ditto.uploads[client].values_nd, plain.uploads[client].values_nd)
        assert torch.equal(ditto.hub.server.theta_bar, plain.hub.server.theta_bar)


@pytest.mark.parametrize("values", ["float32", "int8"])
def test_dittos_personal_model_is_pulled_towards_the_global_one_it_received(values: str) -> None:
    """It goes on from the personal model of the client's last round; a lost round leaves nothing behind."""
    fed = Federation(job_for(Ditto(pull=PULL), wire__values=values))
    personal = {c: fed.states[c]["weights"].clone() for c in range(4)}
    received = fed.job.common_start()
    for t, clients, lost in ((1, [0, 1, 2, 3], ()), (2, [0, 1, 3], (1,)), (3, [0, 1, 2, 3], ())):
        fed.round(t, clients, lost)
        for client in set(clients) - set(lost):
            personal[client] = sgd(fed, client, t, personal[client], received, PULL, "personal")
        for client in range(4):
            torch.testing.assert_close(fed.states[client]["weights"], personal[client], **CLOSE)
            personal[client] = fed.states[client]["weights"].clone()
            assert torch.equal(fed.merged(client), personal[client]), "a reply does not touch it"
        data = fed.job.client_data(0)
        received = fed.site.finish(0, t, fed.reply(0), fed.states[0], data).state["memory.w"]
        if values == "float32":
            torch.testing.assert_close(received, mean_of(fed), rtol=0, atol=2e-6)


def test_dittos_models_are_scored_each_with_its_own_statistics() -> None:
    """trained: the personal model. upload: the global one, as FedAvg scores it."""
    ditto, plain = Federation(job_for(Ditto(pull=PULL))), Federation(tiny_job("fedavg"))
    scores, expected = ditto.round(1), plain.round(1)
    assert scores["upload"] == expected["upload"]
    assert scores["trained"] != scores["upload"]
    strange = [n for n in ditto.states[0] if n.startswith("buffer.") and "num" not in n]
    assert any(not torch.equal(ditto.states[0][n], plain.states[0][n]) for n in strange)


# Both: the losses, and their gradients


@pytest.mark.parametrize(
    ("loss", "memory"),
    [(FedProx(mu=PULL).loss, Anchor), (Ditto(pull=PULL).personal_loss, Global)],
    ids=["fedprox", "ditto"],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_the_pull_is_half_its_strength_times_the_squared_distance(
    loss: object, memory: type, channels_last: bool
) -> None:
    torch.manual_seed(4)
    if channels_last:
        layers = (nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, CLASSES))
        model: nn.Module = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = torch.rand(5, 2, 4, 4)
    else:
        model, x = tiny_model((1, 4, 4), CLASSES), torch.rand(5, 1, 4, 4)
    y = torch.arange(5) % CLASSES
    w = read_parameters(model)
    anchor = w + torch.randn(len(w))
    twin = copy.deepcopy(model)
    plain = F.cross_entropy(twin(x), y)
    plain.backward()  # type: ignore[no-untyped-call]
    found = loss(model, x, y, memory(anchor[None]))  # type: ignore[operator]
    found.backward()
    distance = sum(float(a - b) ** 2 for a, b in zip(w, anchor, strict=True))
    assert float(found.detach()) == pytest.approx(float(plain.detach()) + PULL / 2 * distance, rel=1e-5)
    torch.testing.assert_close(read_gradients(model), read_gradients(twin) + PULL * (w - anchor), **CLOSE)
