"""Who is a member of a federation: the public keys in the server's key folder, as it is now.

    node-0000.pub       the key of client 0
    node-0001.revoked   client 1 was a member; its key is refused

`fedpurin federation keys --add | --revoke | --new-key` change the folder while a run is at work. The server
looks at it before it asks anybody for anything, so a change holds from the next round on at the latest.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from fedpurin.errors import ConfigError
from fedpurin.files import read_bounded

LARGEST_KEY = 2**16  # bytes; they have two hundred
REMEDY = "restore it from your backup, or give that client a new key: fedpurin federation keys ... --new-key"


def member_key(client: int) -> str:
    return f"node-{client:04d}.pub"


def members(folder: Path) -> dict[int, Path]:
    """The key files of all members, by client."""
    return {_client_of(path): path for path in sorted(folder.glob("node-*.pub"))}


def revoked(folder: Path) -> list[int]:
    """The clients that were members once."""
    return sorted(_client_of(path) for path in folder.glob("node-*.revoked"))


def _client_of(path: Path) -> int:
    number = path.stem.removeprefix("node-")
    if not (number.isascii() and number.isdigit() and len(number) < 10) or member_key(int(number)) != (
        path.with_suffix(".pub").name
    ):
        raise ConfigError(f"{path} is named like no client's key, as {member_key(0)} is; move it away")
    return int(number)


def node_key_bytes(public_key_file: Path) -> bytes:
    """A site's public key as Flower's SuperLink reports it."""
    try:
        key = serialization.load_ssh_public_key(read_bounded(public_key_file, LARGEST_KEY))
    except OSError as error:
        raise ConfigError(f"{public_key_file} cannot be read ({error.strerror}); {REMEDY}") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"{public_key_file} is damaged: it holds no public key; {REMEDY}") from None
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def owners(folder: Path) -> dict[bytes, int]:
    """Public key -> client. A key that two clients have would let one speak for the other."""
    found: dict[bytes, int] = {}
    for client, path in members(folder).items():
        if (other := found.setdefault(node_key_bytes(path), client)) != client:
            raise ConfigError(f"{path} holds the key of client {other}, too; {REMEDY}")
    return found


class Roster:
    """Public key -> client, read again whenever the folder has changed. Without a folder: no keys in use."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._read_at = -1
        self._clients: dict[bytes, int] = {}

    def __bool__(self) -> bool:
        return self.folder is not None

    def clients(self) -> dict[bytes, int]:
        if self.folder is not None and (changed := self.folder.stat().st_mtime_ns) != self._read_at:
            self._clients = owners(self.folder)
            self._read_at = changed
        return self._clients
