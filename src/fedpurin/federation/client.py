"""What `fedpurin federation client` does: one site of a federation, until the run is over."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path

from fedpurin.engines.flower.journal import end_of, new_lines
from fedpurin.engines.flower.settings import PROGRESS, Limits, SiteSettings
from fedpurin.errors import ConfigError
from fedpurin.federation.cluster import SiteProcesses
from fedpurin.federation.keys import SiteKeys, load_site_keys
from fedpurin.federation.preflight import check_server, is_loopback, split_address
from fedpurin.federation.printing import Console, describe_site, say
from fedpurin.files import only_process
from fedpurin.stopping import INTERRUPTED, stoppable

POLL_SECONDS = 0.2


def take_part(
    *,
    state: Path,
    console: Console,
    data: str = "",
    key_folder: Path | None = None,
    server: str | None = None,
    client_id: int | None = None,
    allow: tuple[str, ...] = (),
    limits: Path | None = None,
    keep_messages: bool = False,
) -> int:
    """Take part in a federation with this site's own data, until its run is over."""
    keys = load_site_keys(key_folder) if key_folder else None
    address, number = _who_and_where(keys, server, client_id)
    agreed = Limits.read(limits) if limits else Limits()
    check_server(address, keys.ca if keys else None)
    if data:
        from fedpurin.data import load_own

        data = absolute(data)
        load_own(data)  # whether it can be read shows now, not in the first round
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    progress = state / PROGRESS
    seen = end_of(progress)
    settings = SiteSettings(
        number, str(state.resolve()), data, allow=allow, limits=agreed, keep_messages=keep_messages
    )
    with (
        stoppable(),
        only_client_of(state),
        SiteProcesses(state / "node", address, settings, keys) as processes,
    ):
        say(console, f"client {number} reports to {address} and waits for work; state is kept in {state}")
        say(console, "Ctrl-C stops it; started again with the same --state it goes on where it was")
        try:
            while True:
                lines, seen = new_lines(progress, seen)
                for line in lines:
                    say(console, describe_site(line))
                    if line.get("final"):
                        return 0
                say(console, *processes.tend())
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            say(console, "stopped; start it again with the same --state to go on")
            return INTERRUPTED


def _who_and_where(keys: SiteKeys | None, server: str | None, client_id: int | None) -> tuple[str, int]:
    address = server or (keys.server if keys else None)
    if address is None:
        raise ConfigError(
            "name the server: --server host:port, or --keys FOLDER with the folder you were given"
        )
    host, _ = split_address(address)
    if keys is None:
        if not is_loopback(host):
            raise ConfigError(
                f"{host} is not this machine, and without keys nothing is encrypted: pass the folder that "
                "the server's operator gave you with --keys FOLDER"
            )
        if client_id is not None and client_id < 0:
            raise ConfigError(f"--client-id {client_id} is no client: they are numbered from 0")
        if client_id is None:
            raise ConfigError("without --keys say which client this is: --client-id 0")
        return address, client_id
    if client_id is not None and client_id != keys.client:
        raise ConfigError(f"{keys.folder} is the folder of client {keys.client}, not of client {client_id}")
    return address, keys.client


def absolute(data: str) -> str:
    """Data is named relative to where the user is; the process that reads it may be elsewhere."""
    path = Path(data).expanduser()
    return str(path.resolve()) if path.exists() else data


def only_client_of(state: Path) -> AbstractContextManager[None]:
    """Two clients on one state directory would spoil each other's memory."""
    refusal = ConfigError(f"{state} is in use by another client: give each its own --state")
    return only_process(state / ".lock", refusal)
