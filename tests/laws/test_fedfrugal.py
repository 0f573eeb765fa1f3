"""FedFrugal against a slow twin: plain loops, straight from the docstring of methods/fedfrugal.py.

The twin is given where each local training ended and how a value type rounds. All its sums are rounded to
float32, one by one, so that what both sides of a federation hold can be compared to the bit; only the mean
over clients, whose order of summation is free, is compared with a tolerance and then taken over. Which of
two equal numbers is the larger one is free too: the twin checks a choice instead of making it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedpurin import wire
from fedpurin.core.bits import unpack_bits
from fedpurin.engines.site import Site
from fedpurin.messages import Message
from fedpurin.methods.base import Fit
from fedpurin.methods.fedfrugal import Common, FedFrugal, Offsets, blended
from reference import as_float32
from tiny import Federation, tiny_job

UP, DOWN, STEADY, OWN = 0.3, 0.4, 0.6, 0.5
ROUNDING = 1e-6  # of a float32 mean of four values, none above 1
# clients of each round, and whose upload is lost; client 3 is new in round 4, client 1 misses 3 and 4
PLAN: list[tuple[list[int], tuple[int, ...]]] = [
    ([0, 1, 2], ()), ([0, 1, 2], (2,)), ([0, 2], ()), ([0, 2, 3], ()), ([0, 1, 2, 3], (0,)), ([1, 3], ()),
    ([0, 1, 2, 3], ()),
]  # fmt: skip
Row = list[float]
NOTHING = Offsets(*(torch.zeros(1, 0) for _ in range(4)))


def added(*rows: Sequence[float]) -> Row:
    """From left to right, each sum rounded to float32."""
    total = list(rows[0])
    for row in rows[1:]:
        total = [as_float32(a + b) for a, b in zip(total, row, strict=True)]
    return total


def minus(row: Sequence[float]) -> Row:
    return [-value for value in row]


def assert_largest(mask: Sequence[bool], values: Row, sizes: Sequence[int], share: float) -> None:
    """As many of each layer as the share says, none smaller than one left out; zeros are never sent."""
    at = 0
    for size in sizes:
        layer, chosen = values[at : at + size], mask[at : at + size]
        nonzero = sum(value != 0 for value in layer)
        assert sum(chosen) == min(max(1, int(share * size)), nonzero)
        inside = [abs(v) for v, c in zip(layer, chosen, strict=True) if c]
        outside = [abs(v) for v, c in zip(layer, chosen, strict=True) if not c]
        if inside and outside:
            assert min(inside) >= max(outside) - ROUNDING
        at += size


def masked(values: Row, mask: Sequence[bool]) -> Row:
    return [v if m else 0.0 for v, m in zip(values, mask, strict=True)]


class Twin:
    def __init__(self, fed: Federation, values: str) -> None:
        self.fed, self.values, self.sizes = fed, values, fed.job.selection.sizes
        d, clients = fed.job.selection.d, fed.hub.clients
        self.b0: Row = fed.job.common_start().tolist()
        self.c: Row = [0.0] * d
        self.r: Row = [0.0] * d
        self.residual = [[0.0] * d for _ in range(clients)]
        self.offset: list[Row | None] = [None] * clients
        self.samples = [float(n) for n in fed.job.train_samples()]

    def rounded(self, values: Row, mask: Sequence[bool]) -> Row:
        """As the other side decodes it."""
        message = Message(torch.tensor([values]), support_nd=torch.tensor([mask]))
        address = wire.Address(b"12345678", len(values), 1, 0, "up")
        data = wire.encode(message, address, values=self.values).data
        row: Row = wire.decode(data, address).message.values_nd[0].tolist()
        return row

    @property
    def b(self) -> Row:
        return added(self.b0, self.c)

    def client(self, client: int, fit: Fit, upload: Message) -> Row:
        """One client's round; what the server decodes of it."""
        take = fit.selection.take
        assert take(fit.start_nD)[0].tolist() == self.b, "training starts from the common model"
        moved = added(take(fit.end_nD)[0].tolist(), minus(self.b))
        u = added(moved, self.residual[client])
        assert upload.support_nd is not None
        mask = upload.support_nd[0].tolist()
        assert_largest(mask, u, self.sizes, UP)
        decoded = self.rounded(masked(u, mask), mask)
        assert upload.values_nd[0].tolist() == decoded
        self.residual[client] = added(u, minus(decoded))
        before = self.offset[client]
        if before is None:
            self.offset[client] = moved
        else:
            self.offset[client] = [STEADY * o + (1 - STEADY) * m for o, m in zip(before, moved, strict=True)]
        return decoded

    def server(self, decoded: dict[int, Row], state: Common) -> None:
        weight = sum(self.samples[client] for client in decoded)
        for j in range(len(self.r)):
            self.r[j] += sum(self.samples[client] * row[j] for client, row in decoded.items()) / weight
        mask = unpack_bits(state.step_mask, len(self.r)).tolist()
        assert_largest(mask, self.r, self.sizes, DOWN)
        close(state.step, masked(self.r, mask))
        received = self.rounded(state.step.tolist(), mask)
        self.c = added(self.c, received)
        self.r = [r - got for r, got in zip(self.r, received, strict=True)]
        close(state.residual, self.r)
        self.r = state.residual.tolist()


def close(found: Tensor, expected: Sequence[float]) -> None:
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("values", ["float32", "int8", "sign"])
def test_everybody_holds_the_servers_model_and_a_personal_one_beside_it(
    values: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {
        "method__up": UP,
        "method__down": DOWN,
        "method__steady": STEADY,
        "method__own": OWN,
        "method__own_fades": False,
    }
    fed = Federation(tiny_job("fedfrugal", wire__values=values, **settings))
    fits: dict[tuple[int, int], Fit] = {}
    original = Site._fit

    def recorded(site: Site, client: int, t: int, start_nD: Tensor) -> Fit:
        fits[t, client] = original(site, client, t, start_nD)
        return fits[t, client]

    monkeypatch.setattr(Site, "_fit", recorded)
    twin = Twin(fed, values)
    for t, (clients, lost) in enumerate(PLAN, start=1):
        fed.round(t, clients, lost)
        arrived = [client for client in clients if client not in lost]
        twin.server(
            {client: twin.client(client, fits[t, client], fed.uploads[client]) for client in arrived},
            fed.hub.server,
        )
        assert_held(fed, twin)


def assert_held(fed: Federation, twin: Twin) -> None:
    """What every client has after its reply, were it asked now: whether it took part or not."""
    take, d = fed.job.selection.take, fed.job.selection.d
    assert fed.hub.server.change.tolist() == twin.c
    for client in range(fed.hub.clients):
        data = fed.job.client_data(client)
        after = fed.site.finish(client, fed.hub.aggregated, fed.reply(client), fed.states[client], data).state
        assert torch.equal(after["memory.change"], fed.hub.server.change), "to the bit"
        assert (after["memory.initial"] + after["memory.change"]).tolist() == twin.b
        assert after["memory.residual"].tolist() == twin.residual[client]
        close(after["memory.offset"], twin.offset[client] or [0.0] * d)
        personal = take(after["weights"][None])[0].tolist()
        assert personal == added(twin.b, [OWN * o for o in after["memory.offset"].tolist()])
        stays = ~fed.job.config.method.exchanged(fed.job.layout)
        assert torch.equal(after["weights"][stays], fed.states[client]["weights"][stays])


def test_a_lost_upload_leaves_no_trace_at_the_client() -> None:
    fed = Federation(tiny_job("fedfrugal"))
    fed.round(1)
    before = {name: tensor.clone() for name, tensor in fed.states[1].items()}
    fed.round(2, lost=(1,))
    assert all(torch.equal(before[name], tensor) for name, tensor in fed.states[1].items())


@pytest.mark.parametrize("own", [0.0, 0.5, 1.0])
def test_without_a_past_the_personal_model_lies_between_the_common_and_the_trained_one(own: float) -> None:
    fed = Federation(tiny_job("fedfrugal", method__steady=0.0, method__own=own, method__own_fades=False))
    for t in (1, 2):
        fed.round(t)
        for client in range(4):
            state, take = fed.states[client], fed.job.selection.take
            personal = take(state["weights"][None])[0]
            common = state["memory.initial"] + state["memory.change"]
            between = common + own * state["memory.offset"]
            torch.testing.assert_close(personal, between, rtol=0, atol=ROUNDING)
            assert state["memory.offset"].abs().max() > 0.001, "else all of them are the same model"


def test_each_sample_is_blended_with_the_one_before_it() -> None:
    """Four rows: the neighbour's shares are 7/8, 5/8, 3/8 and 1/8, times `mix`."""
    rows = torch.tensor([[8.0], [16.0], [32.0], [64.0]])
    assert blended(rows, 1.0).flatten().tolist() == [8 / 8 + 64 * 7 / 8, 11.0, 26.0, 60.0]
    assert blended(rows, 0.5).flatten().tolist() == [32.5, 13.5, 29.0, 62.0]
    assert torch.equal(blended(rows, 0.0), rows)


def test_targets_are_blended_like_their_samples() -> None:
    """A model that gives its input back: the loss is that of the blended pair, class by class."""
    x, y = torch.tensor([[2.0, 0.0], [0.0, 4.0]]), torch.tensor([0, 1])
    same = FedFrugal(mix=1.0).loss(nn.Identity(), x, y, NOTHING)
    # shares of the neighbour 3/4 and 1/4: both samples become (0.5, 3), both targets (1/4, 3/4)
    logits = torch.tensor([0.5, 3.0])
    expected = -(torch.tensor([0.25, 0.75]) * logits.log_softmax(0)).sum()
    torch.testing.assert_close(same, expected)
    plain = FedFrugal(mix=0.0).loss(nn.Identity(), x, y, NOTHING)
    torch.testing.assert_close(plain, F.cross_entropy(x, y))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (torch.tensor([[1, 2], [3, 4]]), torch.tensor([0, 1])),  # tokens
        (torch.tensor([[1.0, 2.0]]), torch.tensor([0])),  # one sample has no neighbour
    ],
)
def test_what_cannot_be_blended_is_taken_as_it_is(x: Tensor, y: Tensor) -> None:
    class AsFloat(nn.Module):
        def forward(self, rows: Tensor) -> Tensor:
            assert torch.equal(rows, x)
            return rows.float()

    torch.testing.assert_close(
        FedFrugal(mix=1.0).loss(AsFloat(), x, y, NOTHING), F.cross_entropy(x.float(), y)
    )


def test_the_learning_rate_fades_from_round_to_round() -> None:
    """One step of plain SGD: in round 3 it is a quarter of what it is without fading."""
    steps = []
    for fade in (1.0, 0.5):
        config = {
            "train__momentum": 0.0,
            "train__batch_size": 50,
            "method__fade": fade,
            "method__rest": 0.0,
            "method__tail": 0,
        }
        fed = Federation(tiny_job("fedfrugal", **config))
        state = fed.work(0, 3).state
        steps.append(state["memory.offset"])
    assert steps[0].abs().max() > 0.01
    torch.testing.assert_close(steps[1], steps[0] / 4, rtol=1e-3, atol=1e-6)


def test_the_rate_fades_to_rest_and_the_offsets_weight_to_nothing() -> None:
    method = FedFrugal(fade=0.5, rest=0.2, own=0.6)
    assert [method.rate(t) for t in (1, 2, 3, 4, 99)] == [1.0, 0.5, 0.25, 0.2, 0.2]
    assert [method.weight(t) for t in (1, 2, 3, 4, 5)] == [0.6, 0.3, 0.15, 0.075, 0.0375]
    assert [FedFrugal(fade=0.5, own=0.6, own_fades=False).weight(t) for t in (1, 9)] == [0.6, 0.6]


def test_the_weight_is_that_of_the_round_in_training_and_after_the_reply() -> None:
    fed = Federation(tiny_job("fedfrugal", method__fade=0.5, method__rest=0.0))
    fed.round(1)
    fed.round(2)
    for client in range(4):
        state, take = fed.states[client], fed.job.selection.take
        common = state["memory.initial"] + state["memory.change"]
        trained = take(state["weights"][None])[0]
        torch.testing.assert_close(trained, common + 0.5 * state["memory.offset"], rtol=0, atol=ROUNDING)
        after = fed.site.finish(client, 2, fed.reply(client), state, fed.job.client_data(client)).state
        common = after["memory.initial"] + after["memory.change"]
        merged = take(after["weights"][None])[0]
        torch.testing.assert_close(merged, common + 0.5 * after["memory.offset"], rtol=0, atol=ROUNDING)


def test_a_client_that_knows_its_classes_starts_with_their_shares_in_its_biases() -> None:
    """Client 2 has 20 samples, of which the classes have 7, 7 and 6; one more of each keeps shares from 0."""
    fed = Federation(tiny_job("fedfrugal", method__prior=1.0))
    fed.round(1)
    spans = {layer.name: (at, layer.size) for layer, at in fed.job.selection.spans()}
    at, size = spans["4.bias"]
    b0 = fed.job.common_start()
    shares = torch.tensor([8, 8, 7]) / 23
    for t in (2, 3):
        initial = fed.states[2]["memory.initial"]
        expected = b0.clone()
        expected[at : at + size] += shares.log()
        torch.testing.assert_close(initial, expected, rtol=0, atol=ROUNDING)
        assert torch.equal(fed.states[1]["memory.change"], fed.states[2]["memory.change"])
        fed.round(t)
