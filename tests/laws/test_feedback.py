"""Lossy value types: both sides hold the same rounded values, and feedback follows its rule."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from law_cases import NAMES
from torch import Tensor

from fedpurin import wire
from fedpurin.core.bits import unpack_bits
from fedpurin.engines.site import Site
from fedpurin.messages import Message
from fedpurin.methods import find_method
from tiny import Federation, tiny_job

SENDERS = [name for name in NAMES if name != "separate" and not find_method(name).sends_updates]
LOSSY = ["float16", "bfloat16", "int8"]


@pytest.mark.parametrize("values", LOSSY)
@pytest.mark.parametrize("name", ["fedavg", "fedcac", "fedpurin"])
def test_a_client_keeps_what_the_server_decoded(name: str, values: str) -> None:
    """Where its values travelled they are the rounded ones; where not, as trained."""
    fed = Federation(tiny_job(name, wire__values=values))
    fed.round(1)
    for client, upload in fed.uploads.items():
        own = fed.job.selection.take(fed.states[client]["weights"][None])
        travels = torch.ones_like(own, dtype=torch.bool) if upload.support_nd is None else upload.support_nd
        assert torch.equal(own[travels], upload.values_nd[travels])
    record = fed.round(2)
    assert record["clients"] == [0, 1, 2, 3]


class Recorder:
    """The messages of a method before feedback and rounding, by (round, client)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plain: dict[tuple[int, int], Message] = {}
        original = Site._send

        def send(site: Site, client: int, t: int, message: Message, *rest: Any) -> object:
            self.plain[t, client] = message
            return original(site, client, t, message, *rest)

        monkeypatch.setattr(Site, "_send", send)


def mask_of(message: Message) -> Tensor:
    full = torch.ones_like(message.values_nd, dtype=torch.bool)
    return full if message.critical_nd is None else message.critical_nd


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("name", SENDERS)
def test_the_residual_is_added_where_critical_in_consecutive_accepted_rounds(
    name: str, feedback: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Round 3 of client 1 is lost: in round 4 it has no residual to add, in round 5 that of round 4."""
    fed = Federation(tiny_job(name, wire__values="int8", wire__feedback=feedback))
    recorder = Recorder(monkeypatch)
    residual: dict[int, Tensor] = {}
    accepted: dict[int, int] = {}
    masks: dict[int, Tensor] = {}
    added = 0.0
    for t in range(1, 6):
        lost = (1,) if t == 3 else ()
        fed.round(t, lost=lost)
        for client, upload in fed.uploads.items():
            plain = recorder.plain[t, client]
            expected = plain.values_nd
            if feedback and accepted.get(client) == t - 1:
                both = mask_of(plain) & masks[client]
                correction = torch.where(both, residual[client], 0.0)
                added += float(correction.abs().sum())
                expected = expected + correction
            address = wire.Address(b"12345678", fed.job.selection.d, t, client, "up")
            message = Message(expected, plain.critical_nd, plain.support_nd)
            rounded = wire.decode(wire.encode(message, address, values="int8").data, address).message
            assert torch.equal(upload.values_nd, rounded.values_nd), (t, client)
            residual[client], masks[client] = expected - upload.values_nd, mask_of(plain)
            accepted[client] = t
    assert (added > 0) == feedback, "the case must have something to feed back"


def test_the_state_carries_mask_and_residual_only_where_they_are_needed() -> None:
    def names(name: str, **settings: object) -> set[str]:
        return {k for k in Federation(tiny_job(name, **settings)).states[0] if "." not in k}

    assert names("fedavg") == {"round", "weights"}
    assert names("fedavg", wire__feedback=True) == {"round", "weights"}, "float32 loses nothing"
    assert names("fedpurin") == {"round", "weights", "mask"}
    assert names("fedpurin", wire__values="int8", wire__feedback=True) == {
        "round",
        "weights",
        "mask",
        "residual",
    }
    assert names("separate", wire__values="int8", wire__feedback=True) == {"round", "weights"}


def test_the_mask_in_the_state_is_the_one_the_server_has() -> None:
    fed = Federation(tiny_job("fedpurin"))
    for t in (1, 2):
        fed.round(t)
        for client, upload in fed.uploads.items():
            assert upload.critical_nd is not None
            mask = unpack_bits(fed.states[client]["mask"], fed.job.selection.d)
            assert torch.equal(mask, upload.critical_nd[0])
            assert torch.equal(fed.states[client]["mask"], fed.hub.known(client).mask)
            assert int(fed.states[client]["round"]) == t
