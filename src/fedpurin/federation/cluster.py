"""Flower's processes: one SuperLink, its SuperNodes, and runs on them."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from fedpurin.engines.flower.settings import SiteSettings
from fedpurin.errors import EngineError
from fedpurin.federation.certificates import make_loopback_certificate, write_private
from fedpurin.federation.keys import ServerKeys, SiteKeys
from fedpurin.federation.private import PrivateNetwork, why_not
from fedpurin.federation.service import (
    Kept,
    Service,
    flower_environment,
    free_port,
    program,
    wait_healthy,
)
from fedpurin.files import write_atomic

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
    """The server's Flower process, on loopback only: without keys in clear, with keys over TLS.

    It runs no program itself: the task of a run is taken by our own process, which knows the secret.
    """

    def __init__(self, folder: Path, keys: ServerKeys | None = None) -> None:
        self.folder, self.keys = folder.resolve(), keys
        self.home = self.folder / "flower"
        self.home.mkdir(parents=True, exist_ok=True)
        self.env = flower_environment(self.home)
        self.port = free_port()
        write_private(self.folder / "secret", secrets.token_hex(32).encode())
        self.open_to_others = why_not() if keys else "it talks in clear"  # None: closed to other accounts
        self.network: PrivateNetwork | None = None
        connection: dict[str, Any] = {"address": self.address}
        if keys is None:
            connection["insecure"] = True
        else:
            connection["root-certificates"] = str(keys.path("ca.pem").resolve())
        table = {"superlink": {"default": CONNECTION, CONNECTION: connection}}
        (self.home / "config.toml").write_text(tomli_w.dumps(table))
        self.service = self._start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def prefix(self) -> list[str]:
        """What to put before a command that has to reach the SuperLink."""
        return self.network.prefix if self.network else []

    def upstream(self) -> str:
        """Where nginx finds it."""
        return f"unix:{self.network.socket}" if self.network else self.address

    def alive(self) -> bool:
        return self.service.alive() and (self.network is None or self.network.service.alive())

    def stop(self) -> None:
        self.service.stop()
        if self.network:
            self.network.stop()

    def _start(self) -> Service:
        if self.open_to_others is None:
            self.network = PrivateNetwork(self.folder, self.port)
        command = [program("flower-superlink"), "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--isolation", "process", "--superexec-auth-secret-file", str(self.folder / "secret")]
        command += ["--database", str(self.folder / "superlink.db")]  # nodes find it again after a crash
        if self.keys is None:
            command += ["--insecure"]
        else:
            for option, name in (("ca-certfile", "ca.pem"), ("certfile", "loopback.pem")):
                command += [f"--ssl-{option}", str(self.keys.path(name).resolve())]
            command += ["--ssl-keyfile", str(self.keys.path("loopback.key").resolve())]
            command += ["--enable-supernode-auth"]
        log = self.folder / "superlink.log"
        return Service("the SuperLink", command, log=log, env=self.env, prefix=self.prefix)

    def restart(self) -> None:
        """The same once more, with all it knew."""
        self.stop()
        self.service = self._start()
        self.wait()

    def door(self) -> dict[str, str]:
        """What our process needs to take the task of a run."""
        ca = "" if self.keys is None else str(self.keys.path("ca.pem").resolve())
        return {"address": self.address, "ca": ca, "secret": str(self.folder / "secret")}

    def wait(self, timeout: float = 600.0) -> None:
        through = self.network.socket if self.network else None
        scheme, ca = ("http", None) if self.keys is None else ("https", self.keys.path("ca.pem"))
        wait_healthy(
            self.service, f"{scheme}://{self.address}/health", ca=ca, through=through, timeout=timeout
        )

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
            done = subprocess.run(
                [*self.prefix, *command],
                env=self.env,
                capture_output=True,
                text=True,
                timeout=CLI_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise EngineError(f"`{' '.join(command[:3])}` did not end within {CLI_SECONDS:.0f} s") from None
        with contextlib.suppress(json.JSONDecodeError):
            return dict(json.loads(done.stdout))
        message = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        return {"success": False, "error-message": message[0]}

    def register(self, public_keys: list[Path]) -> None:
        """Let the holders of these keys in. One process for all: starting flwr takes seconds."""
        if not public_keys:
            return
        command = [sys.executable, "-m", "fedpurin.federation.register", CONNECTION, *map(str, public_keys)]
        answer = self._call(command)
        if not answer.get("success"):
            raise EngineError(f"could not register the sites' keys: {answer.get('error-message')}")
        nodes = {Path(file).read_text(): node for file, node in answer["nodes"].items()}
        write_atomic(self.folder / "nodes.json", json.dumps(self._nodes() | nodes))

    def unregister(self, public_key: str) -> None:
        """Let the holder of this key in no longer."""
        if node := self._nodes().get(public_key):
            with contextlib.suppress(EngineError):  # it may be gone already
                self.flwr("supernode", "unregister", node, CONNECTION)

    def _nodes(self) -> dict[str, str]:
        """Flower's node id of each key that was ever registered here."""
        path = self.folder / "nodes.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def start_run(self, settings: dict[str, str]) -> str:
        """Start our app and return Flower's id of the run."""
        path = self.folder / "run-config.toml"
        path.write_text(tomli_w.dumps(settings))
        answer = self.flwr("run", str(APP), CONNECTION, "--run-config", str(path.resolve()))
        return str(answer["run-id"])

    def stop_run(self, run_id: str) -> None:
        """End a run whose process is gone: sites would go on working for it."""
        with contextlib.suppress(EngineError):  # it may have ended by itself
            self.flwr("stop", run_id, CONNECTION)

    def traffic(self, run_id: str) -> Traffic:
        """Flower's own byte counts of a run."""
        run = self.flwr("list", CONNECTION, "--run-id", run_id)["runs"][0]
        counts = run["network-traffic"]
        return Traffic(int(counts["inbound-bytes"]), int(counts["outbound-bytes"]), str(run["status"]))


class SiteProcesses:
    """The two processes of a site: Flower's SuperNode, and ours, which answers what the node receives.

    They talk over loopback, with TLS and a secret that only this account can read, so nobody else on the
    machine can take the site's tasks or pose as its node. If one of them ends it is started again.
    """

    def __init__(
        self, folder: Path, address: str, settings: SiteSettings, keys: SiteKeys | None = None
    ) -> None:
        self.folder, self.superlink, self.keys = folder.resolve(), address, keys
        self.home = self.folder / "flower"
        shutil.rmtree(self.folder / "order", ignore_errors=True)  # a new node knows nothing of old orders
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.env = flower_environment(self.home)
        self.port = free_port()
        make_loopback_certificate(self.folder)
        write_private(self.folder / "secret", secrets.token_hex(32).encode())
        replace(
            settings,
            address=f"127.0.0.1:{self.port}",
            ca=str(self.folder / "ca.pem"),
            secret=str(self.folder / "secret"),
        ).save(self.folder / "settings.json")
        self.name = f"of client {settings.client}"
        self.node = Kept(self._start_node)
        self.worker = Kept(self._start_worker)

    def _start_node(self) -> Service:
        command = [sys.executable, "-m", "fedpurin.engines.flower.node", str(self.folder)]
        command += ["--superlink", self.superlink, "--isolation", "process"]
        command += ["--superexec-auth-secret-file", str(self.folder / "secret")]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        for option, name in (("ca-certfile", "ca.pem"), ("certfile", "loopback.pem")):
            command += [f"--ssl-{option}", str(self.folder / name)]
        command += ["--ssl-keyfile", str(self.folder / "loopback.key")]
        if self.keys is None:
            command += ["--insecure"]
        else:
            command += ["--root-certificates", str(self.keys.ca.resolve())]
            command += ["--auth-supernode-private-key", str(self.keys.node_key.resolve())]
        log = self.folder / "supernode.log"
        return Service(f"the SuperNode {self.name}", command, log=log, env=self.env)

    def _start_worker(self) -> Service:
        command = [sys.executable, "-m", "fedpurin.engines.flower.worker", str(self.folder / "settings.json")]
        return Service(f"the process {self.name}", command, log=self.folder / "worker.log", env=self.env)

    def tend(self) -> list[str]:
        """Start again what has ended, and say so. Raises EngineError where that is of no use."""
        if not self.node.service.alive() and (reason := self.refusal()):
            raise EngineError(reason)
        return [line for line in (self.node.tend(), self.worker.tend()) if line]

    def refusal(self) -> str | None:
        """Why the server does not take this site's node, if that is so."""
        if self.keys is None or not (self.folder / "node.json").exists():
            return None
        return (
            f"the server at {self.superlink} does not know this site's key: ask its operator whether this "
            f"folder belongs to the federation that runs now; see {self.node.service.log}"
        )

    def stop(self) -> None:
        # A node that signs off takes replies with it that nobody has read yet: it is killed.
        self.node.service.kill()
        self.worker.service.stop()
        for path in self.folder.iterdir():  # what stays are the logs, and the id to sign off
            if path.is_dir():
                shutil.rmtree(path)
            elif path.suffix != ".log" and path.name != "node-id":
                path.unlink()

    def __enter__(self) -> SiteProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Cluster:
    """A SuperLink and N SuperNodes on this machine, in clear over loopback. A context manager."""

    def __init__(
        self, folder: Path, clients: int, *, data: list[str] | None = None, allow: tuple[str, ...] = ()
    ) -> None:
        self.folder, self.allow = folder, allow
        self.clients = clients
        self.data = data or [""] * clients  # what each site reads; empty: its share of the configured set
        self.sites: dict[int, SiteProcesses] = {}

    def __enter__(self) -> Cluster:
        self.link = SuperLink(self.folder)
        try:
            for client in range(self.clients):
                self.start_site(client)
            self.link.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def start_site(self, client: int) -> SiteProcesses:
        folder = self.site_folder(client)
        settings = SiteSettings(
            client, str(folder.resolve()), self.data[client], allow=self.allow, local_paths=True
        )
        self.sites[client] = SiteProcesses(folder / "node", self.link.address, settings)
        return self.sites[client]

    def tend(self) -> list[str]:
        return [line for site in self.sites.values() for line in site.tend()]

    def site_folder(self, client: int) -> Path:
        return self.folder / f"site-{client}"

    def stop(self) -> None:
        for site in self.sites.values():
            site.node.service.close()
            site.worker.service.close()
        for site in self.sites.values():
            site.stop()
        self.link.stop()

    def __exit__(self, *_: object) -> None:
        self.stop()
