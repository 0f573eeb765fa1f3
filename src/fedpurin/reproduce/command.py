"""`fedpurin reproduce WHAT`: its arguments. What they do is in actions.py, which brings torch and numpy."""

from __future__ import annotations

import argparse
from typing import Any

TABLES = (
    "table-accuracy", "table-terms", "table-communication", "table-controls", "table-switches", "table-beta",
    "table-worth", "table-values", "table-paired", "table-windows",
)  # fmt: skip
FIGURES = (
    "figure-bars", "figure-rounds", "figure-bytes", "figure-worth", "figure-bn", "figure-tau",
    "figure-coverage",
)  # fmt: skip
SHOWN = (
    "claims", "claims-verdicts", "table-traffic", "table-bundled", "table-bundled-switches",
    "table-bundled-rivals", "figure-traffic", "table-noise", "first-rounds", "inventory", "table-floor",
    "table-cost", "table-half", "table-kept", "findings-headlines", "findings-curves", "findings-traffic",
    "findings-summary", "findings-seeds", "findings-full", "findings-score", "findings-longer",
    "findings-coverage",
)  # fmt: skip
ACTIONS = ("check-perturbation", "check-norms", "import", "docs", "queue")
WHAT = (*TABLES, *FIGURES, *SHOWN, *ACTIONS)
EXAMPLE = """examples:
  fedpurin reproduce table-accuracy --scale mini                           minutes, bundled data
  fedpurin reproduce table-accuracy --scale paper --dataset cifar-10 --alpha 0.5 --seeds 1 --rounds 60
  fedpurin reproduce figure-tau --scale quick --dry-run                    the plan and its time, nothing else
  fedpurin reproduce table-traffic --scale paper --dataset cifar-10 --alpha 0.5 --rounds 60
  fedpurin reproduce table-bundled --scale mini                            all methods, the quickstart's data
  fedpurin reproduce import runs/my-run                                    put a finished run into the store
  fedpurin reproduce docs docs/reproduction.md                             make its numbers anew
  fedpurin reproduce queue --minutes 55                                    work through experiments/queue.toml
  fedpurin reproduce queue --commit                                        commit what it has stored"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLE
    parser.add_argument("what", choices=WHAT, metavar="WHAT", help=", ".join(WHAT))
    paths = "import, check-norms: run directories; docs: Markdown files"
    parser.add_argument("paths", nargs="*", default=[], metavar="PATH", help=paths)
    scales = (
        "paper: T = 200/300, seeds 1-3; quick: a tenth of the rounds, one seed; mini: bundled data, small CNN"
    )
    parser.add_argument("--scale", default="quick", choices=("paper", "quick", "mini"), help=scales)
    for flag, text in (
        ("--dataset", "only these data sets, e.g. cifar-10,cifar-100"),
        ("--alpha", "only these alphas, e.g. 0.1,0.5"),
        ("--method", "only these methods, e.g. fedpurin,fedavg"),
        ("--seeds", "these seeds, e.g. 1,2,3"),
        ("--levels", "table-traffic: accuracies to reach in percent (default: 60,65,69)"),
        ("--experiments", "folder for results/ and queue.toml (default: experiments, else reproduction)"),
        ("--out", "write the table as .md and .tex and the figures here (figures: default reproduction)"),
    ):
        parser.add_argument(flag, help=text)
    for flag, text in (
        ("--dry-run", "show the plan and stop"),
        ("--no-run", "run nothing; show what the store has"),
        ("--partial", "import: accept unfinished runs, marked as such"),
        ("--check", "docs: change nothing, fail where a block is out of date"),
        ("--coverage", "import: also what figure-coverage draws"),
        ("--commit", "queue: run nothing, make the documents anew and commit them with the results"),
    ):
        parser.add_argument(flag, action="store_true", help=text)
    parser.add_argument("--rounds", type=int, help="T; beta is scaled along")
    parser.add_argument("--minutes", type=float, help="queue: stop after so long, storing what is there")
    any_setting = {"action": "append", "default": [], "metavar": "SECTION.KEY=VALUE"}
    parser.add_argument("--set", help="change any setting", **any_setting)  # type: ignore[arg-type]
    parser.add_argument("--workers", type=int, default=0, help="worker processes; 0: one per core")
    parser.add_argument("--data-dir", default="", help="folder with the official data files")
    folder = "folder for run directories (default: runs/reproduce)"
    parser.add_argument("--runs", default="runs/reproduce", help=folder)


def run(args: argparse.Namespace, console: Any) -> int:
    """The whole command. Returns the exit code."""
    from fedpurin.reproduce.actions import act

    return act(args, console)
