"""fedpurin federation up | keys | server | client | status | audit"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fedpurin.cli.common import add_command, add_config_flags, make_console, own_arguments, path, read_config
from fedpurin.errors import ConfigError


def add_commands(commands: Any) -> None:
    about = "A real federation between processes or machines."
    parser = add_command(commands, "federation", about, "federation up --clients 3")
    actions = parser.add_subparsers(metavar="up|keys|server|client|status|audit", required=True)

    up = add_command(actions, "up", run_up, "federation up --clients 3 --rounds 2")
    add_config_flags(up, without=("engine", "workers"))
    out = "directory of the results (default: a new one in runs/)"
    up.add_argument("--out", metavar="RUN", type=path, help=out)
    data = "own data of a client; give it once per client"
    up.add_argument("--data", metavar="DATA", action="append", help=data)
    _add_terms(up)

    keys = add_command(actions, "keys", run_keys, "federation keys KEYS --name fl.example.org --sites 2")
    keys.add_argument("folder", metavar="KEYS", type=Path)
    name = "name or address under which sites reach the server"
    keys.add_argument("--name", dest="names", metavar="HOST", action="append", help=name)
    keys.add_argument("--sites", type=int, default=0, metavar="N")
    keys.add_argument("--port", type=int, default=8443)
    keys.add_argument("--renew", action="store_true", help="new server certificates; sites keep theirs")
    keys.add_argument("--add", action="store_true", help="one more site, also while the server is at work")
    keys.add_argument("--revoke", type=int, metavar="CLIENT", help="refuse a site's key from now on")
    keys.add_argument("--new-key", type=int, metavar="CLIENT", help="a new key; the old one is refused")

    server = add_command(actions, "server", run_server, "federation server CONFIG.toml --keys KEYS --out RUN")
    add_config_flags(server, without=("engine", "workers"))
    server.add_argument("--keys", metavar="KEYS", type=Path, required=True)
    server.add_argument("--out", metavar="RUN", type=Path, required=True)
    server.add_argument("--listen", metavar="ADDRESS:PORT", help="default: 0.0.0.0 and the port of the keys")
    dashboard = "a live page on http://127.0.0.1:PORT (0: a free port)"
    server.add_argument("--dashboard", type=int, metavar="PORT", help=dashboard)
    seats = "sites that may ever take part (default: those with keys now)"
    server.add_argument("--seats", type=int, metavar="N", help=seats)
    _add_terms(server)

    example = "federation client --keys SITE_FOLDER --data data.npz --state STATE"
    client = add_command(actions, "client", run_client, example)
    data = ".npz, image folder, or package.module:function"
    client.add_argument("--data", metavar="DATA", default="", help=data)
    state = "where this site's model is kept"
    client.add_argument("--state", metavar="STATE", type=Path, required=True, help=state)
    made = "from fedpurin federation keys"
    client.add_argument("--keys", dest="key_folder", metavar="SITE_FOLDER", type=path, help=made)
    client.add_argument("--server", metavar="HOST:PORT", help="default: as in the keys")
    client.add_argument("--client-id", type=int, metavar="I", help="default: as in the keys")
    allow = "a function that the server's configuration may name for the model or the data; can be repeated"
    client.add_argument("--allow", metavar="PACKAGE.MODULE:FUNCTION", action="append", default=[], help=allow)
    limits = "what this site agrees to; see the guide"
    client.add_argument("--limits", metavar="FILE.toml", type=path, help=limits)
    client.add_argument("--keep-messages", action="store_true", help="keep what is sent, for the audit")

    status = add_command(actions, "status", run_status, "federation status RUN")
    status.add_argument("run", metavar="RUN", type=Path)
    status.add_argument("--json", dest="as_json", action="store_true", help="for programs")

    audit = add_command(actions, "audit", run_audit, "federation audit STATE")
    audit.add_argument("state", metavar="STATE", type=Path, help="the --state of the client")
    audit.add_argument("--json", dest="as_json", action="store_true", help="for programs")


def _add_terms(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--resume", action="store_true", help="continue the run in --out")
    minimum = "clients without whose uploads a round fails"
    parser.add_argument("--minimum", type=int, metavar="N", help=minimum)
    for flag, help in (
        ("--deadline", "of a round"),
        ("--patience", "how long a round waits for a site that is cut off"),
        ("--join", "how long to wait for clients at the start"),
    ):
        parser.add_argument(flag, type=float, metavar="SECONDS", help=help)


def _terms(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in ("resume", "minimum", "deadline", "join", "patience")}


def run_up(args: argparse.Namespace) -> int:
    """A whole federation on this machine, for trying out."""
    from fedpurin.federation import commands
    from fedpurin.runs.directory import stored_config
    from fedpurin.runs.places import default_path

    if args.resume and not args.out:
        raise ConfigError("--resume needs --out RUN, the run to continue")
    config = stored_config(args.out) if args.resume else read_config(args)
    out = args.out or default_path(config)
    return commands.up(config, out=out, console=make_console(), data=args.data, **_terms(args))


def run_keys(args: argparse.Namespace) -> int:
    """Make certificates and keys for a server and its sites."""
    from fedpurin.federation import commands

    return commands.keys(console=make_console(), **own_arguments(args))


def run_server(args: argparse.Namespace) -> int:
    """The server of a federation."""
    from fedpurin.federation import commands

    return commands.server(
        None if args.resume else read_config(args),
        key_folder=args.keys,
        out=args.out,
        console=make_console(),
        listen=args.listen,
        seats=args.seats,
        dashboard=args.dashboard,
        **_terms(args),
    )


def run_client(args: argparse.Namespace) -> int:
    """Take part with this site's own data."""
    from fedpurin.federation.client import take_part

    args.allow = tuple(args.allow)
    return take_part(console=make_console(), **own_arguments(args))


def run_status(args: argparse.Namespace) -> int:
    """Who takes part in a run, and how it goes."""
    from fedpurin.federation import commands

    return commands.status(console=make_console(), **own_arguments(args))


def run_audit(args: argparse.Namespace) -> int:
    """What this site has sent, with checksums."""
    from fedpurin.federation import commands

    return commands.audit(console=make_console(), **own_arguments(args))
