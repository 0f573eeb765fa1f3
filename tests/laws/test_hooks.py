"""What every method's hooks obey, whatever the method: parametrised over all methods and options."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedpurin import wire
from fedpurin.core.bits import pack_bits
from fedpurin.messages import Message, Uploads
from fedpurin.methods import METHODS, FedPURIN, Method, Server
from tiny import METHOD_CASES, case_name, row_of, some_fit, tiny_layout

N = 5
WITH_MESSAGES = [m for m in METHOD_CASES if m.name != "separate"]
every_method = pytest.mark.parametrize("method", METHOD_CASES, ids=case_name)
every_sender = pytest.mark.parametrize("method", WITH_MESSAGES, ids=case_name)


def same(a: Tensor | None, b: Tensor | None) -> bool:
    return (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b))


def equal_messages(a: Message, b: Message) -> bool:
    pairs = (a.values_nd, b.values_nd), (a.critical_nd, b.critical_nd), (a.support_nd, b.support_nd)
    return all(same(x, y) for x, y in pairs)


def uploaded(method: Method, n: int = N, seed: int = 0) -> Message:
    fit = some_fit(method, n, seed)
    message, _ = method.upload(fit, method.memory(fit.layout, n))
    assert message is not None
    return message


def server_after(method: Method, t: int, absent: tuple[int, ...] = ()) -> Server:
    """The server after everybody but `absent` took part in round t."""
    message = uploaded(method)
    present = [i for i in range(N) if i not in absent]
    packed = None if message.critical_nd is None else pack_bits(message.critical_nd[present])
    confirmed = torch.tensor([0 if i in absent else t for i in range(N)])
    samples = torch.tensor([10 + i for i in present])
    uploads = Uploads(present, message.values_nd[present], packed, samples)
    return method.aggregate({"confirmed": confirmed}, uploads, t)


@every_sender
def test_an_upload_of_many_is_the_uploads_of_each(method: Method) -> None:
    fit = some_fit(method, N)
    together, memory = method.upload(fit, method.memory(fit.layout, N))
    assert together is not None
    for i in range(N):
        alone, memory_i = method.upload(row_of(fit, i), method.memory(fit.layout, 1))
        assert alone is not None
        assert equal_messages(together.row(i), alone)
        for name in memory_i:
            assert torch.equal(memory[name][i : i + 1], memory_i[name])


@every_sender
def test_a_download_of_many_is_the_downloads_of_each(method: Method) -> None:
    fit, server = some_fit(method, N), server_after(method, t=2)
    replies = []
    for i in range(N):
        reply = method.reply(server, i)
        assert reply is not None
        full = torch.ones_like(reply.values_nd, dtype=torch.bool)
        replies.append(replace(reply, support_nd=full if reply.support_nd is None else reply.support_nd))
    critical = [r.critical_nd for r in replies if r.critical_nd is not None]
    stacked = Message(
        torch.cat([r.values_nd for r in replies]),
        torch.cat(critical) if critical else None,
        torch.cat([r.support_nd for r in replies if r.support_nd is not None]),
    )
    together, _ = method.download(fit.end_nD, stacked, method.memory(fit.layout, N), fit.selection)
    for i in range(N):
        memory = method.memory(fit.layout, 1)
        alone, _ = method.download(fit.end_nD[i : i + 1], replies[i], memory, fit.selection)
        assert torch.equal(together[i : i + 1], alone)


@every_method
def test_hooks_leave_their_inputs_and_the_random_state_alone(method: Method) -> None:
    fit = some_fit(method, N)
    memory, server = method.memory(fit.layout, N), server_after(method, t=2) if fit.selection.d else {}
    inputs = {"start": fit.start_nD, "end": fit.end_nD, "gradient": fit.gradient_nD, **memory}
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    random_state = torch.get_rng_state()
    message, _ = method.upload(fit, memory)
    if message is not None:
        kept = {name: tensor.clone() for name, tensor in server.items()}
        for client in range(N):
            reply = method.reply(server, client)
            assert reply is not None
            method.download(fit.end_nD[client : client + 1], reply, {}, fit.selection)
        assert all(torch.equal(kept[name], server[name]) for name in server)
    assert all(torch.equal(before[name], inputs[name]) for name in inputs)
    assert torch.equal(random_state, torch.get_rng_state())


@every_sender
@pytest.mark.parametrize("direction", ["up", "down"])
def test_messages_survive_the_wire(method: Method, direction: str) -> None:
    """Same values to the bit, same mask, and the same values travelling, after bytes and back."""
    message = uploaded(method)
    d = message.values_nd.shape[1]
    server = server_after(method, t=2, absent=(3,))
    for client in range(N):
        row = message.row(client) if direction == "up" else method.reply(server, client)
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
def test_a_reply_means_the_same_before_and_after_the_wire(method: Method) -> None:
    """A receiver sees `support_nd = None` where all values travelled, however the sender put it."""
    fit, server = some_fit(method, N), server_after(method, t=2, absent=(3,))
    for client in range(N):
        reply = method.reply(server, client)
        assert reply is not None
        address = wire.Address(b"12345678", reply.values_nd.shape[1], 2, client, "down")
        arrived = wire.decode(wire.encode(reply, address).data, address).message
        own = fit.end_nD[client : client + 1]
        sent_D, _ = method.download(own, reply, {}, fit.selection)
        arrived_D, _ = method.download(own, arrived, {}, fit.selection)
        assert torch.equal(sent_D, arrived_D)


@every_sender
def test_downloads_touch_exchanged_parameters_only(method: Method) -> None:
    fit, server = some_fit(method, N), server_after(method, t=2)
    private = ~method.exchanged(fit.layout)
    for client in range(N):
        reply = method.reply(server, client)
        assert reply is not None
        own = fit.end_nD[client : client + 1]
        after, _ = method.download(own, reply, {}, fit.selection)
        assert torch.equal(after[:, private], own[:, private])


def test_separate_says_nothing() -> None:
    method = METHODS["separate"]()
    fit = some_fit(method, N)
    assert fit.selection.d == 0
    assert method.upload(fit, {})[0] is None
    assert method.reply({"confirmed": torch.ones(N, dtype=torch.int64)}, 0) is None


@every_method
def test_before_anything_was_aggregated_there_is_no_reply(method: Method) -> None:
    assert method.reply({"confirmed": torch.zeros(N, dtype=torch.int64)}, 0) is None


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
]


@pytest.mark.parametrize(("name", "options", "kinds"), KINDS)
def test_which_kinds_of_parameters_travel(name: str, options: dict[str, str], kinds: set[str]) -> None:
    layout = tiny_layout()
    travels = METHODS[name](**options).exchanged(layout)
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


@pytest.mark.parametrize("score", ["gradient", "delta", "magnitude", "random"])
def test_each_score_is_what_it_says(score: str) -> None:
    method = FedPURIN(score=score)  # type: ignore[arg-type]
    fit = some_fit(method, N)
    end, start, gradient = (fit.selection.take(x) for x in (fit.end_nD, fit.start_nD, fit.gradient_nD))
    expected = {
        "gradient": (gradient * end).abs(),
        "delta": ((end - start) * end).abs(),
        "magnitude": end.abs(),
        "random": fit.noise(),
    }[score]
    assert torch.equal(method.scores(fit), expected)


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
