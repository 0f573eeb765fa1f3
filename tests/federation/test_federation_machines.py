"""The commands that people type on a server and at two sites, over TLS, with keys and real nginx."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import tomli_w
from federation_fakes import simulated, small

from fedpurin.federation.guard import descendants
from fedpurin.federation.keys import make_keys
from fedpurin.federation.private import why_not
from fedpurin.federation.service import Service, flower_environment, free_port, program
from fedpurin.federation.status import read_status

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # a busy machine is slow, not wrong
SITES = 2
ROUNDS = 10  # more than moments to kill something
JOINING = 8  # rounds of the run in which sites come and go
GATE = "gate_data:gated_mlp"
SOURCES = os.pathsep.join(map(str, (Path(__file__).parents[2] / "src", Path(__file__).parent)))


class Typed:
    """A command as somebody types it, with what it has printed so far."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.output = folder / f"{name}.out"
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from fedpurin.cli import main; raise SystemExit(main())", *arguments],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": SOURCES, "COLUMNS": "200"},
            )

    def text(self) -> str:
        return self.output.read_text()

    def wait_for_text(self, text: str, seconds: float = 900.0) -> None:
        wait_for(lambda: text in self.text() or self.process.poll() is not None, seconds, self.text)
        assert text in self.text(), self.text()

    def wait(self, seconds: float = 900.0) -> int:
        return self.process.wait(seconds)

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(300)


def wait_for(condition: Callable[[], bool], seconds: float, told: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(0.05)


@dataclass
class Place:
    folder: Path
    port: int
    typed: list[Typed]

    def type(self, name: str, *arguments: str) -> Typed:
        self.typed.append(Typed(self.folder, name, "federation", *arguments))
        return self.typed[-1]

    def start_server(self, name: str, *more: str, out: Path | None = None) -> Typed:
        return self.type(
            name,
            "server",
            *more,
            *("--keys", str(self.folder / "keys"), "--out", str(out or self.folder / "run")),
            *(
                "--listen",
                f"127.0.0.1:{self.port}",
                "--deadline",
                "1200",
                "--join",
                "3000",
                "--patience",
                "600",
            ),
        )

    def start_site(self, client: int, name: str = "site", *more: str) -> Typed:
        state, keys = self.folder / f"state-{client}", self.folder / f"keys/site-{client}"
        return self.type(f"{name}-{client}", "client", "--keys", str(keys), "--state", str(state), *more)

    def said(self, name: str) -> str:
        """By all commands whose name begins so, the killed ones and those that took over."""
        return "".join(typed.text() for typed in self.typed if typed.output.stem.startswith(name))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, nginx: str, nothing_left: None) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("machines"), free_port(), [])
    keys = place.type(
        "keys",
        *("keys", str(place.folder / "keys"), "--name", "127.0.0.1"),
        *("--sites", str(SITES), "--port", str(place.port)),
    )
    assert keys.wait() == 0, keys.text()
    (place.folder / "config.toml").write_text(tomli_w.dumps(small(clients=SITES, rounds=ROUNDS).as_dict()))
    yield place
    for typed in place.typed:
        typed.kill(signal.SIGTERM)


@pytest.fixture(scope="module")
def server(place: Place) -> Typed:
    """A server that listens and waits for its sites."""
    server = place.start_server("server", str(place.folder / "config.toml"))
    server.wait_for_text("listening on")
    server.wait_for_text("waiting for clients: 0 of 2")
    return server


def test_a_site_with_an_unregistered_key_is_refused(place: Place, server: Typed) -> None:
    make_keys(place.folder / "other", ["127.0.0.1"], sites=1, port=place.port)
    ours = (place.folder / "keys/site-0/ca.pem").read_bytes()
    (place.folder / "other/site-0/ca.pem").write_bytes(ours)  # it trusts us, but we do not know it
    site = place.type(
        "stranger",
        *("client", "--keys", str(place.folder / "other/site-0"), "--state", str(place.folder / "stranger")),
    )
    assert site.wait(300) == 1
    assert "does not know this site's key" in site.text()
    assert "is connected" not in server.text()


def test_a_node_without_a_key_is_refused(place: Place, server: Typed) -> None:
    home = place.folder / "keyless"
    home.mkdir()
    command = [
        *(program("flower-supernode"), "--superlink", f"127.0.0.1:{place.port}"),
        *("--root-certificates", str(place.folder / "keys/site-0/ca.pem")),
        *("--host", "127.0.0.1", "--port", str(free_port()), "--max-retries", "1"),
    ]
    with Service("keyless", command, log=home / "log", env=flower_environment(home)) as node:
        wait_for(lambda: not node.alive(), 300, node.last_words)
        assert node.exit_code() != 0
        assert "404" in node.log.read_text()
    assert "is connected" not in server.text()


def test_a_plain_text_client_is_told_to_use_tls_within_seconds(place: Place, server: Typed) -> None:
    address = f"127.0.0.1:{place.port}"
    client = place.type(
        "plain", "client", "--server", address, "--client-id", "0", "--state", str(place.folder / "plain")
    )
    assert client.wait(300) == 1
    assert "most likely expects TLS" in client.text()
    assert len(client.text().strip().splitlines()) == 1


def test_without_keys_no_client_talks_to_another_machine(place: Place) -> None:
    state = str(place.folder / "far")
    client = place.type("far", "client", "--server", "192.0.2.1:8443", "--client-id", "0", "--state", state)
    assert client.wait(300) == 1
    assert "without keys nothing is encrypted" in client.text()


def test_the_flwr_command_gets_nothing_from_outside(place: Place, server: Typed) -> None:
    home = place.folder / "intruder"
    home.mkdir()
    connection = {
        "address": f"127.0.0.1:{place.port}",
        "root-certificates": str(place.folder / "keys/site-0/ca.pem"),
    }
    (home / "config.toml").write_text(tomli_w.dumps({"superlink": {"default": "x", "x": connection}}))
    done = subprocess.run(
        [program("flwr"), "list", "x", "--format", "json"],
        env=flower_environment(home),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert json.loads(done.stdout)["success"] is False


def test_the_control_interface_is_closed_to_other_accounts(place: Place, server: Typed) -> None:
    """It is on a loopback of its own: even we cannot reach it from here, and its socket is ours alone."""
    if (reason := why_not()) is not None:
        pytest.skip(f"no private network on this machine: {reason}")
    folder = place.folder / "run/federation"
    connection = tomllib.loads((folder / "flower/config.toml").read_text())["superlink"]["federation"]
    host, port = connection["address"].split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=10)
    (door,) = [path for path in folder.iterdir() if path.is_socket()] or [None]
    if door is not None:  # else the path was too long, and it is in a folder of its own
        assert stat.S_IMODE(door.stat().st_mode) == 0o600


def test_what_the_sites_sent_is_closed_to_other_accounts(place: Place, server: Typed) -> None:
    """Flower's database has default permissions: the folders keep others out."""
    assert (place.folder / "run/federation/superlink.db").exists()
    for folder in ("run", "run/federation"):
        assert stat.S_IMODE((place.folder / folder).stat().st_mode) == 0o700


def processes_of(owner: Typed, program: str, *, guard: bool) -> list[int]:
    """The processes that a command has started, by what they run; or the guards before them."""
    found = []
    for pid in descendants(owner.process.pid):
        with contextlib.suppress(OSError):  # it ended while we looked
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            found += [pid] if program in command and ("guard.py" in command) == guard else []
    return found


def kill_process(owner: Typed, program: str, *, guard: bool = False) -> None:
    """Kill it as soon as it is there: an earlier victim may just be coming back."""
    wait_for(lambda: bool(processes_of(owner, program, guard=guard)), 300, lambda: f"nobody runs {program}")
    os.kill(processes_of(owner, program, guard=guard)[0], signal.SIGKILL)


# What is killed after each round, at the server and at a site in the same moment: a program, or its guard
VICTIMS = [
    ([("flower-superlink", False)], [("flower.worker", False)]),
    ([("flower.server_app", False)], [("flower.worker", True)]),
    ([("nginx: master", False)], [("flower.node", False)]),
    ([("nginx: worker", False)], [("flower.node", True)]),
    ([("flower-superlink", True)], []),
    ([("flower.server_app", True), ("nginx.conf", True)], []),
    ([("relay.py", True)], []),
]


def test_every_process_is_killed_in_turn_and_the_models_are_those_of_an_undisturbed_run(
    place: Place, server: Typed
) -> None:
    sites = [place.start_site(client) for client in range(SITES)]
    t = 0

    def next_round() -> None:
        nonlocal t
        t += 1
        uploads = re.compile(rf"round {t}: (\d+) uploads")
        wait_for(lambda: bool(uploads.search(place.said("server"))), 900, lambda: place.said("server"))
        assert set(uploads.findall(place.said("server"))) == {str(SITES)}, place.said("server")

    for at_server, at_site in VICTIMS:
        next_round()
        for owner, victims in ((server, at_server), (sites[0], at_site)):
            for name, guard in victims:
                if name != "relay.py" or why_not() is None:
                    kill_process(owner, name, guard=guard)
    next_round()
    if why_not() is None:
        kill_process(server, "relay.py")
    sites[0].kill()
    sites[0] = place.start_site(0)
    next_round()
    server.kill()
    again = place.start_server("server-again", "--resume")
    for site in sites:
        assert site.wait() == 0, site.text()
        assert "the personal model is" in site.text()
    assert again.wait() == 0, again.text()
    assert "left out" not in place.said("server")
    result = json.loads((place.folder / "run/result.json").read_text())
    local = simulated(small(clients=SITES, rounds=ROUNDS), place.folder / "local")
    assert result["digest"] == local["digest"]
    left = [path.name for path in (place.folder / "run/federation").iterdir()]
    assert all(name.endswith(".log") for name in left), left
    for client in range(SITES):
        (model,) = (place.folder / f"state-{client}").glob("*/model.safetensors")
        assert model.stat().st_size > 100_000  # 59,141 float32 parameters and more
        at_site = [path.name for path in (place.folder / f"state-{client}/node").iterdir()]
        assert all(name.endswith(".log") or name == "node-id" for name in at_site), at_site


def test_a_site_joins_in_mid_run_and_another_is_revoked(place: Place) -> None:
    """Site 0 is held in its training while the others come and go: the run cannot end before."""
    config, out = small(clients=3, rounds=JOINING).updated({"model": {"name": GATE}}), place.folder / "joined"
    (place.folder / "joining.toml").write_text(config.to_toml())
    server = place.start_server("hub", str(place.folder / "joining.toml"), "--seats", "3", out=out)
    server.wait_for_text("listening on")
    sites = [place.start_site(client, "second", "--allow", GATE) for client in range(SITES)]
    gate = place.folder / "state-0/node/flower/hold"
    server.wait_for_text("round 1: 2 uploads")
    gate.touch()
    assert place.type("add", "keys", str(place.folder / "keys"), "--add").wait() == 0
    late = place.start_site(2, "second", "--allow", GATE)
    server.wait_for_text("client 2 is connected")
    gate.unlink()
    server.wait_for_text(": 3 uploads")
    gate.touch()
    assert place.type("revoke", "keys", str(place.folder / "keys"), "--revoke", "1").wait() == 0
    server.wait_for_text("client 1 is refused: its key was revoked; its model stays as last merged")
    assert sites[1].wait() == 1
    assert "does not know this site's key" in sites[1].text()
    status = place.type("status", "status", str(out), "--json")
    assert status.wait() == 0
    assert json.loads(status.text())["state"] == "running"
    told = {member["client"]: member for member in json.loads(status.text())["members"]}
    assert told[1]["revoked"]
    assert told[0]["rounds"] >= told[1]["rounds"] > 0
    assert told[2]["rounds"] > 0
    assert [told[client]["failures"] for client in (0, 2)] == [0, 0]
    gate.unlink()
    for command in (sites[0], late, server):
        assert command.wait() == 0, command.text()
    assert json.loads((out / "result.json").read_text())["missing_clients"] == [1]
    after = read_status(out)
    assert after.state == "done"
    assert [member.revoked for member in after.members] == [False, True, False]
    assert all(member.last_seen for member in after.members)


def test_ctrl_c_stops_a_whole_federation_and_says_how_to_go_on(place: Place) -> None:
    config, out = str(place.folder / "config.toml"), str(place.folder / "up")
    up = place.type("up", "up", config, "--clients", "2", "--out", out)
    up.wait_for_text("waiting for clients")
    up.kill(signal.SIGINT)
    assert up.process.returncode == 130
    assert f"--resume --out {out}" in up.text()
