"""fedpurin data list | get | check"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fedpurin.cli.common import add_command, add_json, complete, make_console, print_json
from fedpurin.data.catalog import NAMES


def add_commands(commands: Any) -> None:
    parser = add_command(commands, "data", "list, download and check data sets", "fedpurin data get cifar-10")
    actions = parser.add_subparsers(metavar="list|get|check", required=True)
    for name, help, function in (
        ("list", "list the data sets and where they are", list_data),
        ("get", "download the official files", get_data),
        ("check", "check files by size and checksum", check_data),
    ):
        action = add_command(
            actions, name, help, f"fedpurin data {name}" + ("" if name == "list" else " cifar-10")
        )
        if name != "list":
            complete(action.add_argument("names", metavar="NAME", nargs="+"), lambda: NAMES)
        if name != "get":
            add_json(action)
        action.add_argument("--data-dir", metavar="DIR", help="default: FEDPURIN_DATA or the user's cache")
        action.set_defaults(function=function)


def _folder(args: argparse.Namespace) -> Path | None:
    return Path(args.data_dir) if args.data_dir else None


def list_data(args: argparse.Namespace) -> int:
    from fedpurin import data

    folder = data.resolve_data_dir(_folder(args))
    states = {name: "present" if data.is_present(name, folder) else "missing" for name in data.NAMES}
    states[data.DEFAULT] = "bundled"
    if args.json:
        print_json({"folder": str(folder), "data_sets": states})
        return 0
    console = make_console()
    console.print(f"data directory: {folder}")
    for name, state in states.items():
        remedy = f"; get it with: fedpurin data get {name}" if state == "missing" else ""
        console.print(f"  {name:<20} {state}{remedy}")
    return 0


def get_data(args: argparse.Namespace) -> int:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from fedpurin import data

    console = make_console()
    for name in args.names:
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=console,
        ) as progress:
            tasks: dict[str, Any] = {}

            def show(
                file: str, done: int, total: int | None, tasks: Any = tasks, bar: Any = progress
            ) -> None:
                if file not in tasks:
                    tasks[file] = bar.add_task(file, total=total)
                bar.update(tasks[file], completed=done, total=total)

            path = data.get(name, _folder(args), show)
        console.print(f"{name} is in {path}")
    return 0


def check_data(args: argparse.Namespace) -> int:
    from fedpurin import data

    checks_of = {name: data.check(name, _folder(args)) for name in args.names}
    good = all(ok for checks in checks_of.values() for _, ok, _ in checks)
    if args.json:
        lines = {
            n: [{"file": f, "ok": ok, "message": m} for f, ok, m in checks] for n, checks in checks_of.items()
        }
        print_json({"ok": good, "data_sets": lines})
        return 0 if good else 1
    console = make_console()
    for file, ok, message in (line for checks in checks_of.values() for line in checks):
        console.print(f"{'ok     ' if ok else 'problem'} {file}: {message}")
    return 0 if good else 1
