"""Starts a run on a SuperLink and follows it to its end.

Beside the run directory's own files there is RUN/federation/ while a federation is at work: logs of the
processes, `events.jsonl` from the server, and `run.json` with the name under which the sites keep their
state.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpurin.config import Config
from fedpurin.engines.flower.terms import Terms
from fedpurin.errors import EngineError
from fedpurin.federation.cluster import SuperLink
from fedpurin.federation.keys import ServerKeys, node_key_bytes
from fedpurin.federation.service import Service
from fedpurin.files import write_atomic

POLL_SECONDS = 0.1
START_SECONDS = 300.0  # from `flwr run` to the first sign of the server's process

Event = dict[str, Any]


def federation_folder(run_path: Path) -> Path:
    return run_path / "federation"


def run_name(run_path: Path) -> str:
    """The name of the run for its sites; the same after every restart of the server."""
    path = federation_folder(run_path) / "run.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps({"run": uuid.uuid4().hex}))
    return str(json.loads(path.read_text())["run"])


@dataclass
class Launched:
    """A run at work."""

    link: SuperLink
    flower_id: str
    events: Path
    watched: list[Service]  # if one of these ends, so does the run

    def follow(self) -> Iterator[Event]:
        """The server's events as they happen, up to `done`. Raises EngineError when the run fails."""
        position, pid, began = 0, None, time.monotonic()
        while True:
            lines, position = new_lines(self.events, position)
            for event in lines:
                if event["event"] == "started":
                    pid = int(event["pid"])
                elif event["event"] == "error":
                    raise EngineError(str(event["message"]))
                yield event
                if event["event"] == "done":
                    return
            if not lines:
                self._check_alive(pid, began)
                time.sleep(POLL_SECONDS)

    def _check_alive(self, pid: int | None, began: float) -> None:
        for service in self.watched:
            if not service.alive():
                raise EngineError(f"{service.name} stopped; its log {service.log} ends: {service.tail(3)}")
        if pid is None:
            if time.monotonic() - began > START_SECONDS:
                raise EngineError(
                    f"the server did not start within {START_SECONDS:.0f} s; see {self.link.service.log}"
                )
        elif (
            not _exists(pid)
            and self.events.exists()
            and new_lines(self.events, 0)[0][-1]["event"] not in ("done", "error")
        ):
            raise EngineError(f"the server's process ended in mid-run; see {self.link.service.log}")


def launch(
    link: SuperLink, run_path: Path, config: Config, terms: Terms, keys: ServerKeys | None = None
) -> Launched:
    """Start the run of an existing run directory, or continue it, on a SuperLink that is up."""
    folder = federation_folder(run_path).resolve()
    name = run_name(run_path)
    events = folder / "events.jsonl"
    events.unlink(missing_ok=True)
    public = [] if keys is None else [node_key_bytes(path).decode() for path in keys.public_keys()]
    order = {
        "path": str(run_path.resolve()),
        "events": str(events),
        "terms": terms.to_json(),
        "keys": {key: client for client, key in enumerate(public)},
    }
    write_atomic(folder / "job.json", json.dumps(order))
    settings = {"config": config.to_toml(), "run": name, "job": str(folder / "job.json")}
    return Launched(link, link.start_run(settings), events, [link.service])


def new_lines(path: Path, position: int) -> tuple[list[Event], int]:
    """Whole lines after `position`, and the position after them."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(position)
        text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        return [json.loads(line) for line in whole.splitlines()], position + len(whole)
    return [], position


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError):  # a zombie has ended, too
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return True
