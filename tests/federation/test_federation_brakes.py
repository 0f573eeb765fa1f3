"""What a site refuses before it trains, and its record of what it has sent."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from federation_fakes import Federation, Message, records, small
from test_federation_site import Screen

from fedpurin.engines.flower import journal
from fedpurin.engines.flower.settings import Limits
from fedpurin.errors import ConfigError, RunError
from fedpurin.federation import commands


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_rounds=1), "asks for 2 rounds; this site agrees to at most 1"),
        (Limits(methods=("fedavg", "fedbn")), "the method fedpurin; this site agrees to fedavg or fedbn"),
        (Limits(values=("int8",)), "values as float32; this site agrees to int8"),
        (Limits(share_metrics=False), "share_metrics = true.*agrees to share_metrics = false"),
        (Limits(min_samples=41), "trains on 41 samples at least, and has 40"),
        (Limits(max_message_mb=0.1), "agrees to at most 0.1 MiB"),
    ],
)
def test_a_site_refuses_what_is_beyond_its_limits_and_trains_nothing(
    tmp_path: Path, limits: Limits, reason: str
) -> None:
    federation = Federation(tmp_path, small())
    federation.grid.limits = {1: limits}
    federation.run()
    told = [event for event in federation.told("failed") if event["client"] == 1]
    assert told
    for event in told:
        assert re.search(reason, event["reason"]), event["reason"]
    assert not (federation.grid.state(1) / "r1").exists()  # no state, no model
    assert not (federation.grid.state(1) / journal.AUDIT).exists()  # nothing was sent


def test_limits_within_which_a_run_stays_change_nothing(tmp_path: Path) -> None:
    limits = Limits(40, 2, ("fedpurin",), ("float32",), share_metrics=True, max_message_mb=1.0)
    free, limited = (Federation(tmp_path / name, small()) for name in ("free", "limited"))
    limited.grid.limits = dict.fromkeys(range(3), limits)
    assert limited.run()["digest"] == free.run()["digest"]


def test_limits_are_read_from_a_file_and_mistakes_are_named(tmp_path: Path) -> None:
    file = tmp_path / "limits.toml"
    file.write_text('max_rounds = 9\nmethods = ["fedpurin"]\nmax_message_mb = 20\nshare_metrics = false\n')
    assert Limits.read(file) == Limits(
        max_rounds=9, methods=("fedpurin",), max_message_mb=20.0, share_metrics=False
    )
    for text, reason in (
        ("max_round = 9", "unknown limit 'max_round'; the limits are min_samples"),
        ("max_rounds = '9'", "max_rounds = '9' should be like 0"),
        ("max_rounds = -1", "max_rounds = -1"),
        ("methods = 'fedavg'", "methods = 'fedavg' should be like ()"),
        ("= 3", "cannot read the limits"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=re.escape(reason)):
            Limits.read(file)


def test_the_audit_holds_exactly_what_was_sent(tmp_path: Path) -> None:
    sent: list[bytes] = []

    def listen(asked: Message, answer: Message) -> Message:
        record: Any = records.read(answer)
        if record["client"] == 1 and "meta" in record:
            sent.append(record.get("upload", b"") + record["meta"] + bytes.fromhex(record.get("digest", "")))
        return answer

    federation = Federation(tmp_path, small(), listen)
    federation.run()
    state = federation.grid.state(1)
    lines = journal.read_audit(state)
    assert [(line["what"], line["round"]) for line in lines] == [
        ("upload", 1),
        ("upload", 2),
        ("finish", 2),
    ]
    assert [line["sha256"] for line in lines] == [hashlib.sha256(data).hexdigest() for data in sent]
    assert [line["bytes"] for line in lines] == [len(data) for data in sent]
    ledger = [json.loads(line) for line in (federation.path / "ledger.jsonl").read_text().splitlines()]
    kept = [line["kept"] for line in ledger if line["client"] == 1 and line["direction"] == "up"]
    assert [line["values"] for line in lines[:2]] == kept
    assert {line["kept"] for line in lines} == {"yes"}


def test_a_line_of_the_audit_that_was_torn_is_shown_and_hides_no_other(tmp_path: Path) -> None:
    def write(t: int) -> None:
        about = {"values": 1, "type": "float32", "metrics": False}
        journal.record_sent(tmp_path, "r1", t, "upload", [b"x"], keep=False, **about)

    write(1)
    with (tmp_path / journal.AUDIT).open("a") as log:
        log.write('{"at": 1, "ru')
    write(3)
    assert [(line["round"], line["kept"]) for line in journal.read_audit(tmp_path)] == [
        (1, "no"),
        (0, "damaged"),
        (3, "no"),
    ]
    assert commands.audit(tmp_path, console=Screen()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"bytes": "many"}, {"round": None}, {"values": [1]}, {"sha256": 3}, {"metrics": "no"},
        {"file": "/dev/zero"}, {"file": "pipe"}, {"file": 5}, {"file": "."}, {"file": "a\0b"}, {"bytes": 0},
    ],
)  # fmt: skip
def test_a_line_of_the_audit_that_was_changed_is_told_and_waits_for_nothing(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    about = {"values": 1, "type": "float32", "metrics": False}
    journal.record_sent(tmp_path, "r1", 1, "upload", [b"x"], keep=True, **about)
    os.mkfifo(tmp_path / "pipe")
    line = json.loads((tmp_path / journal.AUDIT).read_text())
    (tmp_path / journal.AUDIT).write_text(json.dumps(line | change) + "\n")
    for as_json in (False, True):
        assert commands.audit(tmp_path, console=Screen(), as_json=as_json) == 1


def test_a_pipe_in_the_place_of_the_audit_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / journal.AUDIT)
    with pytest.raises(RunError, match=r"audit.jsonl cannot be read .it is a pipe"):
        journal.read_audit(tmp_path)


def test_the_audit_command_notices_a_message_that_was_changed(tmp_path: Path) -> None:
    federation = Federation(tmp_path, small())
    federation.run()
    state, screen = federation.grid.state(0), Screen()
    assert commands.audit(state, console=screen) == 0
    assert len(screen.lines) == 1 + 3  # a header, two uploads and the end
    (state / "r1/sent/upload-0002").write_bytes(b"something else")
    assert commands.audit(state, console=screen) == 1
    assert "changed" in screen.lines[-2]
    with pytest.raises(RunError, match="give the --state of a client"):
        commands.audit(tmp_path / "nowhere", console=screen)
