"""fedpurin show | ledger | report | figure | watch | reproduce | bench"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from fedpurin.bench import command as speed
from fedpurin.cli.common import add_command, add_json, make_console, print_json
from fedpurin.reproduce import command as paper

STDOUT = "-"


def add_commands(commands: Any) -> None:
    show = add_command(commands, "show", show_runs, "show runs/compare")
    show.add_argument("runs", metavar="RUN", nargs="+", type=Path)
    add_json(show)

    ledger = add_command(commands, "ledger", show_ledger, "ledger RUN --csv l.csv")
    ledger.add_argument("run", metavar="RUN")
    ledger.add_argument("--csv", metavar="FILE", help="a line per message")
    totals = "totals by direction, phase and round; without FILE on stdout, and nothing else there"
    ledger.add_argument("--json", metavar="FILE", nargs="?", const=STDOUT, help=totals)

    report = add_command(commands, "report", write_report, "report runs/compare -o report.html")
    report.add_argument("runs", metavar="RUN", nargs="+", type=Path)
    report.add_argument("-o", "--output", metavar="FILE", type=Path, default="report.html")
    report.add_argument("--title")

    figure = add_command(commands, "figure", save_figure, "figure accuracy runs/compare -o accuracy.pdf")
    names = "accuracy, gain, traffic, cost, ...; a name that is none is answered with all of them"
    figure.add_argument("name", metavar="NAME", help=names)
    figure.add_argument("runs", metavar="RUN", nargs="+", type=Path)
    figure.add_argument("-o", "--output", metavar="FILE", type=Path, required=True)

    watch = add_command(commands, "watch", watch_run, "watch runs/compare/fedpurin-s1")
    watch.add_argument("run", metavar="RUN", type=Path)

    paper.add_arguments(add_command(commands, "reproduce", reproduce))
    speed.add_arguments(add_command(commands, "bench", bench))


def show_runs(args: argparse.Namespace) -> int:
    """Print the table of runs or comparisons."""
    from fedpurin.cli.show import as_document, results_table

    if args.json:
        print_json(as_document(args.runs))
    else:
        make_console().print(results_table(args.runs))
    return 0


def show_ledger(args: argparse.Namespace) -> int:
    """Print what a run sent, beside the paper's counting rule."""
    from rich import box
    from rich.table import Table

    from fedpurin.runs.ledger import Ledger
    from fedpurin.runs.run import one_run

    ledger = Ledger.load(one_run(Path(args.run)))
    console = make_console(stderr=args.json == STDOUT)
    if args.csv:
        ledger.to_csv(Path(args.csv))
        console.print(f"a line per message is in {args.csv}")
    if args.json == STDOUT:
        print_json(ledger.document())
        return 0
    if args.json:
        ledger.to_json(Path(args.json))
        console.print(f"totals are in {args.json}")
    rows = ledger.table_rows()
    if not rows:
        console.print("no messages: nothing was sent")
        return 0
    table = Table(
        box=box.SIMPLE_HEAD,
        title=f"Bytes of {args.run}, in MiB per client and round",
        caption="paper: the paper's counting rule; over bound: mask and values against the entropy bound.\n"
        f"Masks went up as {_named(ledger.encodings('up'))};\n"
        f"down as {_named(ledger.encodings('down'))}.",
        caption_justify="left",
    )
    for heading in rows[0]:
        table.add_column(heading, justify="left" if heading in ("direction", "phase") else "right")
    for row in rows:
        table.add_row(*row.values())
    console.print(table)
    return 0


def _named(encodings: Counter[str]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in encodings.most_common()) or "nothing"


def write_report(args: argparse.Namespace) -> int:
    """Write an HTML report of runs or comparisons."""
    from fedpurin.report import page

    make_console().print(f"The report is in {page.write_report(args.runs, args.output, args.title)}")
    return 0


def save_figure(args: argparse.Namespace) -> int:
    """Save one figure as PNG, SVG or PDF."""
    from fedpurin.report import figures
    from fedpurin.runs.run import find_runs, load_run

    runs = [load_run(path) for path in find_runs(args.runs)]
    make_console().print(f"The figure is in {figures.save_figure(runs, args.name, args.output)}")
    return 0


def watch_run(args: argparse.Namespace) -> int:
    """Follow a running job in the terminal."""
    from fedpurin.report.watch import watch
    from fedpurin.runs.run import one_run

    watch(one_run(args.run), make_console())
    return 0


def reproduce(args: argparse.Namespace) -> int:
    """Regenerate the paper's tables and figures."""
    return paper.run(args, make_console())


def bench(args: argparse.Namespace) -> int:
    """Measure this machine."""
    return speed.run(args, make_console())
