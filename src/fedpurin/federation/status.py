"""Who takes part in a run, and how it goes: from the files of its run directory, while it runs and after.

No torch here: the command and the dashboard ask often.
"""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpurin.engines.flower.journal import new_lines
from fedpurin.errors import RunError
from fedpurin.federation.launch import events_file
from fedpurin.federation.printing import describe_event, mean_accuracy
from fedpurin.runs import shapes
from fedpurin.runs.parsing import read_lines, read_toml
from fedpurin.sections import RunSection
from fedpurin.settings import check_limits, converted

LOG_LINES = 12
FAILURE = {"client": shapes.Needed(shapes.COUNT), "reason": shapes.Needed(shapes.TEXT)}
METRICS_LINE = {**shapes.METRICS_LINE, "failed": shapes.Maybe([FAILURE])}
EVENT = {
    "event": shapes.Needed(shapes.TEXT),
    "at": shapes.NUMBER,
    "client": shapes.COUNT,
    "round": shapes.COUNT,
    "pid": shapes.Plain((int,), "a whole number from 1", 1),
    "revoked": [shapes.COUNT],
}
STATES = {"started": "waiting", "waiting": "waiting", "round": "running", "error": "stopped"}  # by event


@dataclass
class Member:
    client: int
    connected: bool = False
    revoked: bool = False
    last_seen: float | None = None  # seconds since 1970
    rounds: int = 0  # with an accepted upload
    up: int = 0  # bytes
    down: int = 0
    failures: int = 0
    last_failure: str = ""
    accuracy: float | None = None  # of the last upload


@dataclass
class Status:
    state: str  # waiting, running, done, stopped
    round: int
    of: int
    accuracy: list[float | None] = field(default_factory=list)  # mean per round
    members: list[Member] = field(default_factory=list)
    log: list[str] = field(default_factory=list)  # the last things that happened


def read_status(run: Path) -> Status:
    """Takes no lock: the run's own process holds it. Raises RunError where there is no run."""
    if not (run / "config.toml").exists():
        raise RunError(f"{run} is not a run directory; give the --out of `fedpurin federation server`")
    table = read_toml(run / "config.toml", shapes.CONFIG).get("run", {})
    settings = RunSection(**converted("run", RunSection, table, "[run]"))
    check_limits("run", settings)
    status = Status("stopped", 0, settings.rounds)
    seats = {client: Member(client) for client in range(settings.clients)}
    _read_metrics(run, status, seats)
    for line in _checked_lines(run / "ledger.jsonl", shapes.LEDGER_LINE):
        member = _seat(seats, line["client"], run / "ledger.jsonl")
        amount = sum(line["bytes"].values())
        if line["direction"] == "up":
            member.up += amount
        else:
            member.down += amount
    _follow_events(run, status, seats)
    status.members = list(seats.values())
    return status


def _checked_lines(file: Path, shape: Any) -> list[dict[str, Any]]:
    lines = read_lines(file)
    for number, line in enumerate(lines, start=1):
        shapes.check(file, line, shape, f"line {number}")
    return lines


def _seat(seats: dict[int, Member], client: int, file: Path) -> Member:
    if client not in seats:
        raise RunError(f"{file} is damaged: client ids must lie in 0..{len(seats) - 1}; {shapes.RESTORE}")
    return seats[client]


def _read_metrics(run: Path, status: Status, seats: dict[int, Member]) -> None:
    file = run / "metrics.jsonl"
    for record in _checked_lines(file, METRICS_LINE):
        if record.get("final"):
            continue
        status.round = record["round"]
        clients, scores = record.get("clients", []), (record.get("upload") or {}).get("accuracy", [])
        if len(clients) != len(scores):
            raise RunError(
                f"{file} is damaged: round {status.round} has {len(scores)} values of accuracy for "
                f"{len(clients)} clients; {shapes.RESTORE}"
            )
        status.accuracy.append(mean_accuracy(scores))
        for client, score in zip(clients, scores, strict=True):
            member = _seat(seats, client, file)
            member.rounds, member.accuracy = member.rounds + 1, score
        for failure in record.get("failed") or []:
            member = _seat(seats, failure["client"], file)
            member.failures, member.last_failure = member.failures + 1, failure["reason"]


def _read_events(run: Path) -> list[dict[str, Any]]:
    """Lines that are no events are passed over: a server that was killed may have torn some."""
    events = new_lines(events_file(run))[0]
    return [event for event in events if not shapes.complaint(event, EVENT) and _whole(event)]


def _whole(event: dict[str, Any]) -> bool:
    return event["event"] != "started" or "pid" in event


def _follow_events(run: Path, status: Status, seats: dict[int, Member]) -> None:
    events = _read_events(run)
    alive = True
    for event in events:
        kind = event["event"]
        if kind == "started":
            alive = _lives(event["pid"])
            for seat in seats.values():  # what was known of the connections ended with the process before
                seat.connected, seat.revoked = False, seat.client in event.get("revoked", [])
        status.state = STATES.get(kind, status.state)
        member = seats.get(event.get("client", -1))
        if member is None:
            continue
        if kind in ("joined", "reply"):
            member.connected, member.revoked, member.last_seen = True, False, event.get("at")
        elif kind in ("left", "revoked", "replaced"):
            member.connected, member.revoked = False, member.revoked or kind == "revoked"
    if (run / "result.json").exists():
        status.state = "done"
    elif not alive:
        status.state = "stopped"
    if status.state in ("stopped", "done"):
        for seat in seats.values():
            seat.connected = False
    told = (line for event in reversed(events) if (line := describe_event(event, run)))
    status.log = list(itertools.islice(told, LOG_LINES))[::-1]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def table(status: Status) -> list[str]:
    """The status as lines of text."""
    lines = [f"{status.state}, round {status.round} of {status.of}"]
    header = f"{'client':>6} {'connected':>10} {'last seen':>10} {'rounds':>7} {'sent':>13} {'received':>13}"
    lines.append(f"{header} {'failures':>9}")
    for member in status.members:
        seen = "-" if member.last_seen is None else f"{max(0, time.time() - member.last_seen):.0f} s ago"
        connected = "revoked" if member.revoked else "yes" if member.connected else "no"
        lines.append(
            f"{member.client:>6} {connected:>10} {seen:>10} {member.rounds:>7} {member.up:>13,} "
            f"{member.down:>13,} {member.failures:>9}  {member.last_failure}".rstrip()
        )
    return lines
