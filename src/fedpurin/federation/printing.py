"""What the commands print while a federation is at work."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, Protocol


class Console(Protocol):
    """The one method that the commands need of rich's Console."""

    def print(self, *objects: Any, **options: Any) -> None: ...


def say(console: Console, text: str) -> None:
    """A line as it is: no markup, since it may hold brackets or what another machine said."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def describe_event(event: dict[str, Any], run_path: Path) -> str | None:
    """One line for an event of the server, or None where it is not worth one."""
    kind = event["event"]
    if kind == "waiting":
        return f"waiting for clients: {event['have']} of {event['want']} connected"
    if kind == "joined":
        return f"client {event['client']} is connected"
    if kind == "refused":
        return f"refused a node: {event['reason']}"
    if kind == "failed":
        return f"round {event['round']}: client {event['client']} left out: {event['reason']}"
    if kind == "bounded":
        return f"round {event['round']}: client {event['client']} bounded: {event['reason']}"
    if kind == "round_done":
        return _round_line(event, run_path)
    if kind == "left":
        return f"client {event['client']} is no longer connected"
    if kind == "revoked":
        return f"client {event['client']} is refused: its key was revoked; its model stays as last merged"
    if kind == "replaced":
        return f"the old key of client {event['client']} is refused"
    if kind == "restarted":
        return str(event["what"])
    if kind == "finishing":
        return f"last reply to {event['asked']} clients"
    return None


def _round_line(event: dict[str, Any], run_path: Path) -> str:
    line = f"round {event['round']}: {event['accepted']} uploads"
    with contextlib.suppress(OSError, ValueError, KeyError, StopIteration):
        told = reversed((run_path / "metrics.jsonl").read_text().splitlines())
        record = next(r for text in told if (r := json.loads(text))["round"] == event["round"])
        accuracies = [a for a in record["upload"]["accuracy"] if a is not None]
        if accuracies:
            line += f", mean accuracy {sum(accuracies) / len(accuracies):.3f}"
        line += f", {record['seconds']['round']:.1f} s"
    return line


def describe_traffic(inbound: int, outbound: int, run_path: Path) -> list[str]:
    """The ledger beside what Flower counted on its socket: what the packaging costs."""
    lines = [json.loads(line) for line in (run_path / "ledger.jsonl").read_text().splitlines()]
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


def describe_site(line: dict[str, Any]) -> str:
    """One line for what a site noted about its own work."""
    if "refused" in line:
        return f"refused what the server asked for: {line['refused']}"
    accuracy = "" if line.get("accuracy") is None else f", accuracy {line['accuracy']:.3f}"
    if line.get("final"):
        chosen = f" of round {line['best_round']}, the best by validation," if line.get("best_round") else ""
        return f"the run is over{accuracy}; the personal model{chosen} is {line['model']}"
    return (
        f"round {line['round']} of {line['of']}: trained{accuracy}, "
        f"received {line['received']:,} bytes, sent {line['sent']:,}"
    )
