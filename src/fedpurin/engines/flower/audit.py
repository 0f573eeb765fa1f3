"""A site's record of everything it has sent, for the people there: STATE/audit.jsonl, a line per message.

    {"at", "run", "round", "what", "bytes", "values", "type", "metrics", "sha256", "file"}

`bytes` and `sha256` are of the message as it is handed to Flower: the upload and the sample count (with
metrics, unless those stay here) behind it; at the end of a run, the digest of the final model. With
--keep-messages the messages themselves are kept beside it, in STATE/RUN/sent/.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

from fedpurin.errors import RunError

AUDIT = "audit.jsonl"


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
    with (state / AUDIT).open("a") as log:
        log.write(json.dumps(line) + "\n")


def read(state: Path) -> list[dict[str, Any]]:
    """The lines, each with `kept`: whether the message is there and is what the line says."""
    path = state / AUDIT
    if not path.exists():
        raise RunError(f"{path} does not exist: give the --state of a client that has sent something")
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    for line in lines:
        line["kept"] = _kept(state, line)
    return lines


def _kept(state: Path, line: dict[str, Any]) -> str:
    if "file" not in line:
        return "no"
    file = state / line["file"]
    if not file.exists():
        return "gone"
    return "yes" if hashlib.sha256(file.read_bytes()).hexdigest() == line["sha256"] else "changed"
