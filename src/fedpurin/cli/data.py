"""fedpurin data list | get | check"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpurin.cli.common import add_command, add_json, complete, make_console, path, print_json
from fedpurin.data.catalog import NAMES

if TYPE_CHECKING:
    from rich.console import Console


def add_commands(commands: Any) -> None:
    parser = add_command(commands, "data", "List, download and check data sets.", "data get cifar-10")
    actions = parser.add_subparsers(metavar="list|get|check", required=True)
    listing = add_command(actions, "list", list_data, "data list")
    getting = add_command(actions, "get", get_data, "data get cifar-10")
    checking = add_command(actions, "check", check_data, "data check cifar-10")
    for action in (getting, checking):
        complete(action.add_argument("names", metavar="NAME", nargs="+"), lambda: NAMES)
    for action in (listing, checking):
        add_json(action)
    folder = "default: FEDPURIN_DATA or the user's cache"
    for action in (listing, getting, checking):
        action.add_argument("--data-dir", metavar="DIR", type=path, help=folder)


def list_data(args: argparse.Namespace) -> int:
    """List the data sets and where they are."""
    from fedpurin import data

    folder = data.resolve_data_dir(args.data_dir)
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
    """Download the official files."""
    console = make_console()
    for name in args.names:
        console.print(f"{name} is in {_download(name, args.data_dir, console)}")
    return 0


def _download(name: str, folder: Path | None, console: Console) -> Path:
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TimeRemainingColumn

    from fedpurin import data
    from fedpurin.console import text_column

    tasks: dict[str, TaskID] = {}
    columns = text_column("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console) as bar:

        def show(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=done, total=total)

        return data.get(name, folder, show)


def check_data(args: argparse.Namespace) -> int:
    """Check files by size and checksum."""
    from fedpurin import data

    checks_of = {name: data.check(name, args.data_dir) for name in args.names}
    good = all(ok for checks in checks_of.values() for _, ok, _ in checks)
    if args.json:
        lines = {name: [check._asdict() for check in checks] for name, checks in checks_of.items()}
        print_json({"ok": good, "data_sets": lines})
        return int(not good)
    console = make_console()
    for file, ok, message in (line for checks in checks_of.values() for line in checks):
        console.print(f"{'ok     ' if ok else 'problem'} {file}: {message}")
    return int(not good)
