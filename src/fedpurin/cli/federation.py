"""fedpurin federation up | keys | server | client | status | audit"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fedpurin.cli.common import add_command, add_config_flags, make_console, read_config


def add_commands(commands: Any) -> None:
    parser = add_command(
        commands,
        "federation",
        "a real federation between processes or machines",
        "fedpurin federation up --clients 3",
    )
    actions = parser.add_subparsers(metavar="up|keys|server|client|status|audit", required=True)

    up = add_command(
        actions,
        "up",
        "a whole federation on this machine, for trying out",
        "fedpurin federation up --clients 3 --rounds 2",
    )
    add_config_flags(up, without=("engine", "workers"))
    up.add_argument("--out", metavar="RUN", help="directory of the results (default: a new one in runs/)")
    up.add_argument(
        "--data", metavar="DATA", action="append", help="own data of a client; give it once per client"
    )
    _add_terms(up)
    up.set_defaults(function=run_up)

    keys = add_command(
        actions,
        "keys",
        "make certificates and keys for a server and its sites",
        "fedpurin federation keys KEYS --name fl.example.org --sites 2",
    )
    keys.add_argument("folder", metavar="KEYS")
    keys.add_argument(
        "--name", metavar="HOST", action="append", help="name or address under which sites reach the server"
    )
    keys.add_argument("--sites", type=int, default=0, metavar="N")
    keys.add_argument("--port", type=int, default=8443)
    keys.add_argument("--renew", action="store_true", help="new server certificates; sites keep theirs")
    keys.add_argument("--add", action="store_true", help="one more site, also while the server is at work")
    keys.add_argument("--revoke", type=int, metavar="CLIENT", help="refuse a site's key from now on")
    keys.add_argument("--new-key", type=int, metavar="CLIENT", help="a new key; the old one is refused")
    keys.set_defaults(function=run_keys)

    server = add_command(
        actions,
        "server",
        "the server of a federation",
        "fedpurin federation server CONFIG.toml --keys KEYS --out RUN",
    )
    add_config_flags(server, without=("engine", "workers"))
    server.add_argument("--keys", metavar="KEYS", required=True)
    server.add_argument("--out", metavar="RUN", required=True)
    server.add_argument("--listen", metavar="ADDRESS:PORT", help="default: 0.0.0.0 and the port of the keys")
    server.add_argument(
        "--dashboard", type=int, metavar="PORT", help="a live page on http://127.0.0.1:PORT (0: a free port)"
    )
    server.add_argument(
        "--seats", type=int, metavar="N", help="sites that may ever take part (default: those with keys now)"
    )
    _add_terms(server)
    server.set_defaults(function=run_server)

    client = add_command(
        actions,
        "client",
        "take part with this site's own data",
        "fedpurin federation client --keys SITE_FOLDER --data data.npz --state STATE",
    )
    client.add_argument(
        "--data", metavar="DATA", default="", help=".npz, image folder, or package.module:function"
    )
    client.add_argument("--state", metavar="STATE", required=True, help="where this site's model is kept")
    client.add_argument("--keys", metavar="SITE_FOLDER", help="from fedpurin federation keys")
    client.add_argument("--server", metavar="HOST:PORT", help="default: as in the keys")
    client.add_argument("--client-id", type=int, metavar="I", help="default: as in the keys")
    client.add_argument(
        "--allow",
        metavar="PACKAGE.MODULE:FUNCTION",
        action="append",
        default=[],
        help="a function that the server's configuration may name for the model or the data; can be repeated",
    )
    client.add_argument("--limits", metavar="FILE.toml", help="what this site agrees to; see the guide")
    client.add_argument("--keep-messages", action="store_true", help="keep what is sent, for the audit")
    client.set_defaults(function=run_client)

    status = add_command(
        actions,
        "status",
        "who takes part in a run, and how it goes",
        "fedpurin federation status RUN",
    )
    status.add_argument("run", metavar="RUN")
    status.add_argument("--json", action="store_true", help="for programs")
    status.set_defaults(function=run_status)

    audit = add_command(
        actions,
        "audit",
        "what this site has sent, with checksums",
        "fedpurin federation audit STATE",
    )
    audit.add_argument("state", metavar="STATE", help="the --state of the client")
    audit.add_argument("--json", action="store_true", help="for programs")
    audit.set_defaults(function=run_audit)


def _add_terms(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--resume", action="store_true", help="continue the run in --out")
    parser.add_argument(
        "--minimum", type=int, metavar="N", help="clients without whose uploads a round fails"
    )
    parser.add_argument("--deadline", type=float, metavar="SECONDS", help="of a round")
    parser.add_argument(
        "--patience", type=float, metavar="SECONDS", help="how long a round waits for a site that is cut off"
    )
    parser.add_argument(
        "--join", type=float, metavar="SECONDS", help="how long to wait for clients at the start"
    )


def _terms(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in ("resume", "minimum", "deadline", "join", "patience")}


def run_up(args: argparse.Namespace) -> int:
    from fedpurin.errors import ConfigError
    from fedpurin.federation import commands
    from fedpurin.runs.directory import default_path

    if args.resume:
        if not args.out:
            raise ConfigError("--resume needs --out RUN, the run to continue")
        from fedpurin.runs.directory import stored_config

        config = stored_config(Path(args.out))
    else:
        config = read_config(args)
    out = Path(args.out) if args.out else default_path(config)
    return commands.up(config, out=out, console=make_console(), data=args.data, **_terms(args))


def run_keys(args: argparse.Namespace) -> int:
    from fedpurin.federation import commands

    return commands.keys(
        Path(args.folder),
        console=make_console(),
        names=args.name,
        sites=args.sites,
        port=args.port,
        renew=args.renew,
        add=args.add,
        revoke=args.revoke,
        new_key=args.new_key,
    )


def run_status(args: argparse.Namespace) -> int:
    from fedpurin.federation import commands

    return commands.status(Path(args.run), console=make_console(), as_json=args.json)


def run_server(args: argparse.Namespace) -> int:
    from fedpurin.federation import commands

    config = None if args.resume else read_config(args)
    return commands.server(
        config,
        key_folder=Path(args.keys),
        out=Path(args.out),
        console=make_console(),
        listen=args.listen,
        seats=args.seats,
        dashboard=args.dashboard,
        **_terms(args),
    )


def run_client(args: argparse.Namespace) -> int:
    from fedpurin.federation.client import take_part

    return take_part(
        state=Path(args.state),
        console=make_console(),
        data=args.data,
        key_folder=Path(args.keys) if args.keys else None,
        server=args.server,
        client_id=args.client_id,
        allow=tuple(args.allow),
        limits=Path(args.limits) if args.limits else None,
        keep_messages=args.keep_messages,
    )


def run_audit(args: argparse.Namespace) -> int:
    from fedpurin.federation import commands

    return commands.audit(Path(args.state), console=make_console(), as_json=args.json)
