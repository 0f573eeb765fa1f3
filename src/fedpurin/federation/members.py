"""Changes of membership while a server is at work: Flower is told of new keys and of refused ones.

The rounds themselves look at the key folder, too (`fedpurin.engines.flower.roster`), so a revoked site is
refused even before Flower has forgotten its node.
"""

from __future__ import annotations

import time

from fedpurin.engines.flower.roster import members
from fedpurin.errors import EngineError
from fedpurin.federation.cluster import SuperLink
from fedpurin.federation.keys import ServerKeys

AGAIN_SECONDS = 10.0


class Membership:
    """The keys that Flower knows, held to those in the key folder."""

    def __init__(self, link: SuperLink, keys: ServerKeys) -> None:
        self.link, self.folder = link, keys.folder
        self._seen_at = -1
        self._not_before = 0.0  # after a try that failed
        self._known: dict[str, int] = {}  # public key -> client
        self.tend()

    def tend(self) -> list[str]:
        """What has changed, after Flower was told. Where that fails, it is tried again: the run goes on."""
        changed = self.folder.stat().st_mtime_ns
        if changed == self._seen_at or time.monotonic() < self._not_before:
            return []
        files = members(self.folder)
        now = {path.read_text(): client for client, path in files.items()}
        new = {key: client for key, client in now.items() if key not in self._known}
        gone = {key: client for key, client in self._known.items() if key not in now}
        try:
            self.link.register([files[client] for client in new.values()])
        except EngineError as problem:  # the SuperLink may be just restarting
            if self._seen_at < 0:
                raise
            self._not_before = time.monotonic() + AGAIN_SECONDS
            return [f"{problem}; another try in {AGAIN_SECONDS:.0f} s"]
        for key in gone:
            self.link.unregister(key)
        told = [f"a new key of client {client} is accepted" for client in new.values()] if self._known else []
        told += [f"an old key of client {client} is refused from now on" for client in gone.values()]
        self._known, self._seen_at = now, changed
        return told
