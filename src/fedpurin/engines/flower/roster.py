"""Who is a member of a federation: the public keys in the server's key folder, as it is now.

    node-0000.pub       the key of client 0
    node-0001.revoked   client 1 was a member; its key is refused

`fedpurin federation keys --add | --revoke | --new-key` change the folder while a run is at work. The server
looks at it before it asks anybody for anything, so a change holds from the next round on at the latest.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import serialization


def member_key(client: int) -> str:
    return f"node-{client:04d}.pub"


def members(folder: Path) -> dict[int, Path]:
    """The key files of all members, by client."""
    return {int(path.stem.removeprefix("node-")): path for path in sorted(folder.glob("node-*.pub"))}


def revoked(folder: Path) -> list[int]:
    """The clients that were members once."""
    return sorted(int(path.stem.removeprefix("node-")) for path in folder.glob("node-*.revoked"))


def node_key_bytes(public_key_file: Path) -> bytes:
    """A site's public key as Flower's SuperLink reports it."""
    key = serialization.load_ssh_public_key(public_key_file.read_bytes())
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


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
            self._clients = {node_key_bytes(path): client for client, path in members(self.folder).items()}
            self._read_at = changed
        return self._clients
