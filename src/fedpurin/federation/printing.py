"""What the commands print while a federation is at work."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from pathlib import Path
from typing import Any, Protocol

from fedpurin.engines.flower.journal import Line
from fedpurin.errors import RunError
from fedpurin.runs.parsing import read_lines

EVENTS = {
    "waiting": "waiting for clients: {have} of {want} connected",
    "joined": "client {client} is connected",
    "refused": "refused a node: {reason}",
    "failed": "round {round}: client {client} left out: {reason}",
    "bounded": "round {round}: client {client} bounded: {reason}",
    "left": "client {client} is no longer connected",
    "revoked": "client {client} is refused: its key was revoked; its model stays as last merged",
    "replaced": "the old key of client {client} is refused",
    "restarted": "{what}",
    "warning": "{text}",
    "finishing": "last reply to {asked} clients",
}


class Console(Protocol):
    """The one method that the commands need of rich's Console."""

    def print(self, *objects: Any, **options: Any) -> None: ...


def say(console: Console, *lines: str) -> None:
    """Lines as they are: no markup, since they may hold brackets or what another machine said."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def describe_event(event: Line, run_path: Path) -> str | None:
    """One line for an event of the server, or None where it is not worth one."""
    if event["event"] == "round_done":
        return _round_line(event, run_path)
    form = EVENTS.get(event["event"])
    return form.format_map(defaultdict(lambda: "?", event)) if form else None


def _round_line(event: Line, run_path: Path) -> str:
    line = f"round {event.get('round', '?')}: {event.get('accepted', '?')} uploads"
    with contextlib.suppress(RunError, KeyError, TypeError, StopIteration):
        told = reversed(read_lines(run_path / "metrics.jsonl"))
        record = next(record for record in told if record["round"] == event["round"])
        accuracy = mean_accuracy(record["upload"]["accuracy"])
        if accuracy is not None:
            line += f", mean accuracy {accuracy:.3f}"
        line += f", {record['seconds']['round']:.1f} s"
    return line


def mean_accuracy(scores: list[float | None]) -> float | None:
    """Of the clients that told theirs, if any did."""
    told = [score for score in scores if score is not None]
    return sum(told) / len(told) if told else None


def describe_traffic(inbound: int, outbound: int, run_path: Path) -> list[str]:
    """The ledger beside what Flower counted on its socket: what the packaging costs."""
    lines = read_lines(run_path / "ledger.jsonl")
    told = []
    for direction, counted in (("up", inbound), ("down", outbound)):
        messages = [sum(line["bytes"].values()) for line in lines if line["direction"] == direction]
        if messages:
            ledger, extra = sum(messages), counted - sum(messages)
            told.append(
                f"{direction}: {len(messages)} messages, {ledger:,} bytes in the ledger, {counted:,} by "
                f"Flower's count: {extra / len(messages):,.0f} more per message, {100 * extra / ledger:.2f} %"
            )
    return told


def describe_site(line: Line) -> str:
    """One line for what a site noted about its own work."""
    if "refused" in line:
        return f"refused what the server asked for: {line['refused']}"
    if "warning" in line:
        return str(line["warning"])
    accuracy = "" if line.get("accuracy") is None else f", accuracy {line['accuracy']:.3f}"
    if line.get("final"):
        chosen = f" of round {line['best_round']}, the best by validation," if line.get("best_round") else ""
        return f"the run is over{accuracy}; the personal model{chosen} is {line['model']}"
    return (
        f"round {line['round']} of {line['of']}: trained{accuracy}, "
        f"received {line['received']:,} bytes, sent {line['sent']:,}"
    )
