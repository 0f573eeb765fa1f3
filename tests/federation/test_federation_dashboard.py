"""Status and live page, from the files of a run, also in a real browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from federation_fakes import Federation, Message, answer_with, is_work, small
from programs import need
from test_federation_site import Screen

from fedpurin.engines.flower.journal import new_lines
from fedpurin.engines.flower.server_app import event_writer
from fedpurin.errors import ConfigError, EngineError, RunError
from fedpurin.federation import commands
from fedpurin.federation.dashboard import Dashboard
from fedpurin.federation.launch import events_file, federation_folder
from fedpurin.federation.status import read_status

sys.path.append(str(Path(__file__).parents[1] / "report"))  # where the tests' browser is

NASTY = "<script>document.title = 'owned'</script>"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rounds of three clients; client 1 fails in the second, with a reason that is a program."""

    def tamper(asked: Message, answer: Message) -> Message:
        return answer_with(asked, client=1, error=NASTY) if is_work(asked, 1, 2) else answer

    federation = Federation(tmp_path_factory.mktemp("dashboard"), small(), tamper)
    federation.run()
    federation_folder(federation.path).mkdir()
    notify = event_writer(events_file(federation.path))
    for event in federation.events:
        notify(event.pop("event"), **event)
    notify("left", client=2)
    return federation.path


def test_the_status_says_who_is_there_and_what_each_has_done(run: Path) -> None:
    status = read_status(run)
    assert (status.state, status.round, status.of) == ("done", 2, 2)
    assert [member.rounds for member in status.members] == [2, 1, 2]
    assert [member.failures for member in status.members] == [0, 1, 0]
    assert [member.connected for member in status.members] == [False, False, False]  # it is over
    assert all(member.last_seen for member in status.members)
    ledger = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    for member in status.members:
        for direction, counted in (("up", member.up), ("down", member.down)):
            whose = (member.client, direction)
            mine = [line for line in ledger if (line["client"], line["direction"]) == whose]
            assert counted == sum(sum(line["bytes"].values()) for line in mine)


def test_the_status_of_a_run_at_work_says_who_is_connected(run: Path) -> None:
    result = (run / "result.json").rename(run / "result.hidden")
    try:
        status = read_status(run)
    finally:
        result.rename(run / "result.json")
    assert status.state == "running"
    assert [member.connected for member in status.members] == [True, True, False]


@pytest.mark.parametrize("lives", [True, False])
def test_a_server_that_was_killed_is_not_called_running(tmp_path: Path, lives: bool) -> None:
    federation = Federation(tmp_path, small())
    federation_folder(federation.path).mkdir()
    notify = event_writer(events_file(federation.path))
    with subprocess.Popen(["true"]) as ended:
        pass
    notify("started", pid=os.getpid() if lives else ended.pid, revoked=[2])
    notify("joined", client=0)
    notify("round", round=1)
    status = read_status(federation.path)
    assert status.state == ("running" if lives else "stopped")
    assert [member.connected for member in status.members] == [lives, False, False]
    assert [member.revoked for member in status.members] == [False, False, True]  # while no server ran


def test_the_status_is_a_table_or_json(run: Path) -> None:
    screen = Screen()
    assert commands.status(run, console=screen) == 0
    assert screen.lines[0] == "done, round 2 of 2"
    assert len(screen.lines) == 2 + 3
    screen = Screen()
    assert commands.status(run, console=screen, as_json=True) == 0
    assert json.loads(screen.lines[0])["members"][1]["failures"] == 1


DAMAGED = {
    "garbage": b"garbage\n{}\n",
    "no object": b"[]\n",
    "a number": b"5\n",
    "an empty object": b"{}\n",
    "deep nesting": b"[" * 100_000 + b"\n{}\n",
    "no text": b"\xff\xfe\n{}\n",
    "a client too many": b'{"round": 1, "client": 9, "clients": [9], "upload": {"accuracy": [0.5]},'
    b' "direction": "up", "bytes": {}}\n',
    "numbers that are texts": b'{"round": "x", "direction": "up", "client": "x", "bytes": {"a": "b"}}\n',
    "lists of unequal length": b'{"round": 1, "clients": [0], "upload": {"accuracy": []}, "client": -1}\n',
    "a failure of nobody": b'{"round": 1, "failed": [{}], "client": {}}\n',
}


@pytest.mark.parametrize("name", ["metrics.jsonl", "ledger.jsonl"])
@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_log_is_named_in_a_line(name: str, what: str, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    with (tmp_path / "run" / name).open("ab") as file:
        file.write(DAMAGED[what])
    with pytest.raises(RunError, match=name):
        read_status(tmp_path / "run")


@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_no_event_is_passed_over(what: str, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    with events_file(tmp_path / "run").open("ab") as file:
        file.write(DAMAGED[what])
        for event in ("started", "joined", "round_done", "failed", "error"):
            file.write(json.dumps({"event": event, "pid": "x"}).encode() + b"\n")
        file.write(b'{"event": "left"}\n{"event": []}\n')
    assert read_status(tmp_path / "run").members == read_status(run).members


@pytest.mark.parametrize("name", ["config.toml", "metrics.jsonl", "ledger.jsonl", "federation/events.log"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(name: str, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    os.mkfifo(tmp_path / "run" / name)
    with pytest.raises(RunError, match="pipe"):
        read_status(tmp_path / "run")


@pytest.mark.parametrize("rounds", ['"x"', "[1]", "-1", "inf", "9" * 30])
def test_a_configuration_without_a_number_of_rounds_is_refused(
    rounds: str, run: Path, tmp_path: Path
) -> None:
    shutil.copytree(run, tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("rounds = 2", f"rounds = {rounds}"))
    with pytest.raises(RunError, match=r"config\.toml"):
        read_status(tmp_path / "run")
    config.write_text((run / "config.toml").read_text().replace("clients = 3", "clients = 4503599627370495"))
    with pytest.raises(ConfigError, match="at most 1000000"):
        read_status(tmp_path / "run")


def test_the_status_is_told_at_every_moment_of_a_run(tmp_path: Path) -> None:
    """From the files alone, while the server holds the run directory, also when a line is half written."""
    seen = []

    def look(asked: Message, answer: Message) -> Message:
        notify("round", round=1)
        for file in (events, federation.path / "metrics.jsonl", federation.path / "ledger.jsonl"):
            whole = file.read_bytes()
            file.write_bytes(whole + b'{"round": 2, "cli')
            seen.append(read_status(federation.path))
            file.write_bytes(whole)
        return answer

    federation = Federation(tmp_path, small(), look)
    before = read_status(federation.path)
    assert (before.state, before.round, len(before.members)) == ("stopped", 0, 3)
    events = events_file(federation.path)
    events.parent.mkdir()
    notify = event_writer(events)
    federation.run()
    assert {(status.state, status.round) for status in seen} == {("running", t) for t in range(3)}
    shutil.rmtree(events.parent)
    after = read_status(federation.path)
    assert (after.state, after.round) == ("done", 2)
    assert all(member.up and member.down for member in after.members)


def test_a_revoked_site_stays_revoked_when_its_node_leaves(tmp_path: Path) -> None:
    federation = Federation(tmp_path, small())
    federation_folder(federation.path).mkdir()
    notify = event_writer(events_file(federation.path))
    for event in ("joined", "revoked", "left"):
        notify(event, client=1)
    assert [member.revoked for member in read_status(federation.path).members] == [False, True, False]
    notify("joined", client=1)  # with a new key
    assert not read_status(federation.path).members[1].revoked


def test_a_torn_line_in_the_middle_hides_nothing_after_it(tmp_path: Path) -> None:
    """Its writer was killed and started again."""
    log = tmp_path / "events.log"
    log.write_text('{"event": "joi{"event": "started"}\n[]\n{"event": "done"}\n{"event"')
    lines, position = new_lines(log, 0)
    assert lines == [{"event": "done"}]
    assert position == log.read_bytes().rfind(b"\n") + 1


def test_what_is_no_run_has_no_status(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run directory"):
        read_status(tmp_path)


def ask(port: int, path: str = "/", host: str = "127.0.0.1") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": f"{host}:{port}"})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def test_the_page_shows_the_run_and_nothing_that_a_site_wrote_is_a_program(run: Path) -> None:
    with Dashboard(run, 0) as dashboard:
        code, text = ask(dashboard.port)
    assert code == 200
    assert 'round <span id="round">2</span> of 2' in text
    assert NASTY not in text
    assert "&lt;script&gt;" in text


def test_the_page_of_a_run_that_was_removed_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Dashboard(tmp_path / "gone", 0) as dashboard:
        assert ask(dashboard.port)[0] == 503
    assert capfd.readouterr().err == ""


def test_only_this_page_is_served_and_only_to_this_machine(run: Path) -> None:
    with Dashboard(run, 0) as dashboard:
        assert ask(dashboard.port, "/config.toml")[0] == 404
        assert ask(dashboard.port, "/../result.json")[0] == 404
        assert ask(dashboard.port, host="evil.example.org")[0] == 404
        with pytest.raises(EngineError, match="choose another --dashboard PORT"):
            Dashboard(run, dashboard.port)


@pytest.mark.slow
def test_the_page_in_a_browser(run: Path) -> None:
    need("chromium")
    from browser import Browser, find_chromium

    with Dashboard(run, 0) as dashboard, Browser(str(find_chromium())) as browser:
        browser.call("Page.navigate", url=f"http://127.0.0.1:{dashboard.port}/")
        browser.until("document.readyState === 'complete' && document.querySelector('#log')")
        assert browser.run("document.title") == f"{run.name}: done, round 2 of 2"
        assert browser.run("document.querySelectorAll('#members tr').length") == 1 + 3
        reason = browser.run("document.querySelector('#members tr:nth-child(3) td:last-child').textContent")
        assert reason == NASTY
        assert browser.run("document.querySelector('polyline').points.numberOfItems") == 2
        assert browser.errors == []
