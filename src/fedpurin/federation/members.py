"""Changes of membership while a server is at work: Flower is told of new keys and of refused ones.

    python -m fedpurin.federation.members CONNECTION KEY.pub...

registers several keys with a SuperLink in one process, since starting flwr takes seconds. The rounds
themselves look at the key folder, too (`fedpurin.engines.flower.roster`), so a revoked site is refused even
before Flower has forgotten its node.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import time
from pathlib import Path

from fedpurin.engines.flower.roster import members
from fedpurin.errors import EngineError
from fedpurin.federation.cluster import CONNECTION, SuperLink
from fedpurin.federation.keys import ServerKeys
from fedpurin.files import read_bounded, write_atomic

AGAIN_SECONDS = 10.0
LARGEST_NODES = 2**28  # bytes; three hundred for each key


class Membership:
    """The keys that Flower knows, held to those in the key folder."""

    def __init__(self, link: SuperLink, keys: ServerKeys) -> None:
        self.link, self.folder = link, keys.folder
        self._nodes = link.folder / "nodes.json"  # Flower's node id of each key that was ever registered here
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
            nodes = self._register([files[client] for client in new.values()])
        except EngineError as problem:  # the SuperLink may be just restarting
            if self._seen_at < 0:
                raise
            self._not_before = time.monotonic() + AGAIN_SECONDS
            return [f"{problem}; another try in {AGAIN_SECONDS:.0f} s"]
        for node in [nodes[key] for key in gone if key in nodes]:
            with contextlib.suppress(EngineError):  # it may be gone already
                self.link.flwr("supernode", "unregister", node, CONNECTION)
        told = [f"a new key of client {client} is accepted" for client in new.values()] if self._known else []
        told += [f"an old key of client {client} is refused from now on" for client in gone.values()]
        self._known, self._seen_at = now, changed
        return told

    def _register(self, keys: list[Path]) -> dict[str, str]:
        """Let the holders of these keys in; the nodes of all keys."""
        nodes = self._registered()
        if keys:
            command = [sys.executable, "-m", "fedpurin.federation.members", CONNECTION, *map(str, keys)]
            answer = self.link.call(command, "could not register the sites' keys")
            nodes |= {Path(file).read_text(): node for file, node in answer["nodes"].items()}
            write_atomic(self._nodes, json.dumps(nodes))
        return nodes

    def _registered(self) -> dict[str, str]:
        """Where the file is damaged Flower keeps nodes of old keys, which the rounds refuse themselves."""
        with contextlib.suppress(OSError, ValueError, RecursionError):
            nodes = json.loads(read_bounded(self._nodes, LARGEST_NODES))
            if isinstance(nodes, dict) and all(isinstance(node, str) for node in nodes.values()):
                return nodes
        return {}


def register(connection: str, keys: list[str]) -> dict[str, object]:
    """As the flwr command tells it, with Flower's node id of every key that was new. A key that is registered
    already is fine: that is the normal case when a server starts again on its old database."""
    import click
    from flwr.cli.app import app
    from typer.main import get_command

    command = get_command(app)
    nodes: dict[str, str] = {}
    for key in keys:
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                command(["supernode", "register", key, connection], standalone_mode=False)
        except click.ClickException as error:
            if "already" not in error.message.lower():
                return {"success": False, "error-message": f"{key}: {error.message}"}
        except SystemExit as error:
            return {"success": False, "error-message": f"{key}: flwr ended with code {error.code}"}
        if registered := re.search(r"SuperNode (\d+) registered", said.getvalue()):
            nodes[key] = registered[1]
    return {"success": True, "nodes": nodes}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(register(sys.argv[1], sys.argv[2:])) + "\n")
