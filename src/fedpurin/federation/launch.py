"""Starts a run on a SuperLink and follows it to its end.

Beside the run directory's own files there is RUN/federation/ while a federation is at work: logs of the
processes, `run.json` with the name under which the sites keep their state, and `events.log`, a JSON line for
everything that happened. The logs stay when the run is over.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from fedpurin.config import Config
from fedpurin.engines.flower.journal import Line, end_of, new_lines
from fedpurin.engines.flower.settings import Terms
from fedpurin.errors import EngineError, RunError
from fedpurin.federation.cluster import SuperLink
from fedpurin.federation.keys import ServerKeys
from fedpurin.federation.service import Service, no_room
from fedpurin.files import make_folders, only_process, read_bounded, write_atomic

POLL_SECONDS = 0.1
LARGEST_NAME = 2**12  # bytes of run.json
RUN_NAME = re.compile(r"[A-Za-z0-9-]{1,100}")  # what sites take for one
NAMELESS = "restore it, or remove it: the sites then start from the common part, as new ones do"
MAX_DEATHS = 3  # of the server's processes, without a round in between


def federation_folder(run_path: Path) -> Path:
    return run_path / "federation"


@contextlib.contextmanager
def alone(run_path: Path) -> Iterator[None]:
    """One command at a time runs the federation of a run directory: two would mix up its processes' files."""
    folder = federation_folder(run_path)
    make_folders(folder)
    folder.chmod(0o700)  # Flower's database holds what the sites sent, and the tokens of its tasks
    refusal = RunError(f"{run_path} is being run by another command; wait for it or stop it")
    with only_process(folder / ".lock", refusal):
        yield


def events_file(run_path: Path) -> Path:
    return federation_folder(run_path) / "events.log"


def run_name(run_path: Path) -> str:
    """The name of the run for its sites; the same after every restart of the server."""
    path = federation_folder(run_path) / "run.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps({"run": uuid.uuid4().hex}))
    try:
        name = json.loads(read_bounded(path, LARGEST_NAME))["run"]
    except OSError as problem:
        raise RunError(f"{path} cannot be read ({problem.strerror}); {NAMELESS}") from None
    except (ValueError, LookupError, TypeError, RecursionError):
        name = None
    if not isinstance(name, str) or not RUN_NAME.fullmatch(name):
        raise RunError(f"{path} is damaged: it holds no name of a run; {NAMELESS}")
    return name


class Launched:
    """The run of an existing run directory, new or continued, on a SuperLink that is up: its process at the
    server, and what has to stay alive with it."""

    def __init__(
        self, link: SuperLink, run_path: Path, config: Config, terms: Terms, keys: ServerKeys | None = None
    ) -> None:
        self.link = link
        self.folder = federation_folder(run_path).resolve()
        self.events = events_file(run_path).resolve()
        self._position = end_of(self.events)  # what happened before is history
        self.tended: list[Callable[[], list[str]]] = []  # each starts again what has ended, and says so
        self._settings = {"config": config.to_toml(), "run": run_name(run_path)}
        self._deaths = 0
        order = {
            "path": str(run_path.resolve()),
            "events": str(self.events),
            "terms": asdict(terms),
            "roster": "" if keys is None else str(keys.folder.resolve()),
            "door": link.door(),
            "run": self._settings["run"],
        }
        write_atomic(self.folder / "job.json", json.dumps(order))
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

    def follow(self) -> Iterator[Line]:
        """The server's events as they happen, up to `done`. Raises EngineError when the run fails.

        A process that is killed is started again: the run goes on after its newest checkpoint.
        """
        try:
            while True:
                while self.link.notices:
                    yield {"event": "restarted", "what": self.link.notices.pop(0)}
                alive = self.rounds.alive() and self.link.alive()  # before we look for last words
                lines, self._position = new_lines(self.events, self._position)
                for event in lines:
                    if event["event"] == "error":
                        raise EngineError(no_room(self.folder) or str(event["message"]))
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
            raise EngineError(f"{ended.name} ended {self._deaths} times; {ended.last_words()}")
        self.rounds.stop()
        if not self.link.alive():
            self.link.restart()
        self.link.stop_run(self.flower_id)
        self._start()
        return f"{ended.name} had ended; the run goes on after its last whole round"


def stop_old_run(link: SuperLink, run_path: Path) -> None:
    """A killed command leaves its Flower run behind, whose messages the sites would still work on."""
    path = federation_folder(run_path) / "flower-run"
    if path.exists():
        link.stop_run(path.read_text().strip())
        path.unlink()
