"""A site's record of everything it has sent, for the people there: STATE/audit.jsonl, a line per message.

    {"at", "run", "round", "what", "bytes", "values", "type", "metrics", "sha256", "file"}

`bytes` and `sha256` are of the message as it is handed to Flower: the upload and the sample count (with
metrics, unless those stay here) behind it; at the end of a run, the digest of the final model. With
--keep-messages the messages themselves are kept beside it, in STATE/RUN/sent/.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from fedpurin.errors import RunError

AUDIT = "audit.jsonl"
UNREADABLE = {"round": 0, "what": "?", "bytes": 0, "values": 0, "type": "", "metrics": False, "sha256": ""}


def record(state: Path, run: str, t: int, what: str, parts: list[bytes], *, keep: bool, **more: Any) -> None:
    """Write the line, and the message if asked, before anything is sent."""
    message = b"".join(parts)
    line: dict[str, Any] = {
        "at": round(time.time(), 3),
        "run": run,
        "round": t,
        "what": what,
        "bytes": len(message),
        **more,
        "sha256": hashlib.sha256(message).hexdigest(),
    }
    if keep:
        file = state / run / "sent" / f"{what}-{t:04d}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(message)
        line["file"] = str(file.relative_to(state))
    with (state / AUDIT).open("ab+") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - 1))
        torn = log.read(1) not in (b"", b"\n")  # a process was killed over the last line
        log.write((b"\n" if torn else b"") + json.dumps(line).encode() + b"\n")


def read(state: Path) -> list[dict[str, Any]]:
    """The lines, each with `kept`: whether the message is there and is what the line says. A line that was
    torn by a crash, or changed since, stays in its place as damaged."""
    path = state / AUDIT
    if not path.exists():
        raise RunError(f"{path} does not exist: give the --state of a client that has sent something")
    return [_checked(state, text) for text in path.read_text(errors="replace").splitlines() if text]


def _checked(state: Path, text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
        return {**line, "kept": _kept(state, line)} if line.keys() >= UNREADABLE.keys() else _damaged()
    except (ValueError, AttributeError):
        return _damaged()


def _damaged() -> dict[str, Any]:
    return {**UNREADABLE, "kept": "damaged"}


def _kept(state: Path, line: dict[str, Any]) -> str:
    if "file" not in line:
        return "no"
    file = state / line["file"]
    if not file.exists():
        return "gone"
    return "yes" if hashlib.sha256(file.read_bytes()).hexdigest() == line["sha256"] else "changed"
