"""`fedpurin COMMAND ...`. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence

from fedpurin.cli import data, doctor, federation, init, results, run, tune
from fedpurin.errors import FedpurinError
from fedpurin.shell import one_line
from fedpurin.stopping import INTERRUPTED, stoppable
from fedpurin.version import __version__

UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)  # what a stream that is a file answers


def prepare_streams() -> None:
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a folder's name may be no text; a screen may have no ±
            stream.reconfigure(errors="backslashreplace")


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


def failed(message: str) -> int:
    """Say so in one line, whatever the names in it are made of. Returns the exit code."""
    print(f"fedpurin: error: {one_line(message)}", file=sys.stderr)
    return 1


def main(argv: Sequence[str] | None = None) -> int:
    prepare_streams()
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
        os.getcwd()
    except FileNotFoundError:  # whatever comes, torch first of all, would end without a word of sense
        return failed("the current folder is gone; change to another one")
    try:
        with stoppable():
            return int(args.function(args))
    except FedpurinError as problem:
        return failed(str(problem))
    except MemoryError:
        return failed("the memory does not suffice; end other programs, or ask for less at once")
    except KeyboardInterrupt:
        print("\nfedpurin: stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `fedpurin ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as problem:  # a full disk, a folder that is read-only or gone
        if problem.filename is None and problem.errno in UNWRITTEN:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left cannot go there
            return failed(f"the output cannot be written: {problem.strerror}")
        where = "" if problem.filename is None else f"{problem.filename}: "
        remedy = "; change its permissions" if isinstance(problem, PermissionError) else ""
        return failed(f"{where}{problem.strerror or problem}{remedy}")
    except ImportError as problem:  # a package of another build, or too little memory for it
        name = problem.name or "a package"
        return failed(f"{name} cannot be loaded ({problem}); install it anew, or give it more memory")
