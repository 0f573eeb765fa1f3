"""Registers several node keys with a SuperLink in one process: starting flwr takes seconds.

    python -m fedpurin.federation.register CONNECTION KEY.pub...

Prints one JSON object, as the flwr command does, with Flower's node id of every key that was new. A key that
is registered already is fine: that is the normal case when a server starts again on its old database.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys

import click


def register(connection: str, keys: list[str]) -> dict[str, object]:
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
