"""A method in somebody else's training loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fedpurin
from fedpurin.engines.hub import Hub
from fedpurin.engines.site import Site
from fedpurin.errors import ConfigError, EngineError, WireError
from fedpurin.given import Given
from fedpurin.job import Job
from fedpurin.layout import read_parameters
from fedpurin.loop import ClientSide, ServerSide
from fedpurin.methods.fedpurin import FedPURIN
from fedpurin.sections import TrainSection
from fedpurin.train import key, train

ROUNDS = 3
METHOD = FedPURIN(beta=2)


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def three() -> list[tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(0)
    return [(draw.normal(size=(20 + i, 4)), np.arange(20 + i) % 3) for i in range(3)]


def fit(model: nn.Module, client: int, t: int) -> int:
    """The training of fedpurin.run, by hand; the number of samples."""
    part = fedpurin.clients(three()).parts[client]
    settings = TrainSection(epochs=1, batch_size=10, lr=0.05)
    seed = key(1, "training", t, client)
    train(model, part, settings, lambda m, x, y: F.cross_entropy(m(x), y), seed, "cpu")
    return len(part.train_y)


def test_a_loop_by_hand_sends_the_same_bytes_as_an_engine() -> None:
    settings = {"run": {"rounds": ROUNDS}, "train": {"epochs": 1, "batch_size": 10, "lr": 0.05}}
    config = fedpurin.Config().updated(settings | {"model": {"name": "python"}, "method": {"beta": 2}})
    job = Job.build(config, Given(model=make_model, clients=fedpurin.clients(three())))
    site, hub = Site(job), Hub(job)
    states = [site.initial_state(number) for number in range(3)]
    server = ServerSide(make_model, 3, METHOD)
    clients = [ClientSide(make_model, number, METHOD) for number in range(3)]
    for t in range(1, ROUNDS + 1):
        hub.begin(t, [0, 1, 2])
        server.begin(t)
        for number, client in enumerate(clients):
            work = site.work(number, t, hub.reply(number), states[number], job.client_data(number))
            hub.accept(number, work.upload, work.meta)
            states[number] = work.state
            samples = fit(client.begin(t, server.reply(number)), number, t)
            upload = client.end(t)
            assert upload == work.upload
            server.accept(number, upload, samples)
        assert server.close(t)["collaborators"] == hub.close(t)["collaborators"]
    for number, client in enumerate(clients):
        last = site.finish(number, ROUNDS, hub.reply(number), states[number], job.client_data(number))
        mine = client.begin(ROUNDS + 1, server.reply(number))
        assert torch.equal(read_parameters(mine), last.state["weights"])


def test_a_lost_upload_and_a_client_that_comes_back_with_its_state() -> None:
    server = ServerSide(make_model, 2)
    clients = [ClientSide(make_model, number) for number in range(2)]
    for t, lost in ((1, 1), (2, 1), (3, None), (4, 0), (5, None)):
        server.begin(t)
        for number in range(2):
            side = clients[number]
            clients[number] = ClientSide(make_model, number, state=side.state)  # a new process
            clients[number].before = side.before
            samples = fit(clients[number].begin(t, server.reply(number)), number, t)
            upload = clients[number].end(t)
            if number != lost:
                server.accept(number, upload, samples)
        assert server.close(t)["clients"] == [n for n in range(2) if n != lost]
    assert [int(client.state["round"]) for client in clients] == [5, 5]


def test_what_does_not_belong_is_refused() -> None:
    server, client = ServerSide(make_model, 2), ClientSide(make_model, 1)
    server.begin(1)
    fit(client.begin(1, server.reply(1)), 1, 1)
    upload = client.end(1)
    assert upload is not None
    with pytest.raises(WireError):
        server.accept(0, upload, 20)  # another client's
    with pytest.raises(WireError):
        server.accept(1, upload[:-1], 20)
    with pytest.raises(EngineError, match="no client delivered"):
        server.close(1)
    with pytest.raises(ConfigError, match="FedFrugal trains in a way of its own"):
        ServerSide(make_model, 2, "fedfrugal")
    with pytest.raises(ConfigError, match="pFedSD trains in a way of its own"):
        ClientSide(make_model, 0, "pfedsd")


@pytest.mark.parametrize("method", ["separate", "fedavg", "fedper", "fedbn", "fedcac"])
def test_the_other_plain_methods(method: str) -> None:
    server = ServerSide(make_model, 2, method)
    clients = [ClientSide(make_model, number, method) for number in range(2)]
    for t in (1, 2):
        server.begin(t)
        for number, client in enumerate(clients):
            samples = fit(client.begin(t, server.reply(number)), number, t)
            server.accept(number, client.end(t), samples)
        assert server.close(t)["clients"] == [0, 1]
