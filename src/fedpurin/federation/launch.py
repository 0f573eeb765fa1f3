"""Starts a run on a SuperLink and follows it to its end.

Beside the run directory's own files there is RUN/federation/ while a federation is at work: logs of the
processes, `run.json` with the name under which the sites keep their state, and `events.log`, a JSON line for
everything that happened. The logs stay when the run is over.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fedpurin.config import Config
from fedpurin.engines.flower.terms import Terms
from fedpurin.errors import EngineError, RunError
from fedpurin.federation.cluster import SuperLink
from fedpurin.federation.keys import ServerKeys
from fedpurin.federation.service import Service
from fedpurin.files import make_folders, write_atomic

POLL_SECONDS = 0.1
MAX_DEATHS = 3  # of the server's processes, without a round in between

Event = dict[str, Any]


def federation_folder(run_path: Path) -> Path:
    return run_path / "federation"


@contextlib.contextmanager
def alone(run_path: Path) -> Iterator[None]:
    """One command at a time runs the federation of a run directory: two would mix up its processes' files."""
    folder = federation_folder(run_path)
    make_folders(folder)
    folder.chmod(0o700)  # Flower's database holds what the sites sent, and the tokens of its tasks
    lock = FileLock(folder / ".lock", timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(f"{run_path} is being run by another command; wait for it or stop it") from None
    try:
        yield
    finally:
        lock.release()


def events_file(run_path: Path) -> Path:
    return federation_folder(run_path) / "events.log"


def run_name(run_path: Path) -> str:
    """The name of the run for its sites; the same after every restart of the server."""
    path = federation_folder(run_path) / "run.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps({"run": uuid.uuid4().hex}))
    return str(json.loads(path.read_text())["run"])


class Launched:
    """A run at work: its process at the server, and what has to stay alive with it."""

    def __init__(self, link: SuperLink, run_path: Path, config: Config) -> None:
        self.link = link
        self.folder = federation_folder(run_path).resolve()
        self.events = events_file(run_path).resolve()
        self._position = _end_of(self.events)  # what happened before is history
        self.tended: list[Callable[[], list[str]]] = []  # each starts again what has ended, and says so
        self._settings = {"config": config.to_toml(), "run": run_name(run_path)}
        self._deaths = 0
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "fedpurin.engines.flower.server_app", str(self.folder / "job.json")]
        self.rounds = Service(
            "the server's process",
            command,
            log=self.folder / "server.log",
            env=self.link.env,
            prefix=self.link.prefix,
        )
        self.flower_id = self.link.start_run(self._settings)
        write_atomic(self.folder / "flower-run", self.flower_id)

    def follow(self) -> Iterator[Event]:
        """The server's events as they happen, up to `done`. Raises EngineError when the run fails.

        A process that is killed is started again: the run goes on after its newest checkpoint.
        """
        try:
            while True:
                alive = self.rounds.alive() and self.link.alive()  # before we look for last words
                lines, self._position = new_lines(self.events, self._position)
                for event in lines:
                    if event["event"] == "error":
                        raise EngineError(str(event["message"]))
                    self._deaths = 0 if event["event"] == "round_done" else self._deaths
                    yield event
                    if event["event"] == "done":
                        return
                for line in [line for tend in self.tended for line in tend()]:
                    yield {"event": "restarted", "what": line}
                if not lines and not alive:
                    yield {"event": "restarted", "what": self._restart()}
                elif not lines:
                    time.sleep(POLL_SECONDS)
        finally:
            self.rounds.stop()

    def _restart(self) -> str:
        ended = self.rounds if not self.rounds.alive() else self.link.service
        self._deaths += 1
        if self._deaths > MAX_DEATHS:
            raise EngineError(
                f"{ended.name} ended {self._deaths} times; its log {ended.log} ends: "
                f"{' '.join(ended.tail(3).split())}"
            )
        self.rounds.stop()
        if not self.link.alive():
            self.link.restart()
        self.link.stop_run(self.flower_id)
        self._start()
        return f"{ended.name} had ended; the run goes on after its last whole round"


def launch(
    link: SuperLink, run_path: Path, config: Config, terms: Terms, keys: ServerKeys | None = None
) -> Launched:
    """Start the run of an existing run directory, or continue it, on a SuperLink that is up."""
    folder = federation_folder(run_path).resolve()
    order = {
        "path": str(run_path.resolve()),
        "events": str(events_file(run_path).resolve()),
        "terms": terms.to_json(),
        "roster": "" if keys is None else str(keys.folder.resolve()),
        "door": link.door(),
        "run": run_name(run_path),
    }
    write_atomic(folder / "job.json", json.dumps(order))
    return Launched(link, run_path, config)


def stop_old_run(link: SuperLink, run_path: Path) -> None:
    """A killed command leaves its Flower run behind, whose messages the sites would still work on."""
    path = federation_folder(run_path) / "flower-run"
    if path.exists():
        link.stop_run(path.read_text().strip())
        path.unlink()


def _end_of(log: Path) -> int:
    """The length of a log, whose last line may have been torn: the next one begins on a line of its own."""
    if not log.exists():
        return 0
    if not log.read_bytes().endswith(b"\n"):
        with log.open("a") as file:
            file.write("\n")
    return log.stat().st_size


def new_lines(path: Path, position: int) -> tuple[list[Event], int]:
    """Whole lines after `position`, and the position after them.

    A line that is no object, torn when its writer was killed, is passed over: what follows still counts.
    """
    try:
        with path.open("rb") as file:
            file.seek(position)
            text = file.read()
    except FileNotFoundError:
        return [], position
    whole = text[: text.rfind(b"\n") + 1]
    entries: list[Event] = []
    for line in whole.splitlines():
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            entries += [entry] if isinstance(entry, dict) else []
    return entries, position + len(whole)
