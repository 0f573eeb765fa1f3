"""Files of JSON lines that one process writes and others follow: the server's events, a site's progress, and
its audit of everything it has sent, for the people there: STATE/audit.jsonl, a line per message.

    {"at", "run", "round", "what", "bytes", "values", "type", "metrics", "sha256", "file"}

`bytes` and `sha256` are of the message as it is handed to Flower: the upload and the sample count (with
metrics, unless those stay here) behind it; at the end of a run, the digest of the final model. With
--keep-messages the messages themselves are kept beside it, in STATE/RUN/sent/.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from fedpurin import files
from fedpurin.errors import RunError

AUDIT = "audit.jsonl"
UNREADABLE = {"round": 0, "what": "?", "bytes": 0, "values": 0, "type": "", "metrics": False, "sha256": ""}

Line = dict[str, Any]


def append_line(path: Path, line: Line) -> None:
    """On a line of its own, also where a process was killed over the last one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        torn = file.read(1) not in (b"", b"\n")
        file.write((b"\n" if torn else b"") + json.dumps(line).encode() + b"\n")


def new_lines(path: Path, position: int = 0) -> tuple[list[Line], int]:
    """Whole lines after `position`, and the position after them.

    A line that is no object, torn when its writer was killed, is passed over: what follows still counts.
    """
    try:
        with files.regular(path).open("rb") as file:
            file.seek(position)
            text = file.read()
    except FileNotFoundError:
        return [], position
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror}); move it away") from error
    whole = text[: text.rfind(b"\n") + 1]
    entries: list[Line] = []
    for line in whole.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            entry = json.loads(line)
            entries += [entry] if isinstance(entry, dict) else []
    return entries, position + len(whole)


def end_of(path: Path) -> int:
    """Where lines that are written from now on begin."""
    return path.stat().st_size if path.exists() else 0


def record_sent(
    state: Path, run: str, t: int, what: str, parts: list[bytes], *, keep: bool, **more: Any
) -> None:
    """Write the line, and the message if asked, before anything is sent."""
    message = b"".join(parts)
    line: Line = {
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
        files.make_folders(file.parent)
        files.write_atomic(file, message)
        line["file"] = str(file.relative_to(state))
    append_line(state / AUDIT, line)


def read_audit(state: Path) -> list[Line]:
    """The lines, each with `kept`: whether the message is there and is what the line says. A line that was
    torn by a crash, or changed since, stays in its place as damaged."""
    path = state / AUDIT
    if not path.exists():
        raise RunError(f"{path} does not exist: give the --state of a client that has sent something")
    try:
        lines = files.regular(path).read_text(errors="replace").splitlines()
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror}); give the --state of a client") from error
    return [_checked(state, text) for text in lines if text]


def _checked(state: Path, text: str) -> Line:
    with contextlib.suppress(ValueError, RecursionError, AttributeError):
        line: Line = json.loads(text)
        if line.keys() >= UNREADABLE.keys() and all(
            type(line[name]) is type(usual) for name, usual in UNREADABLE.items()
        ):
            return {**line, "kept": _kept(state, line)}
    return {**UNREADABLE, "kept": "damaged"}


def _kept(state: Path, line: Line) -> str:
    if "file" not in line:
        return "no"
    file = state / str(line["file"])
    try:
        content = files.read_bounded(file, max(0, line["bytes"]))
    except FileNotFoundError:
        return "gone"
    except (OSError, ValueError):  # no file, a longer one, or no name of one
        return "changed"
    return "yes" if hashlib.sha256(content).hexdigest() == line["sha256"] else "changed"
