"""fedpurin show | ledger | report | watch | reproduce | bench"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fedpurin.bench import command as speed
from fedpurin.cli.common import add_command, add_json, make_console, print_json
from fedpurin.reproduce import command as paper


def add_commands(commands: Any) -> None:
    show = add_command(
        commands, "show", "print the table of runs or comparisons", "fedpurin show runs/compare"
    )
    show.add_argument("runs", metavar="RUN", nargs="+")
    add_json(show)
    show.set_defaults(function=show_runs)

    ledger = add_command(
        commands,
        "ledger",
        "print what a run sent, beside the paper's counting rule",
        "fedpurin ledger RUN --csv l.csv",
    )
    ledger.add_argument("run", metavar="RUN")
    ledger.add_argument("--csv", metavar="FILE", help="a line per message")
    ledger.add_argument(
        "--json",
        metavar="FILE",
        nargs="?",
        const=STDOUT,
        help="totals by direction, phase and round; without FILE on stdout, and nothing else there",
    )
    ledger.set_defaults(function=show_ledger)

    report = add_command(
        commands,
        "report",
        "write an HTML report of runs or comparisons",
        "fedpurin report runs/compare -o report.html",
    )
    report.add_argument("runs", metavar="RUN", nargs="+")
    report.add_argument("-o", "--output", metavar="FILE", default="report.html")
    report.add_argument("--title")
    report.set_defaults(function=write_report)

    figure = add_command(
        commands,
        "figure",
        "save one figure as PNG, SVG or PDF",
        "fedpurin figure accuracy runs/compare -o accuracy.pdf",
    )
    figure.add_argument(
        "name",
        metavar="NAME",
        help="accuracy, gain, traffic, cost, ...; a name that is none is answered with all of them",
    )
    figure.add_argument("runs", metavar="RUN", nargs="+")
    figure.add_argument("-o", "--output", metavar="FILE", required=True)
    figure.set_defaults(function=save_figure)

    watch = add_command(
        commands, "watch", "follow a running job in the terminal", "fedpurin watch runs/compare/fedpurin-s1"
    )
    watch.add_argument("run", metavar="RUN")
    watch.set_defaults(function=watch_run)

    about = "regenerate the paper's tables and figures"
    example = "fedpurin reproduce table-communication --scale quick --data-dir DATA"
    reproduce = add_command(commands, "reproduce", about, example)
    paper.add_arguments(reproduce)
    reproduce.set_defaults(function=lambda args: paper.run(args, make_console()))

    bench = add_command(commands, "bench", "measure this machine", "fedpurin bench")
    speed.add_arguments(bench)
    bench.set_defaults(function=lambda args: speed.run(args, make_console()))


STDOUT = "-"


def show_runs(args: argparse.Namespace) -> int:
    from fedpurin.cli.show import as_document, results_table

    paths = [Path(run) for run in args.runs]
    if args.json:
        print_json(as_document(paths))
    else:
        make_console().print(results_table(paths))
    return 0


def show_ledger(args: argparse.Namespace) -> int:
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


def write_report(args: argparse.Namespace) -> int:
    from fedpurin.report.page import write_report as write

    path = write([Path(run) for run in args.runs], Path(args.output), args.title)
    make_console().print(f"The report is in {path}")
    return 0


def save_figure(args: argparse.Namespace) -> int:
    from fedpurin.report.figures import save_figure as save
    from fedpurin.runs.run import find_runs, load_run

    runs = [load_run(path) for path in find_runs([Path(run) for run in args.runs])]
    make_console().print(f"The figure is in {save(runs, args.name, Path(args.output))}")
    return 0


def watch_run(args: argparse.Namespace) -> int:
    from fedpurin.report.watch import watch
    from fedpurin.runs.run import one_run

    watch(one_run(Path(args.run)), make_console())
    return 0


def _named(encodings: Any) -> str:
    return ", ".join(f"{name} ({count})" for name, count in encodings.most_common()) or "nothing"
