"""Certificates and keys of one federation.

    FOLDER/server/   stays on the server: ca.pem ca.key public.pem public.key loopback.pem loopback.key
                     federation.toml, and node-0000.pub ... (what the server knows of its sites)
    FOLDER/site-0/   goes to the first site, over a safe channel, and then away: ca.pem node.key site.toml
    FOLDER/site-1/   ...

A small certificate authority of our own signs two certificates: `public` for the address that sites
connect to, and `loopback` for the way between nginx and the SuperLink. A site proves who it is with its
node key (ECDSA on P-384, the form that Flower asks for); the server knows which client id belongs to
which key, so no site can speak for another.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from fedpurin.engines.flower.roster import member_key, members, owners
from fedpurin.errors import ConfigError
from fedpurin.federation.certificates import (
    general_name,
    make_authority,
    make_node_key,
    sign_again,
    write_private,
)
from fedpurin.federation.key_files import check_pair, check_private, read_node_key, read_table
from fedpurin.files import unused
from fedpurin.shell import command


def _whole(least: int, most: int) -> tuple[str, Callable[[object], bool]]:
    return f"a whole number from {least} to {most}", lambda x: type(x) is int and least <= x <= most


def _are_names(given: object) -> bool:
    return isinstance(given, list) and bool(given) and all(isinstance(name, str) and name for name in given)


MOST_SITES = 10**6  # as many as a run may have clients
SERVER_TABLE = {
    "names": ("a list of names", _are_names),
    "port": _whole(1, 65535),
    "sites": _whole(0, MOST_SITES),
}
SITE_TABLE = {
    "client": _whole(0, MOST_SITES),
    "server": ("an address", lambda x: isinstance(x, str)),
}


@dataclass(frozen=True)
class ServerKeys:
    """The server's folder, checked."""

    folder: Path
    names: list[str]  # public names and addresses, the first of which sites connect to
    port: int
    sites: int  # that have ever been given a key

    def path(self, name: str) -> Path:
        return self.folder / name

    def public_keys(self) -> dict[int, Path]:
        """Of all members now, by client."""
        return members(self.folder)


@dataclass(frozen=True)
class SiteKeys:
    """One site's folder, checked."""

    folder: Path
    client: int
    server: str  # host:port

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def node_key(self) -> Path:
        return self.folder / "node.key"


def make_keys(folder: Path, names: list[str], sites: int, port: int = 8443) -> list[Path]:
    """Write a new key folder and return the site folders. Never overwrites anything."""
    if sites < 1:
        raise ConfigError(f"a federation needs at least 1 site, not {sites}")
    if not names:
        raise ConfigError(
            "name at least one address of the server, as sites will type it: --name fed.example.org"
        )
    if not 0 < port < 65536:
        raise ConfigError(f"port {port} is not between 1 and 65535")
    for name in names:
        general_name(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not empty: keys are never overwritten, name a new folder")
    server = folder / "server"
    for path in (folder, server):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    make_authority(server, names)
    keys = ServerKeys(server, names, port, 0)
    made = [_make_site(keys, client) for client in range(sites)]
    _note_sites(keys, sites)
    return made


def _note_sites(keys: ServerKeys, sites: int) -> None:
    about = {"names": keys.names, "port": keys.port, "sites": sites}
    write_private(keys.path("federation.toml"), tomli_w.dumps(about).encode())


def _make_site(keys: ServerKeys, client: int) -> Path:
    """A new key for a client: its folder to hand over, and what the server keeps of it."""
    site = unused(keys.folder.parent / f"site-{client}")  # one that was not handed over yet stays
    site.mkdir(mode=0o700)
    private, public = make_node_key()
    write_private(site / "node.key", private)
    write_private(site / "ca.pem", keys.path("ca.pem").read_bytes())
    name = f"[{keys.names[0]}]" if ":" in keys.names[0] else keys.names[0]
    about = {"client": client, "server": f"{name}:{keys.port}"}
    write_private(site / "site.toml", tomli_w.dumps(about).encode())
    write_private(keys.path(member_key(client)), public)
    return site


def add_site(folder: Path) -> Path:
    """A folder for one more site, which takes the next client id; a server at work lets it in."""
    keys = _open(folder)
    site = _make_site(keys, keys.sites)
    _note_sites(keys, keys.sites + 1)
    return site


def revoke_site(folder: Path, client: int) -> None:
    """Refuse a site's key from now on."""
    path = _member(_open(folder), client)
    os.replace(path, path.with_suffix(".revoked"))


def new_site_key(folder: Path, client: int) -> Path:
    """A new key for a site, in a new folder to hand over; the old key is refused from now on."""
    keys = _open(folder)
    _member(keys, client)
    return _make_site(keys, client)


def _member(keys: ServerKeys, client: int) -> Path:
    found = keys.public_keys()
    if client not in found:
        raise ConfigError(
            f"client {client} is no member; the members are {', '.join(map(str, found)) or 'none'}"
        )
    return found[client]


def renew_certificates(folder: Path) -> dt.datetime:
    """Sign new server certificates with the same authority; sites need nothing new. Returns the expiry."""
    keys = _open(folder)
    return sign_again(keys.folder, keys.names)


def load_server_keys(folder: Path) -> ServerKeys:
    """Read and check the folder of a server that is to start; also accepts the folder above it."""
    keys = _open(folder)
    for label in ("public", "loopback"):
        certificate, key = keys.path(f"{label}.pem"), keys.path(f"{label}.key")
        check_private(key)
        end = check_pair(certificate, key, keys.path("ca.pem")).not_valid_after_utc
        if end < dt.datetime.now(dt.UTC):
            raise ConfigError(
                f"{certificate} expired on {end:%Y-%m-%d}: "
                f"run `{command('federation', 'keys', keys.folder.parent, '--renew')}`"
            )
    owners(keys.folder)
    return keys


def _open(folder: Path) -> ServerKeys:
    """The server's folder, whole; its certificates may have expired."""
    if not (folder / "federation.toml").exists() and (folder / "server").is_dir():
        folder = folder / "server"
    about = read_table(folder / "federation.toml", "the server's key folder", SERVER_TABLE)
    keys = ServerKeys(folder, about["names"], about["port"], about["sites"])
    needed = ["ca.pem", "public.pem", "public.key", "loopback.pem", "loopback.key"]
    needed += [
        member_key(client)
        for client in range(keys.sites)
        if not (folder / member_key(client)).with_suffix(".revoked").exists()
    ]
    for path in [folder / name for name in needed]:
        if not path.exists():
            raise ConfigError(f"{path} is missing: restore the key folder from your backup or make new keys")
    return keys


def load_site_keys(folder: Path) -> SiteKeys:
    """Read and check the folder that a site was given."""
    about = read_table(folder / "site.toml", "a site's key folder", SITE_TABLE)
    keys = SiteKeys(folder, about["client"], about["server"])
    for path in (keys.ca, keys.node_key):
        if not path.exists():
            raise ConfigError(f"{path} is missing: ask the server's operator for the whole site folder again")
    check_private(keys.node_key)
    read_node_key(keys.node_key)
    return keys
