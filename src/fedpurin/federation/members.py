"""Changes of membership while a server is at work: Flower is told of new keys and of refused ones.

The rounds themselves look at the key folder, too (`fedpurin.engines.flower.roster`), so a revoked site is
refused even before Flower has forgotten its node.
"""

from __future__ import annotations

from fedpurin.engines.flower.roster import members
from fedpurin.federation.cluster import SuperLink
from fedpurin.federation.keys import ServerKeys


class Membership:
    """The keys that Flower knows, held to those in the key folder."""

    def __init__(self, link: SuperLink, keys: ServerKeys) -> None:
        self.link, self.folder = link, keys.folder
        self._seen_at = -1
        self._known: dict[str, int] = {}  # public key -> client
        self.tend()

    def tend(self) -> list[str]:
        """What has changed, after Flower was told."""
        if self.folder.stat().st_mtime_ns == self._seen_at:
            return []
        self._seen_at = self.folder.stat().st_mtime_ns
        files = members(self.folder)
        now = {path.read_text(): client for client, path in files.items()}
        new = {key: client for key, client in now.items() if key not in self._known}
        gone = {key: client for key, client in self._known.items() if key not in now}
        self.link.register([files[client] for client in new.values()])
        for key in gone:
            self.link.unregister(key)
        told = [f"a new key of client {client} is accepted" for client in new.values()] if self._known else []
        told += [f"an old key of client {client} is refused from now on" for client in gone.values()]
        self._known = now
        return told
