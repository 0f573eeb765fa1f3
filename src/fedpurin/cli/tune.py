"""fedpurin tune"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpurin.cli.common import add_command, add_config_flags, make_console, read_config
from fedpurin.shell import command
from fedpurin.stopping import INTERRUPTED

if TYPE_CHECKING:
    from rich.table import Table

    from fedpurin.tuning.outcome import RankedTrial, SearchOutcome


def add_commands(commands: Any) -> None:
    parser = add_command(commands, "tune", run_tune, "tune my.toml --budget-mib 5 --out runs/tune")
    add_config_flags(parser)
    budget = "MiB per client for a whole run, both ways"
    parser.add_argument("--budget-mib", type=float, metavar="X", help=budget)
    parser.add_argument("--minutes", type=float, metavar="M", help="of searching")
    out = "folder of the search; the same again goes on with it"
    parser.add_argument("--out", metavar="DIR", type=Path, default="runs/tune", help=out)


def run_tune(args: argparse.Namespace) -> int:
    """Search the method and its settings for your data, model and budget."""
    from importlib.util import find_spec

    from fedpurin.cli.progress import SearchProgress
    from fedpurin.tuning.outcome import write_page, write_recommended
    from fedpurin.tuning.search import tune

    console, folder = make_console(), args.out
    progress = SearchProgress(console)
    try:
        outcome = tune(
            read_config(args), folder, budget_mib=args.budget_mib, minutes=args.minutes, watcher=progress
        )
    except KeyboardInterrupt:
        console.print(f"stopped; what was tried is kept in {folder}. Go on with the same command.")
        return INTERRUPTED
    finally:
        progress.close()
    console.print(outcome_table(outcome))
    console.print("Not tried:", *(f"  - {line}" for line in outcome.not_tried), sep="\n")
    if find_spec("plotly") and find_spec("jinja2"):
        console.print(f"\nThe report is in {write_page(outcome, folder)}")
    else:
        console.print("\nNo HTML report: it needs pip install 'fedpurin[report]'")
    console.print(f"Recommended, {outcome.why}: {outcome.recommended.trial.label}")
    console.print(f"Run it with: {command('run', write_recommended(outcome, folder))}")
    return 0


def outcome_table(outcome: SearchOutcome) -> Table:
    from rich import box
    from rich.table import Table

    budget = "" if outcome.budget_mib is None else f", at most {outcome.budget_mib:g} MiB per client"
    table = Table(
        box=box.SIMPLE_HEAD,
        title=f"{len(outcome.rows)} configurations, {len(outcome.finalists)} finalists{budget}",
        caption=CAPTION,
        caption_justify="left",
    )
    table.add_column("configuration")
    for heading in ("rounds", "validation", "test (not used)", "MiB", "front", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in outcome.rows:
        s = row.standing
        final = row.rung == outcome.rungs
        table.add_row(
            row.trial.label,
            f"{s.rounds} of {s.planned}" if s.rounds != s.planned else str(s.rounds),
            f"{100 * s.validation:.1f}",
            f"{100 * s.test:.1f}",
            f"{'' if s.measured else '~'}{s.mib:.3g}",
            "*" if row.on_front else "",
            "recommended" if row.recommended else _left(row, final),
            style="bold" if row.recommended else None if final else "dim",
        )
    return table


def _left(row: RankedTrial, final: bool) -> str:
    if not row.standing.fits:
        return "over the budget"
    return "" if final else f"left in rung {row.rung}"


CAPTION = (
    "Mean accuracy over clients in %, after training, over the last third of the rounds (at most ten).\n"
    "validation: on samples held out of training; it decides. test: the same models on the test samples;\n"
    "it decides nothing. MiB per client for the whole run, both ways; ~: reckoned from the rounds so far.\n"
    "* Pareto front of the finalists: no other is at least as accurate with at most as many MiB"
)
