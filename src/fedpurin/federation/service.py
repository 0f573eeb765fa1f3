"""Processes that a federation is made of: each with a log file, none outliving its owner."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path

from fedpurin.errors import EngineError
from fedpurin.federation import guard
from fedpurin.files import unused

STOP_SECONDS = guard.GRACE_SECONDS + 5.0
RESTART_SECONDS = 1.0  # at least between two starts of a service
LITTLE_ROOM = 2**20  # bytes; with less a database can no longer be written
LAST_LINES = 100  # of a log, in which the reason for an end may stand
ERROR_LINE = re.compile(r"[\w.]*(Error|Exception)\b")  # the last line of a traceback begins like this
MAX_RESTARTS, RESTARTS_WITHIN_SECONDS = 6, 60.0


def flower_environment(home: Path) -> dict[str, str]:
    """The environment of every Flower process: no telemetry, no update checks, no installs, one private home.

    A variable that the user has set stays as it is; that is how one asks for telemetry.
    """
    quiet = {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "OMP_NUM_THREADS": "1",  # clients of one machine share its cores
    }
    source = str(Path(__file__).resolve().parents[2])
    return {
        **quiet,
        **os.environ,
        "FLWR_HOME": str(home),
        "PYTHONUNBUFFERED": "1",
        # Flower starts its helpers by name: they have to be those of this very Python.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH", "")])),
    }


def program(name: str) -> str:
    """The full path of one of Flower's commands."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise EngineError(
            f"the command {name} is not installed beside {sys.executable}: reinstall fedpurin[flower]"
        )
    return str(path)


def free_port() -> int:
    """A TCP port of this machine that nobody uses at the moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def no_room(folder: Path) -> str:
    """Why nothing can be written there; "" where there is room. A database that says no answers with a status
    of the server's, and a process that cannot write its log ends without a word."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(folder).free < LITTLE_ROOM:
            return f"No space left on device: make room for {folder}, then go on"
    return ""


def set_aside_damaged(database: Path) -> str:
    """Where a database is none any more, it makes way for a new one; a line about that, "" where it is sound.

    What is wrong for now only, as a lock or permissions, is left to whoever opens it next.
    """
    if not database.is_file():
        return ""
    try:
        with contextlib.closing(
            sqlite3.connect(f"{database.absolute().as_uri()}?mode=rw", uri=True)
        ) as found:
            problem = str(found.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError:
        return ""
    except sqlite3.DatabaseError as error:
        problem = str(error)
    if problem == "ok":
        return ""
    kept = unused(database.with_name(f"{database.name}.damaged"))
    database.rename(kept)
    for ending in ("-wal", "-shm"):
        database.with_name(database.name + ending).unlink(missing_ok=True)
    return f"{database.name} was damaged ({problem}): it is kept as {kept.name}, and a new one is made"


class Service:
    """One long-running command under a guard. Use it as a context manager, or call `stop`."""

    def __init__(
        self,
        name: str,
        command: list[str],
        *,
        log: Path,
        env: dict[str, str] | None = None,
        prefix: list[str] | None = None,  # a program that runs the guard, such as nsenter
    ) -> None:
        self.name, self.log = name, log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._log_from = output.tell()  # what is before is of an earlier one
            self._process = subprocess.Popen(
                [*(prefix or []), sys.executable, "-I", guard.__file__, *command],
                stdin=subprocess.PIPE,  # the guard ends when this pipe closes, so also when we are killed
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,  # Ctrl-C reaches us alone; we then stop things in order
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def exit_code(self) -> int | None:
        return self._process.poll()

    def last_words(self) -> str:
        """For an error message: why it ended, as far as the disk or its log can tell."""
        if full := no_room(self.log.parent):
            return full
        lines: list[str] = []
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(self._log_from)
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines[-LAST_LINES:] if ERROR_LINE.match(line)]
        said = [*lines[-1:], *errors[-1:]]
        return f"its log {self.log} ends: {said[-1].strip()}" if said else f"its log {self.log} is empty"

    def close(self) -> None:
        """Tell the guard to end everything, without waiting."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()

    def stop(self) -> None:
        self.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL to the whole tree at once, as when a machine loses power."""
        pids = [self.pid, *guard.descendants(self.pid)]
        guard.signal_all(pids, signal.SIGKILL)
        self._process.wait()
        self.close()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def tidy(folder: Path, *kept: str) -> None:
    """After the end only the logs stay, and what is named."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.suffix != ".log" and path.name not in kept:
            path.unlink()


class Kept:
    """A service that is started again when it ends, unless it keeps ending."""

    def __init__(self, start: Callable[[], Service]) -> None:
        self._start = start
        self._began = [time.monotonic()]
        self.service = start()

    def tend(self) -> list[str]:
        """Start the service again if it has ended; a line about that."""
        now = time.monotonic()
        if self.service.alive() or now - self._began[-1] < RESTART_SECONDS:
            return []
        self._began = [t for t in self._began if now - t < RESTARTS_WITHIN_SECONDS] + [now]
        old = self.service
        if len(self._began) > MAX_RESTARTS:
            raise EngineError(
                f"{old.name} ended {MAX_RESTARTS} times within {RESTARTS_WITHIN_SECONDS:.0f} s; "
                f"{old.last_words()}"
            )
        old.close()
        self.service = self._start()
        return [f"{old.name} had ended and was started again"]


def wait_healthy(
    service: Service,
    url: str,
    *,
    ca: Path | None = None,
    through: Path | None = None,
    timeout: float = 600.0,
) -> None:
    """Wait until `url` answers 200. Raises EngineError when the process ends first or time is up."""
    context = ssl.create_default_context(cafile=str(ca)) if ca else None
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if not service.alive():
            raise EngineError(f"{service.name} stopped while starting; {service.last_words()}")
        with contextlib.suppress(OSError, http.client.HTTPException):
            if _status(url, context, through) == 200:
                return
        time.sleep(0.1)
    raise EngineError(f"{service.name} did not answer at {url} within {timeout:.0f} s; see {service.log}")


def _status(url: str, context: ssl.SSLContext | None, through: Path | None) -> int:
    """What is answered there, or `through` a socket in the file system; never over the user's HTTP proxy."""
    where = urllib.parse.urlsplit(url)
    with contextlib.closing(http.client.HTTPConnection(where.netloc, timeout=5)) as connection:
        if through:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(5)
            connection.sock.connect(str(through))
        else:
            connection.connect()
        if context:
            connection.sock = context.wrap_socket(connection.sock, server_hostname=where.hostname)
        connection.request("GET", where.path)
        return connection.getresponse().status
