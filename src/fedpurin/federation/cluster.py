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

from fedpurin.engines.flower import APP
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
    no_room,
    program,
    set_aside_damaged,
    tidy,
    wait_healthy,
)

CONNECTION = "federation"  # the name under which the flwr command knows our SuperLink
CLI_SECONDS = 300.0


@dataclass(frozen=True)
class Traffic:
    """What Flower counted for one run."""

    inbound: int
    outbound: int
    status: str


class FlowerProcess:
    """What the SuperLink and a SuperNode have in common: a folder with a home and a secret, and a port on
    loopback, where a process of ours that knows the secret takes their tasks; over TLS with certificates."""

    def __init__(self, folder: Path, certificates: Path | None) -> None:
        self.folder = folder.resolve()
        self.certificates = certificates.resolve() if certificates else None
        self.home = self.folder / "flower"
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.env = flower_environment(self.home)
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        write_private(self.folder / "secret", secrets.token_hex(32).encode())

    def door(self) -> dict[str, str]:
        """What our process needs to take its tasks."""
        ca = str(self.certificates / "ca.pem") if self.certificates else ""
        return {"address": self.address, "ca": ca, "secret": str(self.folder / "secret")}

    def options(self) -> list[str]:
        """Of the command that starts it."""
        options = ["--host", "127.0.0.1", "--port", str(self.port)]
        options += ["--isolation", "process", "--superexec-auth-secret-file", str(self.folder / "secret")]
        if self.certificates:
            files = {"ca-certfile": "ca.pem", "certfile": "loopback.pem", "keyfile": "loopback.key"}
            for option, name in files.items():
                options += [f"--ssl-{option}", str(self.certificates / name)]
        return options


class SuperLink(FlowerProcess):
    """The server's Flower process, on loopback only: without keys in clear, with keys over TLS.

    It runs no program itself: the task of a run is taken by our own process, which knows the secret.
    """

    def __init__(self, folder: Path, keys: ServerKeys | None = None) -> None:
        super().__init__(folder, keys.folder if keys else None)
        self.open_to_others = why_not() if keys else "it talks in clear"  # None: closed to other accounts
        self.network: PrivateNetwork | None = None
        trust = {"root-certificates": self.door()["ca"]} if keys else {"insecure": True}
        connection = {"address": self.address, **trust}
        table = {"superlink": {"default": CONNECTION, CONNECTION: connection}}
        (self.home / "config.toml").write_text(tomli_w.dumps(table))
        self._made = self.folder / "superlink.made"  # the database is whole
        self.notices: list[str] = []  # what the person at the server should know
        self.service = self._start()

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
        if not self._made.exists() and not (self.folder / "flower-run").exists():
            for file in self.folder.glob(
                "superlink.db*"
            ):  # its start was cut short: it would never come up again
                file.unlink()
        if notice := set_aside_damaged(self.folder / "superlink.db"):  # it holds nothing of the run's results
            self.notices.append(notice)
        command = [program("flower-superlink"), *self.options()]
        command += ["--database", str(self.folder / "superlink.db")]  # nodes find it again after a crash
        command += ["--enable-supernode-auth" if self.certificates else "--insecure"]
        log = self.folder / "superlink.log"
        return Service("the SuperLink", command, log=log, env=self.env, prefix=self.prefix)

    def restart(self) -> None:
        """The same once more, with all it knew."""
        self.stop()
        self.service = self._start()
        self.wait()

    def wait(self) -> None:
        through = self.network.socket if self.network else None
        ca = self.certificates / "ca.pem" if self.certificates else None
        url = f"{'https' if ca else 'http'}://{self.address}/health"
        wait_healthy(self.service, url, ca=ca, through=through)
        self._made.touch()

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Run one `flwr` command against this SuperLink and return its JSON."""
        command = [program("flwr"), *arguments, "--format", "json"]
        return self.call(command, f"`flwr {' '.join(arguments[:2])}` failed")

    def call(self, command: list[str], problem: str) -> dict[str, Any]:
        """The JSON that a command prints, whose success it tells itself."""
        try:
            done = subprocess.run(
                [*self.prefix, *command], env=self.env, capture_output=True, text=True, timeout=CLI_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise EngineError(f"`{' '.join(command[:3])}` did not end within {CLI_SECONDS:.0f} s") from None
        try:
            answer = dict(json.loads(done.stdout))
        except json.JSONDecodeError:
            said = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
            raise EngineError(no_room(self.folder) or f"{problem}: {said[-1]}") from None
        if not answer.get("success"):
            said = str(answer.get("error-message", answer)).split("\n\n")
            raise EngineError(no_room(self.folder) or f"{problem}: {said[-1].strip()}")
        return answer

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


class SiteProcesses(FlowerProcess):
    """The two processes of a site: Flower's SuperNode, and ours, which answers what the node receives.

    They talk over loopback, with TLS and a secret that only this account can read, so nobody else on the
    machine can take the site's tasks or pose as its node. If one of them ends it is started again.
    """

    def __init__(
        self, folder: Path, address: str, settings: SiteSettings, keys: SiteKeys | None = None
    ) -> None:
        super().__init__(folder, folder)
        self.superlink, self.keys = address, keys
        shutil.rmtree(self.folder / "order", ignore_errors=True)  # a new node knows nothing of old orders
        make_loopback_certificate(self.folder)
        door: dict[str, Any] = self.door()
        replace(settings, **door).save(self.folder / "settings.json")
        self.name = f"of client {settings.client}"
        self.node = Kept(self._start_node)
        self.worker = Kept(self._start_worker)

    def _start_node(self) -> Service:
        command = [sys.executable, "-m", "fedpurin.engines.flower.node", str(self.folder)]
        command += ["--superlink", self.superlink, *self.options()]
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
        refused = self.keys is not None and (self.folder / "node.json").exists()
        if refused and not self.node.service.alive():
            raise EngineError(
                f"the server at {self.superlink} does not know this site's key: ask its operator whether "
                f"this folder belongs to the federation that runs now; see {self.node.service.log}"
            )
        return self.node.tend() + self.worker.tend()

    def stop(self) -> None:
        # A node that signs off takes replies with it that nobody has read yet: it is killed.
        self.node.service.kill()
        self.worker.service.stop()
        tidy(self.folder, "node-id")  # to sign off

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
        self.data = data or [""] * clients  # what each site reads; empty: its share of the configured set
        self.sites: dict[int, SiteProcesses] = {}

    def __enter__(self) -> Cluster:
        self.link = SuperLink(self.folder)
        try:
            for client, data in enumerate(self.data):
                folder = self.site_folder(client)
                settings = SiteSettings(
                    client, str(folder.resolve()), data, allow=self.allow, local_paths=True
                )
                self.sites[client] = SiteProcesses(folder / "node", self.link.address, settings)
            self.link.wait()
        except BaseException:
            self.stop()
            raise
        return self

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
