"""`fedpurin COMMAND ...`. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence

from fedpurin.cli import data, doctor, federation, init, results, run, tune
from fedpurin.errors import FedpurinError
from fedpurin.stopping import INTERRUPTED
from fedpurin.version import __version__


def open_missing_streams() -> None:
    """Who starts the program without some of the three (`>&-`, a service) wants nothing of them; without
    this a file of a run would take their number, and be written what is printed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - as long as the program lasts
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


class Parser(argparse.ArgumentParser):
    """Mistakes end in one line that says where to look."""

    def error(self, message: str):  # type: ignore[no-untyped-def]
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="fedpurin",
        description="Personalised federated learning that sends only what matters.",
        epilog="Start with:  fedpurin compare --methods fedpurin,fedavg,separate",
    )
    parser.add_argument("--version", action="version", version=f"fedpurin {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", parser_class=Parser)
    for module in (run, tune, results, data, federation, init, doctor):
        module.add_commands(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    open_missing_streams()
    parser = build_parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what could follow; fedpurin completion set that up
        from argcomplete import autocomplete

        autocomplete(parser)
    args, rest = parser.parse_known_args(argv)
    if "paths" in args and not any(word.startswith("-") for word in rest):
        args.paths += rest  # argparse takes no more of them after an option
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if args.command is None:
        parser.print_help()
        return 0
    try:
        return int(args.function(args))
    except FedpurinError as problem:
        print(f"fedpurin: error: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nfedpurin: stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `fedpurin ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as problem:  # a full disk, a folder that is read-only or gone
        if problem.filename is None and problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left cannot go there
            print(f"fedpurin: error: the output cannot be written: {problem.strerror}", file=sys.stderr)
            return 1
        if problem.filename is None:
            raise  # it says nothing to a user
        print(f"fedpurin: error: {problem.filename}: {problem.strerror}", file=sys.stderr)
        return 1
