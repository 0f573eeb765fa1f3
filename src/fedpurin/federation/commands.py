"""What `fedpurin federation up | keys | server | status | audit` do. Each returns the exit code.

torch is imported where it is needed, so that mistakes and `keys` cost no time.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedpurin.config import Config
from fedpurin.engines.flower.journal import Line, read_audit
from fedpurin.engines.flower.settings import Terms
from fedpurin.errors import ConfigError, EngineError
from fedpurin.federation.client import absolute
from fedpurin.federation.cluster import SuperLink, Traffic
from fedpurin.federation.frontdoor import FrontDoor, find_nginx, largest_message_mb
from fedpurin.federation.keys import (
    ServerKeys,
    add_site,
    load_server_keys,
    make_keys,
    new_site_key,
    renew_certificates,
    revoke_site,
)
from fedpurin.federation.launch import Launched, alone, federation_folder, stop_old_run
from fedpurin.federation.members import Membership
from fedpurin.federation.preflight import check_port_free
from fedpurin.federation.printing import Console, describe_event, describe_traffic, say
from fedpurin.federation.service import Kept, Service, tidy
from fedpurin.shell import command
from fedpurin.stopping import INTERRUPTED, stoppable

if TYPE_CHECKING:
    from fedpurin.job import Job


def up(
    config: Config,
    *,
    out: Path,
    console: Console,
    data: list[str] | None = None,
    resume: bool = False,
    **waits: float | None,
) -> int:
    """A whole federation on this machine, in clear over loopback, for trying out. `waits`: of Terms."""
    from fedpurin.federation import engine
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
    data = [absolute(item) for item in data] if data else None
    terms = Terms.of(clients, **waits)
    say(console, f"starting a server and {clients} clients on this machine; the run directory is {out}")
    say(console, "each client is a process of its own and takes seconds to start; Ctrl-C stops everything")

    given = [part for item in data or [] for part in ("--data", item)]
    again = command("federation", "up", "--resume", "--out", out, *given)

    def show(event: Line) -> None:
        if line := describe_event(event, out):
            say(console, line)

    def count(traffic: Traffic) -> None:
        say(console, *describe_traffic(traffic.inbound, traffic.outbound, out))

    with stoppable():
        try:
            if resume:
                result = engine.resume_run(out, terms=terms, data=data, on_event=show)
            else:
                job = Job.build(config)
                result = engine.run_job(job, out, terms=terms, data=data, on_event=show, on_traffic=count)
        except KeyboardInterrupt:
            say(console, f"stopped; continue with: {again}")
            return INTERRUPTED
        except EngineError as error:
            raise EngineError(f"{error}; continue with: {again}") from None
    say(console, f"done, digest {result['digest']}; look at it with: {command('show', out)}")
    return 0


def keys(
    folder: Path,
    *,
    console: Console,
    names: list[str] | None = None,
    sites: int = 0,
    port: int = 8443,
    renew: bool = False,
    add: bool = False,
    revoke: int | None = None,
    new_key: int | None = None,
) -> int:
    """Certificates for a server and a folder per site; or a change to them."""
    if add or new_key is not None:
        site = add_site(folder) if new_key is None else new_site_key(folder, new_key)
        say(console, f"hand {site} over to its site by a safe way, then delete it here")
        say(console, "a server at work accepts the new key from its next round on")
        return 0
    if revoke is not None:
        revoke_site(folder, revoke)
        say(console, f"the key of client {revoke} is refused; a server at work leaves it out from now on")
        return 0
    if renew:
        expiry = renew_certificates(folder)
        say(console, f"new certificates until {expiry:%Y-%m-%d}; restart the server, sites need nothing new")
        return 0
    site_folders = make_keys(folder, names or [], sites, port)
    say(console, f"keys are in {folder}, readable by you alone. Next:")
    server = folder / "server"
    say(console, f"1. keep {server} on the server, and a backup of it where nobody else can read it")
    for site in site_folders:
        say(console, f"2. hand {site} over to its site by a safe way (scp, a USB stick), then delete it here")
    start = command("federation", "server", "CONFIG.toml", "--keys", folder, "--out", "RUN")
    say(console, f"3. on the server:  {start}")
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
    seats: int | None = None,
    dashboard: int | None = None,
    **waits: float | None,
) -> int:
    """The server of a federation between machines: SuperLink on loopback, nginx before it, the rounds."""
    find_nginx()
    keys = load_server_keys(key_folder)
    listen = listen or f"0.0.0.0:{keys.port}"
    check_port_free(listen)
    terms = Terms.of(len(keys.public_keys()), **waits)
    if dashboard is not None and not 0 <= dashboard < 65536:
        raise ConfigError(
            f"--dashboard {dashboard} is no port: give one from 1 to 65535, or 0 for a free one"
        )
    seats = keys.sites if seats is None else seats
    job = _prepare_run(config, keys, seats, out, resume=resume, console=console)
    folder = federation_folder(out)
    again = command("federation", "server", "--resume", "--keys", keys.folder.parent, "--out", out)
    with contextlib.ExitStack() as stack:
        stack.enter_context(stoppable())
        stack.enter_context(alone(out))
        try:
            if dashboard is not None:
                from fedpurin.federation.dashboard import Dashboard

                shown = stack.enter_context(Dashboard(out, dashboard))
                say(console, f"live page: http://127.0.0.1:{shown.port}/")
            say(console, "starting the SuperLink on loopback and nginx before it")
            link = SuperLink(folder, keys)
            stack.callback(link.stop)
            if link.open_to_others:
                say(console, f"other accounts of this machine can control Flower here: {link.open_to_others}")
            link.wait()
            membership = Membership(link, keys)
            stop_old_run(link, out)
            door = FrontDoor(keys, listen, link.upstream(), folder, largest_message_mb(job.selection.d))
            nginx = Kept(lambda: Service("nginx", door.command(), log=folder / "nginx.log"))
            stack.callback(lambda: nginx.service.stop())
            say(console, f"listening on {listen}; sites connect to {keys.names[0]}:{keys.port} with")
            say(console, "    fedpurin federation client --keys SITE_FOLDER --data DATA --state STATE")
            run = Launched(link, out, job.config, terms, keys)
            run.tended += [membership.tend, nginx.tend]
            for event in run.follow():
                if line := describe_event(event, out):
                    say(console, line)
        except KeyboardInterrupt:
            say(console, f"stopped; continue with: {again}")
            return INTERRUPTED
        except EngineError as error:
            raise EngineError(f"{error}; continue with: {again}") from None
    tidy(folder)
    result = json.loads((out / "result.json").read_text())
    for client_id in result["missing_clients"]:
        say(console, f"client {client_id} was not there at the end: its last model stays as it was")
    say(console, f"done, digest {result['digest']}; look at it with: {command('show', out)}")
    say(console, "the personal models are at the sites")
    return 0


def _prepare_run(
    config: Config | None, keys: ServerKeys, seats: int, out: Path, *, resume: bool, console: Console
) -> Job:
    """Create the run directory, or open that of a run to be continued."""
    from fedpurin.job import Job
    from fedpurin.ready import check_ready
    from fedpurin.runs.directory import RunDirectory

    if resume:
        directory, job = RunDirectory.reopen(out)
        directory.close()
        return job
    config = config or Config()
    if seats < keys.sites:
        raise ConfigError(f"--seats {seats} is less than the {keys.sites} sites of the key folder")
    if config.run.clients != seats:
        say(console, f"{keys.sites} sites have keys, and there are {seats} seats: run.clients = {seats}")
    config = replace(config, run=replace(config.run, clients=seats, engine="flower"))
    job = Job.build(config)
    if job.config.run.clients != seats:
        raise ConfigError(f"the split has {job.config.run.clients} clients, but the federation {seats} seats")
    check_ready(job, device="cpu")  # the sites compute, each on its own machine
    RunDirectory.create(out, job).close()
    out.chmod(0o700)  # checkpoints hold what the sites sent; other accounts of this machine need not see it
    return job


def status(run: Path, *, console: Console, as_json: bool = False) -> int:
    """Who takes part in a run, and how it goes."""
    from fedpurin.federation.status import read_status, table

    found = read_status(run)
    say(console, *([json.dumps(asdict(found), indent=1)] if as_json else table(found)))
    return 0


def audit(state: Path, *, console: Console, as_json: bool = False) -> int:
    """What a site has sent; 1 if a message that was kept is not as recorded, or a line is damaged."""
    lines = read_audit(state)
    bad = int(any(line["kept"] in ("gone", "changed", "damaged") for line in lines))
    if as_json:
        say(console, json.dumps(lines, indent=1))
        return bad
    say(console, f"{'round':>5} {'what':>7} {'bytes':>12} {'values':>18} {'metrics':>8} {'kept':>8}  sha256")
    for line in lines:
        values = f"{line['values']:,} {line['type']}".strip()
        say(
            console,
            f"{line['round']:>5} {line['what']:>7} {line['bytes']:>12,} {values:>18} "
            f"{'yes' if line['metrics'] else 'no':>8} {line['kept']:>8}  {line['sha256']}",
        )
    return bad
