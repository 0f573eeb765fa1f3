"""No process outlives the command that started it, whatever happens to either."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from pathlib import Path

import pytest

from fedpurin.errors import EngineError, RunError
from fedpurin.federation.cluster import SuperLink
from fedpurin.federation.launch import federation_folder, run_name
from fedpurin.federation.service import (
    Service,
    flower_environment,
    free_port,
    set_aside_damaged,
    wait_healthy,
)

# A program that starts a helper in a session of its own, as Flower does, and tells both process ids.
FAMILY = """
import subprocess, sys, time, os
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(os.getpid(), helper.pid, flush=True)
{then}
"""
WAIT = "time.sleep(600)"


def family(tmp_path: Path, then: str) -> tuple[Service, list[int]]:
    service = Service("a family", [sys.executable, "-c", FAMILY.format(then=then)], log=tmp_path / "log")
    wait_for(lambda: (tmp_path / "log").read_text().endswith("\n"))
    return service, [int(pid) for pid in (tmp_path / "log").read_text().split()]


def wait_for(condition, seconds: float = 30.0) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # not there, or gone between opening and reading
        return True


def test_stopping_ends_the_helpers_in_other_sessions_too(tmp_path: Path) -> None:
    service, pids = family(tmp_path, WAIT)
    service.stop()
    assert all(gone(pid) for pid in pids)


def test_killing_ends_everything_at_once(tmp_path: Path) -> None:
    service, pids = family(tmp_path, WAIT)
    service.kill()
    wait_for(lambda: all(gone(pid) for pid in pids))


def test_when_the_program_ends_its_helpers_end(tmp_path: Path) -> None:
    service, pids = family(tmp_path, "sys.exit(7)")
    wait_for(lambda: not service.alive())
    assert service.exit_code() == 7
    assert all(gone(pid) for pid in pids)
    service.stop()


def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    service, pids = family(
        tmp_path, "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    )
    service.stop()
    assert all(gone(pid) for pid in pids)


def test_when_the_owner_is_killed_everything_ends(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(f"""
                import sys, time
                from pathlib import Path
                from fedpurin.federation.service import Service
                command = [sys.executable, "-c", {FAMILY.format(then=WAIT)!r}]
                Service("x", command, log=Path({str(tmp_path / "log")!r}))
                time.sleep(600)
            """),
        ],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    try:
        log = tmp_path / "log"
        wait_for(lambda: log.exists() and log.read_text().endswith("\n"))
        pids = [int(pid) for pid in log.read_text().split()]
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    wait_for(lambda: all(gone(pid) for pid in pids))


def test_a_service_that_dies_while_starting_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no such option'); raise SystemExit(2)"]
    with (
        Service("the thing", command, log=tmp_path / "log") as service,
        pytest.raises(EngineError, match=r"the thing stopped while starting.*no such option"),
    ):
        wait_healthy(service, f"http://127.0.0.1:{free_port()}/health")


def test_the_reason_is_the_last_error_of_its_own_life_not_the_last_line(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("OSError: of a life before\n")
    program = "import sys; sys.exit('Traceback\\nsqlite3.OperationalError: no\\n]\\n(Background: elsewhere)')"
    with Service("the thing", [sys.executable, "-c", program], log=tmp_path / "log") as service:
        wait_for(lambda: not service.alive())
        assert service.last_words().endswith("ends: sqlite3.OperationalError: no")
    with Service("the thing", [sys.executable, "-c", "print(7)"], log=tmp_path / "log") as service:
        wait_for(lambda: not service.alive())
        assert service.last_words().endswith("ends: 7")


def test_where_the_disk_is_full_that_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Service("the thing", [sys.executable, "-c", "print(7)"], log=tmp_path / "log") as service:
        full = shutil.disk_usage(tmp_path)._replace(free=4096)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
        assert service.last_words().startswith("No space left on device: make room for")


@pytest.mark.slow
def test_a_superlink_whose_first_start_was_cut_short_comes_up(tmp_path: Path) -> None:
    """Killed, or out of disk, while its database was being made: a table is there, but not its version."""
    with closing(sqlite3.connect(tmp_path / "superlink.db")) as database:
        database.execute("CREATE TABLE task_event (id INTEGER)")
    link = SuperLink(tmp_path)
    try:
        link.wait()
        made = (tmp_path / "superlink.db").stat().st_ino
        link.restart()
        assert (tmp_path / "superlink.db").stat().st_ino == made, "what it knows stays"
    finally:
        link.stop()


def test_flower_is_quiet_unless_asked_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLWR_TELEMETRY_ENABLED", "FLWR_DISABLE_UPDATE_CHECK"):
        monkeypatch.delenv(name, raising=False)
    env = flower_environment(tmp_path)
    assert env["FLWR_TELEMETRY_ENABLED"] == "0"
    assert env["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert env["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert env["FLWR_HOME"] == str(tmp_path)
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    assert flower_environment(tmp_path)["FLWR_TELEMETRY_ENABLED"] == "1"


@pytest.mark.parametrize("content", [b"no database" * 500, None])
def test_a_damaged_database_makes_way_for_a_new_one(tmp_path: Path, content: bytes | None) -> None:
    database = tmp_path / "superlink.db"
    with closing(sqlite3.connect(database)) as made:
        made.executescript("CREATE TABLE a (b TEXT); CREATE TABLE c (d TEXT)")
    assert set_aside_damaged(database) == ""
    whole = database.read_bytes()
    database.write_bytes(content or whole[: len(whole) // 2])
    damaged = database.read_bytes()
    assert "is kept as superlink.db.damaged, and a new one is made" in set_aside_damaged(database)
    assert [path.name for path in tmp_path.iterdir()] == ["superlink.db.damaged"]
    assert (tmp_path / "superlink.db.damaged").read_bytes() == damaged
    assert set_aside_damaged(database) == ""  # none is no damage


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"run": 5}', '{"run": "../x"}', "[" * 3000])
def test_a_run_whose_name_for_its_sites_is_damaged_says_how_to_go_on(tmp_path: Path, content: str) -> None:
    name = run_name(tmp_path)
    assert run_name(tmp_path) == name
    path = federation_folder(tmp_path) / "run.json"
    path.write_text(content)
    with pytest.raises(RunError, match=r"run\.json is damaged.*restore it, or remove it"):
        run_name(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(RunError, match=r"cannot be read .it is a pipe"):
        run_name(tmp_path)
