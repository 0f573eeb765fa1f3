"""Laws of whole rounds, through real bytes: what each client holds afterwards, and what nobody may notice."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from law_cases import CASES, NAMES, uses_the_merged_model
from torch import Tensor

import reference
from fedpurin import wire
from fedpurin.errors import EngineError, MismatchError, WireError
from fedpurin.messages import Message
from fedpurin.methods import AnyMethod
from fedpurin.methods.fedcac import FedCAC
from fedpurin.methods.fedpurin import FedPURIN
from tiny import Federation, case_name, job_for, tiny_job

BETA = 3  # of tiny.job_for
TOLERANCE = 2e-6  # float32 sums of four values, none above 4
every_method = pytest.mark.parametrize("method", CASES, ids=case_name)
# the others have definitions of their own: test_fedfrugal.py, test_examples.py
MERGERS = [m for m in CASES if uses_the_merged_model(m)]
every_merger = pytest.mark.parametrize("method", MERGERS, ids=case_name)
with_masks = pytest.mark.parametrize("method", [m for m in CASES if m.has_masks], ids=case_name)
every_name = pytest.mark.parametrize("name", NAMES)


def rows_of(fed: Federation) -> tuple[list[int], list[list[float]], list[list[bool]], list[float]]:
    """Clients, values, masks and sample counts of the round's uploads, as the reference twins take them."""
    clients = sorted(fed.uploads)
    values = [fed.uploads[c].values_nd[0].tolist() for c in clients]
    masks = [_bits(fed.uploads[c].critical_nd, len(values[0])) for c in clients]
    samples = fed.job.train_samples()
    return clients, values, masks, [float(samples[c]) for c in clients]


def _bits(mask: Tensor | None, d: int) -> list[bool]:
    return [True] * d if mask is None else mask[0].tolist()


def own_exchanged(fed: Federation, client: int) -> list[float]:
    row: list[float] = fed.job.selection.take(fed.states[client]["weights"][None])[0].tolist()
    return row


def fill(
    method: AnyMethod, merged: list[float], mask: list[bool], sent: list[bool], own: list[float]
) -> list[float]:
    """FedPURIN's options for coordinates outside the client's mask."""
    if isinstance(method, FedPURIN) and method.noncritical == "local":
        return [m if critical else o for m, critical, o in zip(merged, mask, own, strict=True)]
    if isinstance(method, FedPURIN) and method.average == "support":
        return [m if there else o for m, there, o in zip(merged, sent, own, strict=True)]
    return merged


def expected_models(fed: Federation, method: AnyMethod, t: int) -> dict[int, list[float]]:
    """The exchanged parameters of every participant after the reply, by definition."""
    clients, values, masks, samples = rows_of(fed)
    if not method.has_masks:
        bar = reference.theta_bar(values, masks, samples)
        return dict.fromkeys(clients, bar)
    average = getattr(method, "average", "paper")
    groups = reference.collaborators(masks, t, BETA)
    merged = reference.combine(values, masks, groups, samples, average)
    sent = [any(mask[c] for mask in masks) for c in range(len(masks[0]))]
    return {
        client: fill(method, merged[i], masks[i], sent, own_exchanged(fed, client))
        for i, client in enumerate(clients)
    }


def exchanged(fed: Federation, weights_D: Tensor) -> Tensor:
    return fed.job.selection.take(weights_D[None])[0]


def assert_model(found: Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=TOLERANCE)


@every_merger
def test_every_client_ends_a_round_with_the_model_that_is_defined(method: AnyMethod) -> None:
    """Before (1, 2), at (3) and after (4) beta; batch-norm parameters and all else that stays is its own."""
    fed = Federation(job_for(method))
    stays = ~method.exchanged(fed.job.layout)
    for t in (1, 2, 3, 4):
        fed.round(t)
        expected = expected_models(fed, method, t) if fed.uploads else {}
        for client in range(4):
            merged = fed.merged(client)
            assert torch.equal(merged[stays], fed.states[client]["weights"][stays])
            if client in expected:
                assert_model(exchanged(fed, merged), expected[client])


@with_masks
def test_a_client_alone_keeps_its_critical_values_and_is_not_sent_them(method: AnyMethod) -> None:
    fed = Federation(job_for(method))
    alone_early = False
    for t in (1, 2, 3, 4):
        record = fed.round(t)
        for client, group in enumerate(record["collaborators"]):
            reply = fed.hub.reply(client)
            assert reply is not None
            head = wire.peek(reply)
            mask = fed.uploads[client].critical_nd
            assert mask is not None
            assert head.critical_travels == bool(group and mask.any())
            if not group:
                alone_early |= t <= BETA
                values = exchanged(fed, fed.merged(client))[mask[0]]
                assert torch.equal(values, fed.uploads[client].values_nd[mask])
        if t > BETA:
            assert record["collaborators"] == [[], [], [], []]
    assert alone_early or method.tau == 1.0, "the case must show a client that is alone before beta"  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", [FedPURIN(), FedPURIN(average="support"), FedCAC()], ids=case_name)
def test_an_absent_client_gets_the_newest_mean_and_its_own_critical_part(method: AnyMethod) -> None:
    """Outside the mask it last sent: theta_bar of the round it missed. Inside: as merged back then."""
    fed = Federation(job_for(method))
    fed.round(1)
    average = getattr(method, "average", "paper")
    at_first = expected_models(fed, method, 1)
    masks = {c: _bits(fed.uploads[c].critical_nd, fed.job.selection.d) for c in range(4)}
    fed.round(2, [0, 1, 3])
    _, values, sent_masks, samples = rows_of(fed)
    bar = reference.theta_bar(values, sent_masks, samples, average)
    told = [average == "paper" or any(m[c] for m in sent_masks) for c in range(len(bar))]
    own = own_exchanged(fed, 2)
    outside = [b if there else o for b, there, o in zip(bar, told, own, strict=True)]
    expected = [a if m else b for a, m, b in zip(at_first[2], masks[2], outside, strict=True)]
    assert_model(exchanged(fed, fed.merged(2)), expected)


@every_merger
def test_a_client_never_seen_gets_the_mean_everywhere(method: AnyMethod) -> None:
    fed = Federation(job_for(method))
    own = own_exchanged(fed, 3)
    fed.round(1, [0, 1, 2])
    if not fed.uploads:
        assert fed.reply(3) is None
        return
    _, values, masks, samples = rows_of(fed)
    average = getattr(method, "average", "paper")
    bar = reference.theta_bar(values, masks, samples, average)
    if average == "support":
        bar = [b if any(m[c] for m in masks) else own[c] for c, b in enumerate(bar)]
    assert_model(exchanged(fed, fed.merged(3)), bar)


def everything(fed: Federation) -> dict[str, Tensor]:
    """All that a federation knows, by name."""
    server = {f"server.{name}": tensor for name, tensor in fed.hub.state().items()}
    return server | {f"{c}.{name}": x for c, state in fed.states.items() for name, x in state.items()}


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    different = [name for name in a if not torch.equal(a[name], b[name])]
    assert not different


def without_seconds(record: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in record.items() if k != "seconds"}


@every_name
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(name: str) -> None:
    first, again, other = (Federation(tiny_job(name, run__seed=seed)) for seed in (1, 1, 2))
    for t in (1, 2):
        records = [without_seconds(fed.round(t)) for fed in (first, again, other)]
        assert json.dumps(records[0]) == json.dumps(records[1])
    assert_same(everything(first), everything(again))
    assert first.hub.take_ledger() == again.hub.take_ledger()
    assert not torch.equal(first.states[0]["weights"], other.states[0]["weights"])


@every_name
def test_the_order_in_which_clients_are_served_does_not_matter(name: str) -> None:
    straight, shuffled = Federation(tiny_job(name)), Federation(tiny_job(name))
    for t, order in enumerate(([2, 0, 3, 1], [3, 2, 1, 0], [1, 3, 0, 2], [0, 2, 3, 1]), start=1):
        expected, found = straight.round(t), shuffled.round(t, order)
        assert without_seconds(expected) == without_seconds(found)
    assert_same(everything(straight), everything(shuffled))
    assert straight.hub.take_ledger() == shuffled.hub.take_ledger()


@every_name
def test_replies_do_not_depend_on_who_has_uploaded_already(name: str) -> None:
    """All replies first and then all uploads, or one client after the other: the same bytes."""
    fed, other = Federation(tiny_job(name)), Federation(tiny_job(name))
    for f in (fed, other):
        f.round(1)
        f.hub.begin(2, [0, 1, 2, 3])
    replies = [fed.hub.reply(client) for client in range(4)]
    for client in range(4):
        work = other.work(client, 2)
        other.hub.accept(client, work.upload, work.meta)
        assert [other.hub.reply(later) for later in range(client + 1, 4)] == replies[client + 1 :]


@every_name
def test_a_lost_upload_is_the_same_as_an_absence(name: str) -> None:
    lost, absent = Federation(tiny_job(name)), Federation(tiny_job(name))
    for fed in (lost, absent):
        fed.round(1)
    record = lost.round(2, lost=(1,))
    assert record["clients"] == [0, 2, 3]
    assert record["failed"] == [{"client": 1, "reason": "lost"}]
    absent.round(2, [0, 2, 3])
    assert_same(everything(lost), everything(absent))
    assert [lost.hub.reply(c) for c in range(4)] == [absent.hub.reply(c) for c in range(4)]
    assert without_seconds(lost.round(3)) == without_seconds(absent.round(3))
    assert_same(everything(lost), everything(absent))


@every_name
def test_a_server_that_was_saved_and_restored_goes_on_with_the_same_bytes(name: str) -> None:
    """At every round of a run through beta, with a client missing in between."""
    plan: list[list[int] | None] = [None, [0, 1, 3], None, None, [0, 2], None]
    fed = Federation(tiny_job(name))
    for t, clients in enumerate(plan, start=1):
        restored = Federation(fed.job, states={})
        restored.hub.restore({k: v.clone() for k, v in fed.hub.state().items()})
        restored.states = {c: {k: v.clone() for k, v in s.items()} for c, s in fed.states.items()}
        expected, found = fed.round(t, clients), restored.round(t, clients)
        assert without_seconds(expected) == without_seconds(found)
        assert fed.hub.take_ledger() == restored.hub.take_ledger()
        replies = [f.hub.reply(c) for f in (fed, restored) for c in range(4)]
        assert replies[:4] == replies[4:]
        fed.hub.take_ledger()


@every_method
def test_the_ledger_is_the_bytes_that_were_handed_over(method: AnyMethod) -> None:
    fed = Federation(job_for(method))
    fed.round(1)
    fed.round(2, [3, 0])
    fed.round(3, lost=(2,))
    for client in range(4):
        fed.reply(client)
    lines = fed.hub.take_ledger()
    if method.name == "separate":
        assert lines == []
        return
    assert sum(sum(line["bytes"].values()) for line in lines) == fed.handed_over
    # 4 + 2 + 4 replies, of which the first 4 are the initial model and not sent; then 4; uploads 4 + 2 + 3
    directions = [line["direction"] for line in lines]
    assert (directions.count("down"), directions.count("up")) == (0 + 2 + 4 + 4, 4 + 2 + 3)


def test_before_the_first_round_there_is_nothing_to_send() -> None:
    fed = Federation(tiny_job("fedavg"))
    assert [fed.hub.reply(c) for c in range(4)] == [None] * 4


def test_all_clients_start_with_the_same_exchanged_parameters_and_their_own_others() -> None:
    fed = Federation(tiny_job("fedper"))
    head = fed.job.layout.where("head")
    first, second = (fed.states[c]["weights"] for c in (0, 1))
    assert torch.equal(first[~head], second[~head])
    assert not torch.equal(first[head], second[head])
    separate = Federation(tiny_job("separate"))
    assert not torch.equal(separate.states[0]["weights"], separate.states[1]["weights"])
    assert torch.equal(separate.states[0]["weights"], first), "client 0's values are the common ones"


def test_participation_picks_by_seed_and_round_alone() -> None:
    hub = Federation(tiny_job("fedavg", counts=(4,) * 10, run__participation=0.3)).hub
    picked = [hub.participants(t) for t in range(1, 30)]
    assert all(len(set(p)) == 3 and p == sorted(p) for p in picked)
    assert picked == [hub.participants(t) for t in range(1, 30)]
    assert set().union(*picked) == set(range(10)), "over 29 rounds everybody has had a turn"


# What the hub refuses changes nothing


def test_uploads_that_are_not_due_are_refused() -> None:
    fed = Federation(tiny_job("fedpurin"))
    fed.round(1)
    fed.hub.begin(2, [0, 1])
    good = {c: fed.work(c, 2) for c in (0, 1)}
    before = {k: v.clone() for k, v in fed.hub.state().items()}
    fed.hub.take_ledger()
    for client, work in ((2, good[0]), (1, good[0])):  # not asked; another client's bytes
        with pytest.raises(MismatchError):
            fed.hub.accept(client, work.upload, work.meta)
    with pytest.raises(MismatchError, match="no upload"):
        fed.hub.accept(0, None, good[0].meta)
    assert fed.hub.metas == {}
    assert fed.hub.take_ledger() == []
    assert_same(before, fed.hub.state())
    fed.hub.accept(0, good[0].upload, good[0].meta)
    with pytest.raises(MismatchError, match="two"):
        fed.hub.accept(0, good[0].upload, good[0].meta)


def test_a_round_without_any_upload_is_an_error_that_gives_the_reasons() -> None:
    fed = Federation(tiny_job("fedavg"))
    fed.hub.begin(1, [0, 1])
    fed.hub.fail(0, "client 0 diverged")
    with pytest.raises(EngineError, match=r"round 1: no client delivered an upload .*client 0 diverged"):
        fed.hub.close(1)


def test_a_client_refuses_a_reply_of_the_past_or_to_a_state_it_does_not_have() -> None:
    fed = Federation(tiny_job("fedpurin"))
    fed.round(1)
    old = fed.hub.reply(0)
    fed.round(2)
    data = fed.job.client_data(0)
    with pytest.raises(MismatchError, match="round 1"):
        fed.site.work(0, 3, old, fed.states[0], data)
    fresh = fed.site.initial_state(0)
    with pytest.raises(WireError):
        fed.site.work(0, 3, fed.hub.reply(0), fresh, data)


def test_a_forgotten_client_is_answered_like_a_new_one() -> None:
    fed = Federation(tiny_job("fedpurin"))
    fed.round(1)
    fed.hub.forget(2)
    fed.states[2] = fed.site.initial_state(2)
    _, values, masks, samples = rows_of(fed)
    assert_model(exchanged(fed, fed.merged(2)), reference.theta_bar(values, masks, samples))


def test_a_message_of_n_rows_gives_its_rows() -> None:
    message = Message(torch.arange(6.0).view(2, 3), torch.eye(2, 3) > 0, None)
    row = message.row(1)
    assert row.values_nd.tolist() == [[3.0, 4.0, 5.0]]
    assert row.critical_nd is not None
    assert row.critical_nd.tolist() == [[False, True, False]]
    assert row.support_nd is None
