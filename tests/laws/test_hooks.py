"""What every method's hooks obey, whatever the method: parametrised over all methods and options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import pytest
import torch
from law_cases import CASES
from torch import Tensor

from fedpurin import wire
from fedpurin.core.bits import pack_bits
from fedpurin.core.collaborate import collaborators, overlap_of, threshold
from fedpurin.messages import Delivery, Known, Message, Uploads
from fedpurin.methods import METHODS, AnyMethod, Fit, find_method
from fedpurin.methods.base import NoMemory
from fedpurin.methods.fedpurin import FedPURIN
from fedpurin.methods.groups import Groups
from fedpurin.methods.state import ServerState, TensorState
from tiny import case_name, row_of, some_fit, tiny_layout

N = 5
WITH_MESSAGES = [m for m in CASES if m.name != "separate"]
every_method = pytest.mark.parametrize("method", CASES, ids=case_name)
every_sender = pytest.mark.parametrize("method", WITH_MESSAGES, ids=case_name)


def same(a: Tensor | None, b: Tensor | None) -> bool:
    return (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b))


def equal_messages(a: Message, b: Message) -> bool:
    pairs = (a.values_nd, b.values_nd), (a.critical_nd, b.critical_nd), (a.support_nd, b.support_nd)
    return all(same(x, y) for x, y in pairs)


def memory_of(method: AnyMethod, fit: Fit) -> TensorState:
    memory: TensorState = method.memory(fit.layout, fit.selection, fit.start_nD)
    return memory


def uploaded(method: AnyMethod, n: int = N, seed: int = 0) -> Message:
    fit = some_fit(method, n, seed)
    message, _ = method.upload(fit, memory_of(method, fit))
    assert message is not None
    return message


def rounded(message: Message) -> Tensor:
    """float32 on the wire changes nothing."""
    return message.values_nd


def uploads_of(method: AnyMethod, absent: tuple[int, ...] = ()) -> Uploads:
    message = uploaded(method)
    present = [i for i in range(N) if i not in absent]
    packed = None if message.critical_nd is None else pack_bits(message.critical_nd[present])
    samples = torch.tensor([10 + i for i in present])
    return Uploads(
        present,
        message.values_nd[present].clone(),
        packed,
        samples,
        some_fit(method, 1).selection,
        N,
        rounded,
    )


@dataclass(frozen=True)
class ServerAfter:
    """The server after everybody but `absent` took part in round t."""

    method: AnyMethod
    t: int = 2
    absent: tuple[int, ...] = ()

    @cached_property
    def uploads(self) -> Uploads:
        return uploads_of(self.method, self.absent)

    @cached_property
    def state(self) -> ServerState:
        fit = some_fit(self.method, N)
        start = self.method.server(fit.selection, N, fit.selection.take(fit.start_nD)[0])
        state: ServerState = self.method.aggregate(start, self.uploads, self.t)
        return state

    def known(self, client: int) -> Known:
        if client in self.absent:
            return Known(0, None)
        row = self.uploads.clients.index(client)
        mask = None if self.uploads.packed_nb is None else self.uploads.packed_nb[row]
        assert self.state, "what it keeps is known once it has aggregated"
        return Known(self.t, mask, self.uploads.kept.get(client))

    def reply(self, client: int) -> Message:
        reply = self.method.reply(self.state, client, self.known(client))
        assert reply is not None
        return reply

    def delivery(self, client: int, message: Message | None = None) -> Delivery:
        selection = some_fit(self.method, N).selection
        return Delivery(message or self.reply(client), selection, self.known(client).round, self.t)


@every_sender
def test_an_upload_of_many_is_the_uploads_of_each(method: AnyMethod) -> None:
    fit = some_fit(method, N)
    together, memory = method.upload(fit, memory_of(method, fit))
    assert together is not None
    for i in range(N):
        alone, memory_i = method.upload(row_of(fit, i), memory_of(method, row_of(fit, i)))
        assert alone is not None
        assert equal_messages(together.row(i), alone)
        assert_rows(memory, memory_i, i)


@every_sender
def test_a_download_of_many_is_the_downloads_of_each(method: AnyMethod) -> None:
    fit, server = some_fit(method, N), ServerAfter(method)
    replies = []
    for i in range(N):
        reply = server.reply(i)
        full = torch.ones_like(reply.values_nd, dtype=torch.bool)
        replies.append(replace(reply, support_nd=full if reply.support_nd is None else reply.support_nd))
    critical = [r.critical_nd for r in replies if r.critical_nd is not None]
    stacked = Message(
        torch.cat([r.values_nd for r in replies]),
        torch.cat(critical) if critical else None,
        torch.cat([r.support_nd for r in replies if r.support_nd is not None]),
    )
    together, after = method.download(fit.end_nD, server.delivery(0, stacked), memory_of(method, fit))
    for i in range(N):
        memory = memory_of(method, row_of(fit, i))
        alone, after_i = method.download(fit.end_nD[i : i + 1], server.delivery(i, replies[i]), memory)
        assert torch.equal(together[i : i + 1], alone)
        assert_rows(after, after_i, i)


def assert_rows(of_many: TensorState, of_one: TensorState, i: int) -> None:
    assert of_many.tensors().keys() == of_one.tensors().keys()
    for name, tensor in of_one.tensors().items():
        assert torch.equal(of_many.tensors()[name][i : i + 1], tensor), name


@every_method
def test_where_trainings_of_many_start_and_end_is_where_each_does(method: AnyMethod) -> None:
    fit = some_fit(method, N)
    memory = memory_of(method, fit)
    start = method.start(fit.start_nD, fit.selection, memory)
    personal = method.personal_start(fit.end_nD, memory)
    used, after = method.in_use(fit, memory)
    for i in range(N):
        row, memory_i = row_of(fit, i), memory_of(method, row_of(fit, i))
        assert torch.equal(start[i : i + 1], method.start(row.start_nD, row.selection, memory_i))
        personal_i = method.personal_start(row.end_nD, memory_i)
        assert same(None if personal is None else personal[i : i + 1], personal_i)
        used_i, after_i = method.in_use(row, memory_i)
        assert same(None if used is None else used[i : i + 1], used_i)
        assert_rows(after, after_i, i)


@every_method
def test_hooks_leave_their_inputs_and_the_random_state_alone(method: AnyMethod) -> None:
    fit = some_fit(method, N)
    memory = memory_of(method, fit)
    inputs = {"start": fit.start_nD, "end": fit.end_nD, "gradient": fit.gradient_nD, **memory.tensors()}
    assert fit.personal_nD is not None
    inputs["personal"] = fit.personal_nD
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    server = ServerAfter(method)
    state = server.state.tensors() if fit.selection.d else {}
    kept = {name: tensor.clone() for name, tensor in state.items()}
    random_state = torch.get_rng_state()
    method.start(fit.start_nD, fit.selection, memory)
    method.personal_start(fit.end_nD, memory)
    method.in_use(fit, memory)
    message, _ = method.upload(fit, memory)
    if message is not None:
        values = message.values_nd.clone()
        method.sent(memory, message, torch.zeros_like(values))
        assert torch.equal(message.values_nd, values)
        for client in range(N):
            row = memory_of(method, row_of(fit, client))
            delivery = Delivery(server.reply(client), fit.selection, server.known(client).round, server.t)
            method.download(fit.end_nD[client : client + 1], delivery, row)
        assert all(torch.equal(kept[name], state[name]) for name in state)
    assert all(torch.equal(before[name], inputs[name]) for name in inputs)
    assert torch.equal(random_state, torch.get_rng_state())


@every_sender
@pytest.mark.parametrize("absent", [(), (1, 3)])
def test_aggregation_changes_nothing_but_the_matrix_it_may_reuse(
    method: AnyMethod, absent: tuple[int, ...]
) -> None:
    """That is `uploads.values_nd`."""
    first = ServerAfter(method).state
    uploads = uploads_of(method, absent)
    given = dict(first.tensors())
    given |= {"samples": uploads.samples_n}
    if uploads.packed_nb is not None:
        given["packed"] = uploads.packed_nb
    before = {name: tensor.clone() for name, tensor in given.items()}
    clients = list(uploads.clients)
    method.aggregate(first, uploads, 3)
    assert all(torch.equal(before[name], given[name]) for name in given)
    assert uploads.clients == clients


@every_sender
def test_a_server_state_survives_its_tensors(method: AnyMethod) -> None:
    """What a checkpoint keeps is enough to answer everybody with the same bits."""
    server = ServerAfter(method, absent=(2,))
    restored = type(server.state).of({k: v.clone() for k, v in server.state.tensors().items()})
    for client in range(N):
        reply = method.reply(restored, client, server.known(client))
        assert reply is not None
        assert equal_messages(reply, server.reply(client))


@every_sender
@pytest.mark.parametrize("direction", ["up", "down"])
def test_messages_survive_the_wire(method: AnyMethod, direction: str) -> None:
    """Same values to the bit, same mask, and the same values travelling, after bytes and back."""
    message = uploaded(method)
    d = message.values_nd.shape[1]
    server = ServerAfter(method, absent=(3,))
    for client in range(N):
        row = message.row(client) if direction == "up" else server.reply(client)
        assert row is not None
        assert row.values_nd.dtype == torch.float32
        address = wire.Address(b"12345678", d, 2, client, direction)  # type: ignore[arg-type]
        back = wire.decode(wire.encode(row, address).data, address).message
        assert torch.equal(back.values_nd.view(torch.int32), row.values_nd.view(torch.int32))
        assert same(back.critical_nd, row.critical_nd)
        everything = torch.ones(1, d, dtype=torch.bool)
        travels = [everything if m.support_nd is None else m.support_nd for m in (row, back)]
        assert torch.equal(*travels)
        absent = row.values_nd[~travels[0]]
        assert not absent.view(torch.int32).any(), "values that do not travel are +0.0"


@every_sender
def test_a_reply_means_the_same_before_and_after_the_wire(method: AnyMethod) -> None:
    """A receiver sees `support_nd = None` where all values travelled, however the sender put it."""
    fit, server = some_fit(method, N), ServerAfter(method, absent=(3,))
    for client in range(N):
        reply = server.reply(client)
        address = wire.Address(b"12345678", reply.values_nd.shape[1], 2, client, "down")
        arrived = wire.decode(wire.encode(reply, address).data, address).message
        own = fit.end_nD[client : client + 1]
        memory = memory_of(method, row_of(fit, client))
        sent_D, after_sent = method.download(own, server.delivery(client, reply), memory)
        arrived_D, after_arrived = method.download(own, server.delivery(client, arrived), memory)
        assert torch.equal(sent_D, arrived_D)
        assert_rows(after_sent, after_arrived, 0)


@every_sender
def test_downloads_touch_exchanged_parameters_only(method: AnyMethod) -> None:
    fit, server = some_fit(method, N), ServerAfter(method)
    private = ~method.exchanged(fit.layout)
    for client in range(N):
        own = fit.end_nD[client : client + 1]
        after, _ = method.download(own, server.delivery(client), memory_of(method, row_of(fit, client)))
        assert torch.equal(after[:, private], own[:, private])


def test_separate_says_nothing() -> None:
    method = METHODS["separate"]()
    fit = some_fit(method, N)
    assert fit.selection.d == 0
    assert method.upload(fit, NoMemory())[0] is None
    assert method.reply(ServerState(), 0, Known(1, None)) is None


@every_method
def test_before_anything_was_aggregated_there_is_no_reply(method: AnyMethod) -> None:
    fit = some_fit(method, N)
    server = method.server(fit.selection, N, fit.selection.take(fit.start_nD)[0])
    assert method.reply(server, 0, Known(0, None)) is None


KINDS = [
    ("separate", {}, set()),
    ("fedavg", {}, {"body", "head", "norm"}),
    ("fedper", {}, {"body", "norm"}),
    ("fedbn", {}, {"body", "head"}),
    ("pfedsd", {}, {"body", "head", "norm"}),
    ("fedcac", {}, {"body", "head", "norm"}),
    ("fedpurin", {}, {"body", "head"}),
    ("fedpurin", {"exchange_norm": "whole"}, {"body", "head", "norm"}),
    ("fedpurin", {"exchange_norm": "selected"}, {"body", "head", "norm"}),
    ("fedfrugal", {}, {"body", "head"}),
    ("examples.methods.fedprox:FedProx", {}, {"body", "head", "norm"}),
    ("examples.methods.ditto:Ditto", {}, {"body", "head", "norm"}),
]


@pytest.mark.parametrize(("name", "options", "kinds"), KINDS)
def test_which_kinds_of_parameters_travel(name: str, options: dict[str, str], kinds: set[str]) -> None:
    layout = tiny_layout()
    travels = find_method(name)(**options).exchanged(layout)
    for layer in layout.layers:
        span = travels[layer.start : layer.start + layer.size]
        assert span.all() if layer.kind in kinds else not span.any(), layer.name


def test_whole_norm_layers_are_critical_and_the_rest_is_selected() -> None:
    """tau = 0.5 of each layer; of the two norm layers (6 weights, 6 biases) everything."""
    method = FedPURIN(exchange_norm="whole", score="magnitude")
    message = uploaded(method)
    layout = tiny_layout()
    assert message.critical_nd is not None
    for layer in layout.layers:
        part = message.critical_nd[:, layer.start : layer.start + layer.size]
        expected = layer.size if layer.kind == "norm" else layer.size // 2
        assert (part.sum(1) == expected).all(), layer.name


@pytest.mark.parametrize("score", ["gradient", "delta", "curvature", "magnitude", "random"])
def test_each_score_is_what_it_says(score: str) -> None:
    method = FedPURIN(score=score)  # type: ignore[arg-type]
    fit = some_fit(method, N)
    end, start, gradient = (fit.selection.take(x) for x in (fit.end_nD, fit.start_nD, fit.gradient_nD))
    assert fit.squares_nD is not None
    expected = {
        "gradient": (gradient * end).abs(),
        "delta": ((end - start) * end).abs(),
        "curvature": (fit.selection.take(fit.squares_nD).sqrt() * end).abs(),
        "magnitude": end.abs(),
        "random": fit.noise(),
    }[score]
    assert torch.equal(method.scores(fit), expected)


def test_strict_groups_begin_where_the_papers_come_to() -> None:
    """Overlaps 0.9, 0.7 and 0.5: their mean is 0.7; half-way to beta the threshold is 0.8."""
    strict = FedPURIN(beta=8, strict=0.5)
    assert [strict.as_in_round(t) for t in (1, 4, 5, 8, 9)] == [4, 4, 5, 8, 9]
    assert [FedPURIN(beta=8).as_in_round(t) for t in (1, 8, 9)] == [1, 8, 9]
    overlap = torch.tensor([[1.0, 0.9, 0.7], [0.9, 1.0, 0.5], [0.7, 0.5, 1.0]])
    assert collaborators(overlap, strict.as_in_round(1), 8).sum(1).tolist() == [2, 2, 1]
    assert threshold(overlap, strict.as_in_round(1), 8) == pytest.approx(0.8)
    uploads = uploads_of(strict)
    assert uploads.packed_nb is not None
    methods = FedPURIN(beta=8), strict
    loose, close = (method.aggregate(Groups(), uploads_of(method), 1) for method in methods)
    assert loose.threshold is not None
    assert close.threshold is not None
    pairs = overlap_of(uploads.packed_nb)[~torch.eye(len(uploads.clients), dtype=torch.bool)].double()
    mean, most = float(pairs.mean()), float(pairs.max())
    assert float(loose.threshold) == pytest.approx(mean + (most - mean) / 8)
    assert float(close.threshold) == pytest.approx((mean + most) / 2)
    assert most > mean, "else both are the same"


def test_tau_moves_linearly_until_beta_and_stays_there() -> None:
    method = FedPURIN(tau=0.8, tau_end=0.2, beta=4, score="magnitude")
    expected = {1: 0.8, 2: 0.6, 3: 0.4, 4: 0.2, 5: 0.2, 99: 0.2}
    assert {t: round(method.tau_at(t), 6) for t in expected} == expected
    assert FedPURIN(tau=0.3, beta=4).tau_at(3) == 0.3
    assert FedPURIN(tau=0.3, tau_end=0.1, beta=1).tau_at(1) == 0.3
    for t, share in ((2, 0.6), (7, 0.2)):
        mask = method.upload(some_fit(method, 1, t=t), NoMemory())[0].critical_nd  # type: ignore[union-attr]
        sizes = some_fit(method, 1).selection.sizes
        assert mask is not None
        assert int(mask.sum()) == sum(int(share * size) for size in sizes)


def test_float16_rounds_the_gradient_and_nothing_else() -> None:
    method = FedPURIN(gradient_dtype="float16")
    fit = some_fit(method, N)
    fit.gradient_nD[:, :3] = torch.tensor([2.0**-25, 2.0**-24, 1.0 + 2.0**-11])
    scores = method.scores(fit)
    end = fit.selection.take(fit.end_nD)
    # half of the smallest float16 goes to 0 (ties to even), the smallest stays, 1 + 2^-11 becomes 1
    expected = end[:, :3].abs() * torch.tensor([0.0, 2.0**-24, 1.0])
    assert torch.equal(scores[:, :3], expected)
    by_delta = replace(method, score="delta")
    assert torch.equal(by_delta.scores(fit), replace(by_delta, gradient_dtype="float32").scores(fit))
