"""fedpurin data list | get | check"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fedpurin.cli.common import add_command, make_console


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
            action.add_argument("names", metavar="NAME", nargs="+")
        action.add_argument("--data-dir", metavar="DIR", help="default: FEDPURIN_DATA or the user's cache")
        action.set_defaults(function=function)


def _folder(args: argparse.Namespace) -> Path | None:
    return Path(args.data_dir) if args.data_dir else None


def list_data(args: argparse.Namespace) -> int:
    from fedpurin import data

    console = make_console()
    console.print(f"data directory: {data.resolve_data_dir(_folder(args))}")
    for name in data.NAMES:
        bundled = name == data.DEFAULT
        here = bundled or data.is_present(name, _folder(args))
        note = (
            "bundled" if bundled else "present" if here else f"missing; get it with: fedpurin data get {name}"
        )
        console.print(f"  {name:<20} {note}")
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

    console, good = make_console(), True
    for name in args.names:
        for file, ok, message in data.check(name, _folder(args)):
            console.print(f"{'ok     ' if ok else 'problem'} {file}: {message}")
            good = good and ok
    return 0 if good else 1
