"""Registers several node keys with a SuperLink in one process.

    python -m fedpurin.federation.register CONNECTION KEY.pub...

Prints one JSON object, as the flwr command does. A key that is registered already is fine: that is the
normal case when a server starts again on its old database.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

import click


def register(connection: str, keys: list[str]) -> dict[str, object]:
    from flwr.cli.app import app
    from typer.main import get_command

    command = get_command(app)
    for key in keys:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                command(["supernode", "register", key, connection], standalone_mode=False)
        except click.ClickException as error:
            if "already" not in error.message.lower():
                return {"success": False, "error-message": f"{key}: {error.message}"}
        except SystemExit as error:
            return {"success": False, "error-message": f"{key}: flwr ended with code {error.code}"}
    return {"success": True}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(register(sys.argv[1], sys.argv[2:])) + "\n")
