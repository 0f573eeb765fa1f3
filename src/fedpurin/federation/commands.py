"""What `fedpurin federation up | keys | server | client` do. Each returns the exit code.

torch is imported where it is needed, so that mistakes and `keys` cost no time.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

from fedpurin.config import Config
from fedpurin.engines.flower.terms import Terms
from fedpurin.errors import ConfigError, EngineError
from fedpurin.federation.cluster import SuperLink, Traffic
from fedpurin.federation.frontdoor import FrontDoor, find_nginx
from fedpurin.federation.keys import (
    ServerKeys,
    load_server_keys,
    make_keys,
    renew_certificates,
)
from fedpurin.federation.launch import Event, federation_folder, launch
from fedpurin.federation.preflight import check_port_free
from fedpurin.federation.progress import Console, describe, describe_traffic, say, stoppable
from fedpurin.federation.service import Service, stop_all
from fedpurin.federation.site import client as client

INTERRUPTED = 130


def up(
    config: Config,
    *,
    out: Path,
    console: Console,
    data: list[str] | None = None,
    resume: bool = False,
    minimum: int | None = None,
    deadline: float | None = None,
    join: float | None = None,
) -> int:
    """A whole federation on this machine, in clear over loopback, for trying out."""
    from fedpurin.engines.flower import engine
    from fedpurin.job import Job

    clients = config.run.clients
    if data and len(data) != clients:
        raise ConfigError(f"{len(data)} data sets for {clients} clients: give --data once per client")
    if data and config.data.dataset != "own":
        raise ConfigError(
            'own data needs dataset = "own", shape and classes in [data] of the configuration, '
            f"not dataset = {config.data.dataset!r}"
        )
    config = replace(config, run=replace(config.run, engine="flower"))
    data = [_absolute(item) for item in data] if data else None
    terms = Terms.of(clients, minimum=minimum, deadline=deadline, join=join)
    say(console, f"starting a server and {clients} clients on this machine; the run directory is {out}")
    say(console, "each client is a process of its own and takes seconds to start; Ctrl-C stops everything")

    def show(event: Event) -> None:
        if line := describe(event, out):
            say(console, line)

    def count(traffic: Traffic) -> None:
        for line in describe_traffic(traffic.inbound, traffic.outbound, out):
            say(console, line)

    with stoppable():
        try:
            if resume:
                result = engine.resume_run(out, terms=terms, data=data, on_event=show)
            else:
                job = Job.build(config)
                result = engine.run_job(job, out, terms=terms, data=data, on_event=show, on_traffic=count)
        except KeyboardInterrupt:
            say(console, f"stopped; continue with: fedpurin federation up --resume --out {out}")
            return INTERRUPTED
        except EngineError as error:
            raise EngineError(
                f"{error}; continue with: fedpurin federation up --resume --out {out}"
            ) from None
    say(console, f"done, digest {result['digest']}; look at it with: fedpurin show {out}")
    return 0


def keys(
    folder: Path,
    *,
    console: Console,
    names: list[str] | None = None,
    sites: int = 0,
    port: int = 8443,
    renew: bool = False,
) -> int:
    """Certificates for a server and a folder per site; or new server certificates."""
    if renew:
        expiry = renew_certificates(load_server_keys(folder).folder)
        say(console, f"new certificates until {expiry:%Y-%m-%d}; restart the server, sites need nothing new")
        return 0
    site_folders = make_keys(folder, names or [], sites, port)
    say(console, f"keys are in {folder}, readable by you alone. Next:")
    say(
        console,
        f"1. keep {folder / 'server'} on the server, and a backup of it where nobody else can read it",
    )
    for site in site_folders:
        say(console, f"2. hand {site} over to its site by a safe way (scp, a USB stick), then delete it here")
    say(console, f"3. on the server:  fedpurin federation server CONFIG.toml --keys {folder} --out RUN")
    say(console, "4. at each site:   fedpurin federation client --keys SITE_FOLDER --data DATA --state STATE")
    return 0


def server(
    config: Config | None,
    *,
    key_folder: Path,
    out: Path,
    console: Console,
    listen: str | None = None,
    resume: bool = False,
    minimum: int | None = None,
    deadline: float | None = None,
    join: float | None = None,
) -> int:
    """The server of a federation between machines: SuperLink on loopback, nginx before it, the rounds."""
    find_nginx()
    keys = load_server_keys(key_folder)
    listen = listen or f"0.0.0.0:{keys.port}"
    check_port_free(listen)
    config = _prepare_run(config, keys, out, resume=resume, console=console)
    terms = Terms.of(keys.sites, minimum=minimum, deadline=deadline, join=join)
    folder = federation_folder(out)
    services: list[Service] = []
    with stoppable():
        try:
            say(console, "starting the SuperLink on loopback and nginx before it")
            link = SuperLink(folder, keys, keep=True)
            services.append(link.service)
            link.wait()
            link.register(keys.public_keys())
            _stop_old_run(link, folder)
            door = FrontDoor(keys, listen, link.port, folder)
            services.append(Service("nginx", door.command(), log=folder / "nginx.log"))
            say(console, f"listening on {listen}; sites connect to {keys.names[0]}:{keys.port} with")
            say(console, "    fedpurin federation client --keys SITE_FOLDER --data DATA --state STATE")
            run = launch(link, out, config, terms, keys)
            (folder / "flower-run").write_text(run.flower_id)
            run.watched += services
            for event in run.follow():
                if line := describe(event, out):
                    say(console, line)
        except KeyboardInterrupt:
            say(console, f"stopped; continue with: fedpurin federation server --resume {_again(keys, out)}")
            return INTERRUPTED
        except EngineError as error:
            raise EngineError(
                f"{error}; continue with: fedpurin federation server --resume {_again(keys, out)}"
            ) from None
        finally:
            stop_all(list(reversed(services)))
    _tidy(folder)
    _report(out, console)
    return 0


def _prepare_run(
    config: Config | None, keys: ServerKeys, out: Path, *, resume: bool, console: Console
) -> Config:
    """Create the run directory, or open that of a run to be continued; its configuration."""
    from fedpurin.job import Job
    from fedpurin.runs import RunDirectory

    if resume:
        directory, job = RunDirectory.reopen(out)
        directory.close()
        return job.config
    config = config or Config()
    if config.run.clients != keys.sites:
        say(console, f"the key folder has {keys.sites} sites: run.clients = {keys.sites}")
    config = replace(config, run=replace(config.run, clients=keys.sites, engine="flower"))
    job = Job.build(config)
    if job.config.run.clients != keys.sites:
        raise ConfigError(
            f"the split has {job.config.run.clients} clients, but the key folder {keys.sites} sites"
        )
    RunDirectory.create(out, job).close()
    return job.config


def _stop_old_run(link: SuperLink, folder: Path) -> None:
    """A killed server leaves its Flower run behind, whose messages the sites would still work on."""
    path = folder / "flower-run"
    if path.exists():
        with contextlib.suppress(EngineError):  # it may have ended by itself
            link.flwr("stop", path.read_text().strip(), "federation")
        path.unlink()


def _again(keys: ServerKeys, out: Path) -> str:
    return f"--keys {keys.folder.parent} --out {out}"


def _tidy(folder: Path) -> None:
    """After a complete run only the logs stay."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.suffix != ".log":
            path.unlink()


def _report(out: Path, console: Console) -> None:
    result = json.loads((out / "result.json").read_text())
    for client_id in result["missing_clients"]:
        say(console, f"client {client_id} was not there at the end: its last model stays as it was")
    say(console, f"done, digest {result['digest']}; look at it with: fedpurin show {out}")
    say(console, "the personal models are at the sites")


def _absolute(spec: str) -> str:
    """Data files are named relative to where the user is; the clients' processes may be elsewhere."""
    path = Path(spec).expanduser()
    return str(path.resolve()) if path.exists() else spec
