"""FedPURIN in a training loop of your own, written out with `fedpurin.core` and `fedpurin.wire`.

Nothing runs the rounds but this file: four clients of the bundled images, plain PyTorch in between. The
second half shows the same with `fedpurin.loop`, which also keeps masks, batch norm and lost uploads in order.

    python -m examples.own_loop       writes runs/own_loop/groups.png
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedpurin import core, data, wire
from fedpurin.layout import Layout, read_gradients, read_parameters, write_parameters
from fedpurin.loop import ClientSide, ServerSide
from fedpurin.messages import Message
from fedpurin.report import matplotlib_style

CLIENTS, TAU, BETA = 4, 0.5, 4


def make_model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))


def client_data() -> list[tuple[Tensor, Tensor]]:
    """Two pairs of clients: the first two have shirts and shoes, the others bags and trousers."""
    sample = data.load("fashion-mnist-mini")
    chosen = []
    for client in range(CLIENTS):
        kinds = (0, 7, 9) if client < 2 else (1, 8, 3)
        rows = torch.cat(
            [torch.nonzero(sample.train_y == kind).flatten()[client::CLIENTS][:25] for kind in kinds]
        )
        chosen.append((sample.train_x[rows].float() / 255, sample.train_y[rows]))
    return chosen


def train(model: nn.Module, x: Tensor, y: Tensor, seed: int) -> None:
    """Any loop will do; FedPURIN reads the gradients that the last step leaves behind."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    order = torch.Generator().manual_seed(seed)
    for _ in range(3):
        for batch in torch.randperm(len(y), generator=order).split(15):
            optimiser.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()


def with_core(rounds: int) -> Tensor:
    """The paper's round in its own words. The result says who worked with whom, [rounds, n, n]."""
    torch.manual_seed(1)
    models = [make_model() for _ in range(CLIENTS)]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    layout = Layout.of(models[0])
    exchanged = layout.select(layout.where("body", "head"))
    sets, history = client_data(), []
    for t in range(1, rounds + 1):
        values, masks = [], []
        for client, (model, (x, y)) in enumerate(zip(models, sets, strict=True)):
            train(model, x, y, seed=100 * t + client)
            theta = exchanged.take(read_parameters(model)[None])  # [1, d]
            scores = core.perturbation(exchanged.take(read_gradients(model)[None]), theta)
            mask = core.critical_mask(scores, exchanged.sizes, TAU)
            address = wire.Address(exchanged.fingerprint, exchanged.d, t, client, "up")
            upload = wire.encode(Message(torch.where(mask, theta, 0.0), mask, mask), address).data
            arrived = wire.decode(upload, address).message  # at the server
            assert arrived.critical_nd is not None
            values.append(arrived.values_nd)
            masks.append(arrived.critical_nd)
        masks_nd = torch.cat(masks)
        groups = core.collaborators(core.overlap(masks_nd), t, BETA)
        merged = core.combine(torch.cat(values), masks_nd, groups)
        for model, row in zip(models, merged, strict=True):
            write_parameters(model, exchanged.put(read_parameters(model)[None], row[None])[0])
        history.append(groups)
    return torch.stack(history)


def with_loop(rounds: int) -> int:
    """The same round with both sides kept for you. The result is the number of bytes that travelled."""
    server = ServerSide(make_model, CLIENTS)
    clients = [ClientSide(make_model, number) for number in range(CLIENTS)]
    sets, travelled = client_data(), 0
    for t in range(1, rounds + 1):
        server.begin(t)
        for number, (client, (x, y)) in enumerate(zip(clients, sets, strict=True)):
            model = client.begin(t, server.reply(number))
            train(model, x, y, seed=100 * t + number)
            server.accept(number, client.end(t), samples=len(y))
        server.close(t)
        travelled += sum(sum(line["bytes"].values()) for line in server.ledger())
    return travelled


def main(out: Path = Path("runs/own_loop"), rounds: int = 6) -> Tensor:
    history = with_core(rounds)
    out.mkdir(parents=True, exist_ok=True)
    with matplotlib_style():
        figure, panels = plt.subplots(
            1, rounds, figsize=(2.1 * rounds, 2.6), layout="constrained", squeeze=False
        )
        for t, (panel, groups) in enumerate(zip(panels[0], history, strict=True), start=1):
            panel.imshow(groups.numpy(), cmap="Blues", vmin=0, vmax=1.3)
            panel.set_title(f"round {t}")
            panel.set_xticks(range(CLIENTS))
            panel.set_yticks(range(CLIENTS))
            panel.grid(False)
        panels[0][0].set_ylabel("client")
        figure.supxlabel("works with client")
        figure.savefig(out / "groups.png")
        plt.close(figure)
    print(f"with fedpurin.loop {with_loop(rounds) / 2**20:.2f} MiB travelled in {rounds} rounds")
    return history


if __name__ == "__main__":
    main()
