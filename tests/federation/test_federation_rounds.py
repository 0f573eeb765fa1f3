"""The server's rounds on a grid in this process: results, faults, resuming."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from federation_fakes import (
    FakeGrid,
    Federation,
    Members,
    Message,
    answer_with,
    client_of,
    is_work,
    simulated,
    small,
)
from flwr.app import ConfigRecord, Error, RecordDict

from fedpurin.engines.flower import peers, records, runtime
from fedpurin.engines.flower.runtime import NotPushed
from fedpurin.engines.flower.settings import PROGRESS, Terms
from fedpurin.errors import ConfigError, EngineError
from fedpurin.federation import printing

LOST_CLIENT, LOST_ROUND = 1, 2


def lines(path: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / name).read_text().splitlines()]


# Results


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "values", "validation"),
    [
        ("fedpurin", "bfloat16", 0.2),
        ("fedcac", "float32", 0.0),
        ("fedper", "float16", 0.0),
        ("fedbn", "int8", 0.0),
        ("separate", "float32", 0.2),
    ],
)
def test_methods_without_a_real_cluster_give_the_digest_of_the_local_engine(
    tmp_path: Path, method: str, values: str, validation: float
) -> None:
    config = small(method, values=values)
    config = config.updated({"model": {"name": "cnn"}, "data": {"validation": validation}})
    local = simulated(config, tmp_path / "local")
    federation = Federation(tmp_path, config)
    assert federation.run()["digest"] == local["digest"]
    assert lines(federation.path, "ledger.jsonl") == lines(tmp_path / "local", "ledger.jsonl")


def test_mixed_precision_and_a_device_that_sites_choose_give_the_digest_of_the_local_engine(
    tmp_path: Path,
) -> None:
    config = small().updated({"train": {"precision": "bfloat16"}})
    federation = Federation(tmp_path, config.updated({"run": {"device": "auto"}}))
    digest = federation.run()["digest"]
    assert digest == simulated(config, tmp_path / "local")["digest"]
    assert digest != simulated(small(), tmp_path / "exact")["digest"]


def test_every_client_ends_with_its_personal_model(tmp_path: Path) -> None:
    federation = Federation(tmp_path, small())
    result = federation.run()
    assert result["digest"] is not None
    assert result["missing_clients"] == []
    models = [federation.grid.state(client) / "r1" / "model.safetensors" for client in range(3)]
    assert len({model.read_bytes() for model in models}) == 3


def test_only_a_share_of_the_clients_is_asked_when_the_configuration_says_so(tmp_path: Path) -> None:
    config = small().updated({"run": {"participation": 0.67}})
    federation = Federation(tmp_path, config)
    federation.run()
    for t in (1, 2):
        assert sum(kind == records.WORK and group == str(t) for kind, _, group in federation.grid.asked) == 2


# Faults: whatever one client does, the round is the same as if it had not answered


def upload_of(answer: Message) -> bytes:
    return records.get(records.read(answer), "upload", bytes)


def with_upload(asked: Message, answer: Message, upload: bytes) -> Message:
    record = dict(records.read(answer)) | {"upload": upload}
    return answer_with(asked, **record)


def with_nan(asked: Message, answer: Message) -> Message:
    data = bytearray(upload_of(answer))
    data[-4:] = b"\x00\x00\xc0\x7f"  # the last value; NaN as a little-endian float32
    data[64:68] = zlib.crc32(data[68:], zlib.crc32(data[:64])).to_bytes(4, "little")
    return with_upload(asked, answer, bytes(data))


def with_other_layout(asked: Message, answer: Message) -> Message:
    data = bytearray(upload_of(answer))
    data[32:40] = b"elsewhat"  # the layout's fingerprint
    data[64:68] = zlib.crc32(data[68:], zlib.crc32(data[:64])).to_bytes(4, "little")
    return with_upload(asked, answer, bytes(data))


def with_old_round(asked: Message, answer: Message) -> Message:
    return answer_with(asked, **dict(records.read(answer)) | {"round": LOST_ROUND - 1})


def with_old_upload(asked: Message, answer: Message) -> Message:
    data = bytearray(upload_of(answer))
    data[16:20] = (LOST_ROUND - 1).to_bytes(4, "little")
    data[64:68] = zlib.crc32(data[68:], zlib.crc32(data[:64])).to_bytes(4, "little")
    return with_upload(asked, answer, bytes(data))


FAULTS = {
    "NaN": (with_nan, " is nan; "),
    "another layout": (with_other_layout, "fingerprint"),
    "an old round": (with_old_round, "round 1 instead of 2"),
    "an old upload": (with_old_upload, "round"),
    "half an upload": (lambda asked, answer: with_upload(asked, answer, upload_of(answer)[:-9]), "promises"),
    "garbage": (lambda asked, answer: with_upload(asked, answer, b"\xff" * 5000), "magic"),
    "no upload": (
        lambda asked, answer: answer_with(asked, client=1, round=2, meta=(40).to_bytes(4, "little")),
        "no upload",
    ),
    "a bad meta": (
        lambda asked, answer: answer_with(asked, **dict(records.read(answer)) | {"meta": b"?"}),
        "bytes",
    ),
    "a wrong type": (
        lambda asked, answer: answer_with(asked, **dict(records.read(answer)) | {"upload": "text"}),
        "str for 'upload'",
    ),
    "another client's name": (
        lambda asked, answer: answer_with(asked, **dict(records.read(answer)) | {"client": 0}),
        "answered as client 0",
    ),
    "another program's reply": (
        lambda asked, answer: Message(RecordDict({"other": ConfigRecord({"a": 1})}), reply_to=asked),
        "no fedpurin record",
    ),
    "an error of Flower's": (lambda asked, answer: Message(Error(0, "gone"), reply_to=asked), "failed: gone"),
    "a lost connection": (lambda asked, answer: Message(Error(5, "x"), reply_to=asked), "connection .* lost"),
}


def federation_with(folder: Path, fault: Any) -> Federation:
    def tamper(asked: Message, answer: Message) -> Message | None:
        return fault(asked, answer) if is_work(asked, LOST_CLIENT, LOST_ROUND) else answer

    federation = Federation(folder, small(rounds=3), tamper)
    federation.run()
    return federation


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """Client 1 does not answer in round 2."""
    return federation_with(tmp_path_factory.mktemp("silent"), lambda asked, answer: None)


def test_a_silent_client_is_left_out_after_the_deadline_and_takes_part_again(silent: Federation) -> None:
    first, second, third, final = lines(silent.path, "metrics.jsonl")
    assert first["clients"] == third["clients"] == [0, 1, 2]
    assert second["clients"] == [0, 2]
    assert second["failed"] == [{"client": 1, "reason": "no answer within 1 s"}]
    assert final["merged"]["clients"] == [0, 1, 2]
    assert json.loads((silent.path / "result.json").read_text())["digest"] is not None


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_client_is_reported_and_changes_nothing_else(
    tmp_path: Path, silent: Federation, fault: str
) -> None:
    tamper, reason = FAULTS[fault]
    federation = federation_with(tmp_path, tamper)
    (told,) = federation.told("failed")
    assert (told["client"], told["round"]) == (LOST_CLIENT, LOST_ROUND)
    assert "\n" not in told["reason"]
    assert re.search(reason, told["reason"]), told["reason"]
    assert lines(federation.path, "ledger.jsonl") == lines(silent.path, "ledger.jsonl")
    results = [json.loads((f.path / "result.json").read_text())["digest"] for f in (federation, silent)]
    assert results[0] == results[1]


def test_a_client_that_lost_its_state_starts_afresh_in_the_next_round(tmp_path: Path) -> None:
    federation: Federation

    def lose(asked: Message, answer: Message) -> Message:
        if is_work(asked, 0, 1):  # after the answer of round 1 has been computed
            shutil.rmtree(federation.grid.state(0))
        return answer

    federation = Federation(tmp_path, small(rounds=3), lose)
    result = federation.run()
    (told,) = federation.told("failed")
    assert (told["client"], told["round"]) == (0, 2)
    assert "starts afresh" in told["reason"]
    assert lines(federation.path, "metrics.jsonl")[2]["clients"] == [0, 1, 2]
    assert result["digest"] is not None


def flip_a_bit_of_the_state(federation: Federation, client: int) -> None:
    (file,) = federation.grid.state(client).glob("*/state.safetensors")
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("method", ["fedpurin", "fedper"])
def test_a_client_whose_newest_state_is_damaged_repeats_its_round_from_the_one_before(
    method: str, tmp_path: Path
) -> None:
    federation: Federation
    damaged: list[Message] = []

    def damage(asked: Message, answer: Message) -> Message:
        if is_work(asked, 0, 2) and not damaged:
            damaged.append(asked)
            flip_a_bit_of_the_state(federation, 0)
            return Message(Error(5, "gone"), reply_to=asked)
        return answer

    config = small(method, rounds=3)
    federation = Federation(tmp_path, config, damage)
    assert federation.run()["digest"] == simulated(config, tmp_path / "simulated")["digest"]
    said = "state.safetensors is damaged (its checksum does not fit); it goes on from its state of round 1"
    assert [event["text"] for event in federation.told("warning")] == [f"client 0: {said}"]
    noted = lines(federation.grid.state(0), PROGRESS)
    assert [printing.describe_site(line) for line in noted if "warning" in line] == [said]
    assert not federation.told("failed")


def test_a_client_whose_state_is_damaged_beyond_that_says_so_and_starts_afresh(tmp_path: Path) -> None:
    federation: Federation

    def damage(asked: Message, answer: Message) -> Message:
        if is_work(asked, 0, 2):
            flip_a_bit_of_the_state(federation, 0)
        return answer

    federation = Federation(tmp_path, small("fedper", rounds=4), damage)
    result = federation.run()
    (told,) = federation.told("failed")
    assert (told["client"], told["round"]) == (0, 3)
    assert told["reason"].startswith("state.safetensors is damaged")
    assert told["reason"].endswith("it starts afresh in the next round")
    assert lines(federation.path, "metrics.jsonl")[3]["clients"] == [0, 1, 2]
    assert result["digest"] is not None


def test_an_absent_client_is_left_out_and_comes_late(tmp_path: Path) -> None:
    federation: Federation

    def arrive(asked: Message, answer: Message) -> Message:
        if is_work(asked, 0, 1):
            federation.grid.absent.clear()
        return answer

    federation = Federation(tmp_path, small(), arrive)
    federation.grid.absent = {2}
    federation.run()
    first, second, _ = lines(federation.path, "metrics.jsonl")
    assert first["failed"] == [{"client": 2, "reason": "not connected"}]
    assert second["clients"] == [0, 1, 2]


def test_a_client_that_restarts_under_a_new_node_id_repeats_its_round(tmp_path: Path) -> None:
    whole = Federation(tmp_path / "whole", small(rounds=3)).run()
    federation: Federation

    def restart(asked: Message, answer: Message) -> Message | None:
        if is_work(asked, 1, 2) and not federation.grid.restarts:  # killed in mid-round 2, and back at once
            federation.grid.restarts[1] = 1
            return None
        return answer

    federation = Federation(tmp_path / "run", small(rounds=3), restart)
    federation.terms = replace(federation.terms, deadline=600.0)
    assert federation.run()["digest"] == whole["digest"]
    assert [event["client"] for event in federation.told("joined")] == [0, 1, 2, 1]
    assert federation.told("refused") == federation.told("failed") == []


def test_every_client_whose_message_flower_refuses_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower returns an empty id for each, or no ids at all where the payload is too large."""
    federation = Federation(tmp_path, small(clients=4))
    push = FakeGrid.push_messages

    def refuse(grid: FakeGrid, messages: Any) -> list[str]:
        (message,) = messages
        refused = {2: [""], 3: []}
        if is_work(message, client := client_of(message), 1) and client in refused:
            return refused[client]
        return push(grid, messages)

    monkeypatch.setattr(FakeGrid, "push_messages", refuse)
    federation.run()
    first = lines(federation.path, "metrics.jsonl")[0]
    assert first["clients"] == [0, 1]
    assert [(f["client"], f["reason"]) for f in first["failed"]] == [
        (2, "Flower refused the message to it"),
        (3, "Flower refused the message to it"),
    ]


def test_a_message_that_does_not_get_on_its_way_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Federation(tmp_path / "whole", small()).run()
    push, stuck = FakeGrid.push_messages, []

    def get_stuck(grid: FakeGrid, messages: Any) -> list[str]:
        (message,) = messages
        if message.metadata.group_id in ("hello", "1") and client_of(message) == 1 and len(stuck) < 2:
            stuck.append(message)
            raise NotPushed("object", 1, "session")
        return push(grid, messages)

    monkeypatch.setattr(FakeGrid, "push_messages", get_stuck)
    monkeypatch.setattr(peers, "PROBE_SECONDS", 0.0)  # greeted again at once
    federation = Federation(tmp_path / "run", small())
    assert federation.run()["digest"] == whole["digest"]
    assert len(stuck) == 2
    assert federation.told("failed") == []


def http_error(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://superlink/v1")
    return httpx.HTTPStatusError("x", request=request, response=httpx.Response(status, request=request))


@pytest.mark.parametrize("done", [False, True], ids=["before it did anything", "after it had done it"])
def test_a_superlink_that_fails_now_and_then_is_asked_again_and_changes_nothing(
    done: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third call ends in status 500; of messages that were taken nevertheless there are then two."""
    whole = Federation(tmp_path / "whole", small()).run()
    monkeypatch.setattr(runtime, "PAUSES", (0.0,) * 5)
    calls = itertools.count(1)

    def failing(call: Any, harmless: bool) -> Any:
        def fail(grid: FakeGrid, *words: Any) -> Any:
            fails = next(calls) % 3 == 0
            if fails and not (done and harmless):
                raise http_error(500)
            answer = call(grid, *words)
            if fails:
                raise http_error(500)
            return answer

        return fail

    for name in ("get_nodes", "push_messages", "pull_messages"):
        monkeypatch.setattr(FakeGrid, name, failing(getattr(FakeGrid, name), name != "pull_messages"))
    federation = Federation(tmp_path / "run", small())
    assert federation.run()["digest"] == whole["digest"]
    assert federation.told("failed") == []
    assert next(calls) > 9


@pytest.mark.parametrize(("status", "asked"), [(500, 6), (403, 1)])
def test_a_superlink_that_goes_on_failing_or_refuses_is_an_error(
    status: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "PAUSES", (0.0,) * 5)
    calls = []

    def ask() -> None:
        calls.append(1)
        raise http_error(status)

    with pytest.raises(httpx.HTTPStatusError):
        runtime.patiently(ask)
    assert len(calls) == asked


@pytest.mark.parametrize("code", [4, 5, 8], ids=["reply lost", "node lost", "process died"])
def test_what_is_lost_on_the_way_is_asked_for_again_and_changes_nothing(tmp_path: Path, code: int) -> None:
    whole = Federation(tmp_path / "whole", small(rounds=3)).run()
    lost: list[Message] = []

    def lose(asked: Message, answer: Message) -> Message:
        if is_work(asked, 1, 2) and len(lost) < 2:
            lost.append(asked)
            return Message(Error(code, "x"), reply_to=asked)
        return answer

    federation = Federation(tmp_path / "lossy", small(rounds=3), lose)
    assert federation.run()["digest"] == whole["digest"]
    assert federation.told("failed") == []


def test_a_node_that_takes_a_while_to_come_back_does_not_use_up_its_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes just after it was seen; until it is back Flower answers for it at once, that it is lost."""
    monkeypatch.setattr(peers, "LOOK_SECONDS", 0.5)
    whole = Federation(tmp_path / "whole", small(rounds=3)).run()
    federation: Federation
    looks: list[bool] = []  # after it has gone

    def go(asked: Message, answer: Message) -> Message:
        if is_work(asked, 1, 2) and not looks:
            federation.grid.absent.add(1)
            return Message(Error(5, "gone"), reply_to=asked)
        return answer

    def get_nodes() -> list[Any]:
        looks.extend([True] * len(federation.grid.absent))
        if len(looks) == 3:
            federation.grid.absent.clear()
        return FakeGrid.get_nodes(federation.grid)

    federation = Federation(tmp_path / "slow", small(rounds=3), go)
    federation.terms = replace(federation.terms, deadline=600.0, patience=600.0)
    monkeypatch.setattr(federation.grid, "get_nodes", get_nodes)
    assert federation.run()["digest"] == whole["digest"]
    assert federation.told("failed") == []
    assert len(looks) == 3


def test_a_node_that_answers_a_later_message_is_asked_again_for_the_one_it_owes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "PROBE_SECONDS", 0.0)
    whole = Federation(tmp_path / "whole", small(rounds=3)).run()
    asked_before: list[Message] = []

    def forget(asked: Message, answer: Message) -> Message | None:
        if is_work(asked, 1, 2) and not asked_before:
            asked_before.append(asked)
            return None  # the node was killed with the message in hand, and is back under the same id
        return answer

    federation = Federation(tmp_path / "run", small(rounds=3), forget)
    federation.terms = replace(federation.terms, deadline=600.0)
    assert federation.run()["digest"] == whole["digest"]
    assert federation.told("failed") == []


# Too few


def test_a_round_in_which_everybody_is_too_slow_ends_the_run_with_an_error(tmp_path: Path) -> None:
    def slow(asked: Message, answer: Message) -> Message | None:
        return None if asked.metadata.message_type == records.WORK else answer

    federation = Federation(tmp_path, small(), slow)
    with pytest.raises(EngineError, match=r"round 1: 0 accepted upload\(s\), but a round needs 2"):
        federation.run()
    assert not (federation.path / "result.json").exists()


def test_a_federation_that_nobody_joins_ends_with_an_error(tmp_path: Path) -> None:
    federation = Federation(tmp_path, small())
    federation.grid.absent = {0, 1, 2}
    with pytest.raises(EngineError, match="0 of 3 clients are connected"):
        federation.run()


@pytest.mark.parametrize("name", ["deadline", "join", "patience"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e9])
def test_a_wait_that_is_no_number_of_seconds_is_refused_at_once(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"--{name} {value:g} does not fit")):
        Terms.of(3, **{name: value})


def test_the_minimum_must_fit_the_number_of_clients() -> None:
    assert Terms.of(5).minimum == 3
    with pytest.raises(ConfigError, match="minimum of 6"):
        Terms.of(5, minimum=6)


# Resuming


class PowerCutError(Exception):
    """The server is gone."""


@pytest.mark.parametrize("cut_at", [(0, 1), (2, 2)], ids=["before the first checkpoint", "in mid-round 2"])
def test_a_server_that_was_cut_off_resumes_to_the_same_models(
    tmp_path: Path, cut_at: tuple[int, int]
) -> None:
    whole = Federation(tmp_path / "whole", small(rounds=3)).run()
    cut = False

    def power(asked: Message, answer: Message) -> Message:
        nonlocal cut
        if not cut and is_work(asked, *cut_at):
            cut = True
            raise PowerCutError
        return answer

    federation = Federation(tmp_path / "cut", small(rounds=3), power)
    with pytest.raises(PowerCutError):
        federation.run()
    assert federation.run()["digest"] == whole["digest"]


def test_a_server_that_was_cut_off_at_the_very_end_resumes_to_the_same_models(tmp_path: Path) -> None:
    whole = Federation(tmp_path / "whole", small()).run()
    cut = False

    def power(asked: Message, answer: Message) -> Message:
        nonlocal cut
        if not cut and asked.metadata.message_type == records.FINISH and client_of(asked) == 2:
            cut = True
            raise PowerCutError
        return answer

    federation = Federation(tmp_path / "cut", small(), power)
    with pytest.raises(PowerCutError):
        federation.run()
    assert federation.run()["digest"] == whole["digest"]


# Who is who


def hello_as(client: int, told: dict[str, Any]) -> Any:
    def tamper(asked: Message, answer: Message) -> Message:
        if asked.metadata.message_type == records.HELLO and client_of(asked) == client:
            return answer_with(asked, **told)
        return answer

    return tamper


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"client": 7, "version": records.VERSION}, "clients 0 to 2"),
        ({"client": 2, "version": 99, "package": "9.9"}, "another version of the protocol"),
        ({"version": records.VERSION}, "'client'"),
    ],
)
def test_a_node_that_introduces_itself_badly_is_refused(
    tmp_path: Path, told: dict[str, Any], reason: str
) -> None:
    federation = Federation(tmp_path, small(), hello_as(2, told))
    federation.run()
    (refused,) = federation.told("refused")
    assert reason in refused["reason"]
    assert lines(federation.path, "metrics.jsonl")[0]["clients"] == [0, 1]


def test_a_node_cannot_speak_for_the_holder_of_another_key(tmp_path: Path) -> None:
    roster = Members(0, 1, 2)
    federation = Federation(
        tmp_path, small(), hello_as(2, {"client": 0, "version": records.VERSION}), roster=roster
    )
    federation.run()
    (refused,) = federation.told("refused")
    assert "calls itself client 0, but its key is that of 2" in refused["reason"]


def test_what_a_client_says_is_shown_as_one_short_line_without_control_characters(tmp_path: Path) -> None:
    nasty = "\x1b[31mred\n" + "x" * 5000

    def tamper(asked: Message, answer: Message) -> Message:
        return answer_with(asked, client=1, error=nasty) if is_work(asked, 1, 1) else answer

    federation = Federation(tmp_path, small(), tamper)
    federation.run()
    reason = federation.told("failed")[0]["reason"]
    assert reason.startswith("?[31mred xxx")
    assert len(reason) == 300


# Membership


def when(client: int, t: int, do: Any) -> Any:
    """Do something once this client's answer of round t is on its way."""

    def tamper(asked: Message, answer: Message) -> Message:
        if is_work(asked, client, t):
            do()
        return answer

    return tamper


@pytest.mark.parametrize("how", ["lost", "its process died"])
def test_a_site_that_could_not_answer_its_greeting_is_greeted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(peers, "PROBE_SECONDS", 0.05 if how == "lost" else 600.0)
    greeted: list[int] = []

    def swallow(asked: Message, answer: Message) -> Message | None:
        if asked.metadata.message_type != records.HELLO or client_of(asked) != 1:
            return answer
        greeted.append(1)
        if len(greeted) > 1:
            return answer
        return None if how == "lost" else Message(Error(8, "gone"), reply_to=asked)

    federation = Federation(tmp_path, small(), swallow)
    federation.terms = replace(federation.terms, join=60.0)
    federation.run()
    assert lines(federation.path, "metrics.jsonl")[0]["clients"] == [0, 1, 2]
    assert sorted(event["client"] for event in federation.told("joined")) == [0, 1, 2]


def test_a_revoked_site_is_left_out_from_then_on(tmp_path: Path) -> None:
    roster = Members(0, 1, 2)
    revoke = when(2, 2, lambda: roster.keys.pop(b"key 2", None))  # its upload of round 2 is on its way
    federation = Federation(tmp_path, small(rounds=3), revoke, roster=roster)
    result = federation.run()
    rounds = lines(federation.path, "metrics.jsonl")
    assert [record["clients"] for record in rounds[:3]] == [[0, 1, 2], [0, 1, 2], [0, 1]]
    assert [event["client"] for event in federation.told("revoked")] == [2]
    assert [record["failed"] for record in rounds[:3]] == [[], [], []]  # nobody misses it
    assert result["missing_clients"] == [2]
    assert (federation.grid.state(2) / "r1" / "model.safetensors").exists()


def test_a_site_is_revoked_also_where_flower_has_forgotten_its_node_first(tmp_path: Path) -> None:
    roster = Members(0, 1, 2)
    federation: Federation

    def revoke() -> None:
        roster.keys.pop(b"key 2", None)
        federation.grid.absent.add(2)

    federation = Federation(tmp_path, small(rounds=3), when(2, 2, revoke), roster=roster)
    federation.run()
    assert [event["client"] for event in federation.told("revoked")] == [2]
    assert federation.told("left") == []


def test_a_site_revoked_while_it_works_is_not_waited_for(tmp_path: Path) -> None:
    roster = Members(0, 1, 2)

    def silence(asked: Message, answer: Message) -> Message | None:
        if is_work(asked, 2, 2):
            roster.keys.pop(b"key 2", None)
            return None
        return answer

    federation = Federation(tmp_path, small(), silence, roster=roster)
    federation.terms = replace(federation.terms, deadline=600.0)
    federation.run()
    second = lines(federation.path, "metrics.jsonl")[1]
    assert second["failed"] == [{"client": 2, "reason": "its key was revoked or replaced"}]


def test_a_site_joins_a_running_federation_from_the_next_round_on(tmp_path: Path) -> None:
    roster = Members(0, 1)
    federation: Federation

    def join() -> None:
        roster.keys[b"key 2"] = 2
        federation.grid.absent.clear()

    federation = Federation(tmp_path, small(rounds=3), when(0, 2, join), roster=roster)
    federation.grid.absent = {2}
    federation.terms = replace(federation.terms, join=600.0, patience=600.0)  # a free seat is not waited for
    federation.run()
    rounds = lines(federation.path, "metrics.jsonl")
    assert [record["clients"] for record in rounds[:3]] == [[0, 1], [0, 1], [0, 1, 2]]
    assert [record["failed"] for record in rounds[:3]] == [[], [], []]  # an empty seat is not a failure


def test_a_site_that_has_a_key_and_never_came_is_not_waited_for(tmp_path: Path) -> None:
    roster = Members(0, 1)
    key = when(0, 1, lambda: roster.keys.setdefault(b"key 2", 2))
    federation = Federation(tmp_path, small(rounds=3), key, roster=roster)
    federation.grid.absent = {2}
    federation.terms = replace(federation.terms, join=600.0, patience=600.0)
    federation.run()
    rounds = lines(federation.path, "metrics.jsonl")
    assert [record["clients"] for record in rounds[:3]] == [[0, 1]] * 3
    assert rounds[2]["failed"] == [{"client": 2, "reason": "not connected"}]


def test_a_site_goes_on_with_a_new_key(tmp_path: Path) -> None:
    roster = Members(0, 1, 2)
    federation: Federation

    def renew() -> None:
        if b"key 1" in roster.keys:
            del roster.keys[b"key 1"]
            roster.keys[b"another"] = 1
            federation.grid.restarts[1] = 1
            federation.grid.keys[federation.grid.node(1)] = b"another"

    federation = Federation(tmp_path, small(rounds=3), when(2, 2, renew), roster=roster)
    federation.terms = replace(federation.terms, deadline=600.0, patience=600.0)
    result = federation.run()
    assert [event["client"] for event in federation.told("replaced")] == [1]
    assert lines(federation.path, "metrics.jsonl")[2]["clients"] == [0, 1, 2]
    assert result["missing_clients"] == []
