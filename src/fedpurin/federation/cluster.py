"""Flower's processes: one SuperLink, its SuperNodes, and runs on them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedpurin.errors import EngineError
from fedpurin.federation.keys import ServerKeys, SiteKeys
from fedpurin.federation.service import (
    Service,
    flower_environment,
    free_port,
    program,
    stop_all,
    wait_healthy,
)

APP = Path(__file__).resolve().parents[1] / "engines" / "flower" / "app"
CONNECTION = "federation"  # the name under which the flwr command knows our SuperLink
CLI_SECONDS = 300.0


@dataclass(frozen=True)
class Traffic:
    """What Flower counted for one run."""

    inbound: int
    outbound: int
    status: str


class SuperLink:
    """The server's Flower process, on loopback only: without keys in clear, with keys over TLS."""

    def __init__(self, folder: Path, keys: ServerKeys | None = None, *, keep: bool = False) -> None:
        self.folder, self.keys = folder, keys
        self.home = folder / "flower"
        self.home.mkdir(parents=True, exist_ok=True)
        self.env = flower_environment(self.home)
        self.port = free_port()
        command = [program("flower-superlink"), "--host", "127.0.0.1", "--port", str(self.port)]
        connection: dict[str, Any] = {"address": f"127.0.0.1:{self.port}"}
        if keys is None:
            command += ["--insecure"]
            connection["insecure"] = True
        else:
            command += ["--ssl-ca-certfile", str(keys.path("ca.pem").resolve())]
            command += ["--ssl-certfile", str(keys.path("loopback.pem").resolve())]
            command += ["--ssl-keyfile", str(keys.path("loopback.key").resolve()), "--enable-supernode-auth"]
            connection["root-certificates"] = str(keys.path("ca.pem").resolve())
        if keep:  # nodes then find the same SuperLink again after a crash
            command += ["--database", str(folder.resolve() / "superlink.db")]
        table = {"superlink": {"default": CONNECTION, CONNECTION: connection}}
        (self.home / "config.toml").write_text(tomli_w.dumps(table))
        self.service = Service("the SuperLink", command, log=folder / "superlink.log", env=self.env)

    def wait(self, timeout: float = 180.0) -> None:
        scheme, ca = ("http", None) if self.keys is None else ("https", self.keys.path("ca.pem"))
        wait_healthy(self.service, f"{scheme}://127.0.0.1:{self.port}/health", ca=ca, timeout=timeout)

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Run one `flwr` command against this SuperLink and return its JSON."""
        command = [program("flwr"), *arguments, "--format", "json"]
        answer = self._call(command)
        if not answer.get("success"):
            raise EngineError(
                f"`flwr {' '.join(arguments[:2])}` failed: {answer.get('error-message', answer)}"
            )
        return answer

    def _call(self, command: list[str]) -> dict[str, Any]:
        try:
            done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=CLI_SECONDS)
        except subprocess.TimeoutExpired:
            raise EngineError(f"`{' '.join(command[:3])}` did not end within {CLI_SECONDS:.0f} s") from None
        with contextlib.suppress(json.JSONDecodeError):
            return dict(json.loads(done.stdout))
        message = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        return {"success": False, "error-message": message[0]}

    def register(self, public_keys: list[Path]) -> None:
        """Let the holders of these keys in. One process for all: starting flwr takes seconds."""
        command = [sys.executable, "-m", "fedpurin.federation.register", CONNECTION, *map(str, public_keys)]
        answer = self._call(command)
        if not answer.get("success"):
            raise EngineError(f"could not register the sites' keys: {answer.get('error-message')}")

    def start_run(self, settings: dict[str, str]) -> str:
        """Start our app and return Flower's id of the run."""
        path = self.folder / "run-config.toml"
        path.write_text(tomli_w.dumps(settings))
        answer = self.flwr("run", str(APP), CONNECTION, "--run-config", str(path.resolve()))
        return str(answer["run-id"])

    def traffic(self, run_id: str) -> Traffic:
        """Flower's own byte counts of a run."""
        run = self.flwr("list", CONNECTION, "--run-id", run_id)["runs"][0]
        counts = run["network-traffic"]
        return Traffic(int(counts["inbound-bytes"]), int(counts["outbound-bytes"]), str(run["status"]))


def super_node(
    folder: Path,
    address: str,
    node_config: dict[str, Any],
    keys: SiteKeys | None = None,
) -> Service:
    """Start a site's Flower process: it asks `address` for work and starts our ClientApp for each message."""
    home = folder / "flower"
    home.mkdir(parents=True, exist_ok=True)
    config = folder / "node.toml"
    config.write_text(tomli_w.dumps(node_config))
    command = [program("flower-supernode"), "--superlink", address, "--node-config", str(config.resolve())]
    command += ["--host", "127.0.0.1", "--port", str(free_port())]
    if keys is None:
        command += ["--insecure"]
    else:
        command += ["--root-certificates", str(keys.ca.resolve())]
        command += ["--auth-supernode-private-key", str(keys.node_key.resolve())]
    name = f"the SuperNode of client {node_config['partition-id']}"
    return Service(name, command, log=folder / "supernode.log", env=flower_environment(home))


class Cluster:
    """A SuperLink and N SuperNodes on this machine, in clear over loopback. A context manager."""

    def __init__(self, folder: Path, clients: int, *, data: list[str] | None = None) -> None:
        self.folder = folder
        self.clients = clients
        self.data = data or [""] * clients  # what each site reads; empty: its share of the configured set
        self.nodes: dict[int, Service] = {}

    def __enter__(self) -> Cluster:
        self.link = SuperLink(self.folder)
        try:
            for client in range(self.clients):
                self.start_node(client)
            self.link.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def start_node(self, client: int) -> Service:
        folder = self.site_folder(client)
        settings = {"partition-id": client, "state-dir": str(folder.resolve()), "data": self.data[client]}
        self.nodes[client] = super_node(folder, f"127.0.0.1:{self.link.port}", settings)
        return self.nodes[client]

    def site_folder(self, client: int) -> Path:
        return self.folder / f"site-{client}"

    def stop(self) -> None:
        stop_all([*self.nodes.values(), self.link.service])

    def __exit__(self, *_: object) -> None:
        self.stop()
