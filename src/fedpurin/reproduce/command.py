"""`fedpurin reproduce WHAT`: plan, run what the store lacks, print tables and draw figures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpurin.errors import ConfigError, RunError

if TYPE_CHECKING:
    from fedpurin.reproduce.accuracy import Source

TABLES = (
    "table-accuracy",
    "table-terms",
    "table-communication",
    "table-controls",
    "table-switches",
    "table-values",
    "table-paired",
)
FIGURES = ("figure-bars", "figure-rounds", "figure-bytes", "figure-bn", "figure-tau", "figure-coverage")
SHOWN = ("claims", "first-rounds", "inventory", "table-floor", "table-cost", "table-kept")
ACTIONS = ("check-perturbation", "import", "docs")
WHAT = (*TABLES, *FIGURES, *SHOWN, *ACTIONS)
EXAMPLE = """examples:
  fedpurin reproduce table-accuracy --scale mini                           minutes, bundled data
  fedpurin reproduce table-accuracy --scale paper --dataset cifar-10 --alpha 0.5 --seeds 1 --rounds 60
  fedpurin reproduce figure-tau --scale quick --dry-run                    the plan and its time, nothing else
  fedpurin reproduce import runs/my-run                                    put a finished run into the store
  fedpurin reproduce docs docs/reproduction.md                             make its numbers anew"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLE
    parser.add_argument("what", choices=WHAT, metavar="WHAT", help=", ".join(WHAT))
    parser.add_argument(
        "paths", nargs="*", default=[], metavar="PATH", help="import: run directories; docs: Markdown files"
    )
    parser.add_argument("--scale", default="quick", choices=("paper", "quick", "mini"),
                        help="paper: T = 200/300, seeds 1-3; quick: a tenth of the rounds, one seed; "
                        "mini: bundled data, small CNN")  # fmt: skip
    parser.add_argument("--dataset", help="only these data sets, e.g. cifar-10,cifar-100")
    parser.add_argument("--alpha", help="only these alphas, e.g. 0.1,0.5")
    parser.add_argument("--method", help="only these methods, e.g. fedpurin,fedavg")
    parser.add_argument("--seeds", help="these seeds, e.g. 1,2,3")
    parser.add_argument("--rounds", type=int, help="T; beta is scaled along")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change any setting"
    )
    parser.add_argument("--dry-run", action="store_true", help="show the plan and stop")
    parser.add_argument("--no-run", action="store_true", help="run nothing; show what the store has")
    parser.add_argument(
        "--partial", action="store_true", help="import: accept unfinished runs, marked as such"
    )
    parser.add_argument(
        "--check", action="store_true", help="docs: change nothing, fail where a block is out of date"
    )
    parser.add_argument("--coverage", action="store_true", help="import: also what figure-coverage draws")
    parser.add_argument("--workers", type=int, default=0, help="worker processes; 0: one per core")
    parser.add_argument("--data-dir", default="", help="folder with the official data files")
    parser.add_argument(
        "--runs", default="runs/reproduce", help="folder for run directories (default: runs/reproduce)"
    )
    parser.add_argument("--experiments", help="folder with paper.toml and results/ (default: experiments)")
    parser.add_argument(
        "--out", help="write the table as .md and .tex and the figures here (figures: default reproduction)"
    )


def run(args: argparse.Namespace, console: Any) -> int:
    """The whole command. Returns the exit code."""
    source = build_source(args)
    if args.paths and args.what not in {"import", "docs"}:
        raise ConfigError(f"reproduce {args.what} takes no paths, but got {' '.join(args.paths)}")
    if args.what == "import":
        return _import(args, source, console)
    if args.what == "docs":
        return _docs(args, source, console)
    if not args.no_run and not _make(args, source, console):
        return 0
    return _show(args, source, console)


def build_source(args: argparse.Namespace) -> Source:
    from fedpurin.reproduce.accuracy import Source
    from fedpurin.reproduce.paper import Paper, experiments_folder
    from fedpurin.reproduce.scales import Request
    from fedpurin.reproduce.store import Store

    folder = experiments_folder(args.experiments)
    changes: dict[str, dict[str, str]] = {}
    for text in args.set:
        name, equals, value = text.partition("=")
        section, dot, key = name.partition(".")
        if not (equals and dot):
            raise ConfigError(f"--set {text!r} should look like section.key=value, e.g. run.clients=8")
        changes.setdefault(section, {})[key] = value
    request = Request(
        scale=args.scale,
        datasets=tuple(_list(args.dataset)),
        alphas=tuple(_numbers(args.alpha, "--alpha")),
        methods=tuple(_methods(args.method)),
        seeds=tuple(int(s) for s in _numbers(args.seeds, "--seeds")),
        rounds=args.rounds,
        changes=changes,
    )
    return Source(Store(folder / "results"), Paper.load(folder), request)


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _numbers(text: str | None, flag: str) -> list[float]:
    try:
        return [float(part) for part in _list(text)]
    except ValueError:
        raise ConfigError(f"{flag} {text!r} should be numbers separated by commas") from None


def _methods(text: str | None) -> list[str]:
    from fedpurin.config import METHOD_NAMES

    names = [name.lower() for name in _list(text)]
    for name in names:
        if name not in METHOD_NAMES:
            raise ConfigError(f"--method {name!r} is unknown; choose among {', '.join(METHOD_NAMES)}")
    return names


def _make(args: argparse.Namespace, source: Source, console: Any) -> bool:
    """Run what is missing. False when only the plan was wanted."""
    from fedpurin.reproduce.execute import execute, plan, show_plan
    from fedpurin.reproduce.recipes import RECIPES

    if args.what == "check-perturbation":
        return _check_perturbation(args, source, console)
    if args.what not in RECIPES:
        return True  # these only read
    cells = RECIPES[args.what].cells(source.request)
    coverage = args.what == "figure-coverage"
    steps = plan(cells, source.store, Path(args.runs), args.workers, coverage=coverage)
    show_plan(steps, len({cell.key for cell in cells}), console)
    if args.dry_run:
        return False
    execute(steps, source.store, console, workers=args.workers, data_dir=args.data_dir, coverage=coverage)
    return True


def _check_perturbation(args: argparse.Namespace, source: Source, console: Any) -> bool:
    from fedpurin.reproduce.execute import clock, estimate

    dataset = next(
        iter(source.request.datasets), "fashion-mnist-mini" if args.scale == "mini" else "cifar-10"
    )
    alpha = next(iter(source.request.alphas), 0.5)
    rounds = source.request.rounds or 1
    config = source.request.config(dataset, alpha, next(iter(source.request.seeds), 1), "fedpurin")
    config = config.updated({"run": {"rounds": rounds}, "data": {"dir": args.data_dir}})
    if source.store.get("perturbation", config) is not None:
        console.print("in the store already")
        return True
    clients = 2
    seconds = (
        estimate(config, 0, source.store, 1)
        * clients
        / config.run.clients
        * (1 + 25 / config.train.epochs / rounds)
    )
    console.print(
        f"{clients} clients train alone for {rounds} x {config.train.epochs} epochs: about {clock(seconds)}"
    )
    if args.dry_run:
        return False
    from fedpurin.reproduce.perturbation import check

    source.store.append("perturbation", check(config, clients, console.print))
    return True


def _show(args: argparse.Namespace, source: Source, console: Any) -> int:
    from fedpurin.files import write_atomic
    from fedpurin.reproduce.render import figures, tables

    for number, table in enumerate(tables(args.what, source), start=1):
        console.print(table.markdown(), markup=False, highlight=False, soft_wrap=True)
        if args.out:
            folder = Path(args.out)
            folder.mkdir(parents=True, exist_ok=True)
            name = args.what + (f"-{number}" if number > 1 else "")
            write_atomic(folder / f"{name}.md", table.markdown())
            write_atomic(folder / f"{name}.tex", table.latex())
            console.print(f"wrote {folder / name}.md and .tex", highlight=False)
    if args.what in FIGURES or args.what == "check-perturbation":
        files = figures(args.what, source, Path(args.out or "reproduction"))
        console.print("\n".join(f"wrote {file}" for file in files) or "nothing to draw yet", highlight=False)
    return 0


def _import(args: argparse.Namespace, source: Source, console: Any) -> int:
    from fedpurin.report.load import find_runs
    from fedpurin.reproduce.execute import add_run

    refused = 0
    for path in find_runs([Path(p) for p in args.paths]):
        try:
            key = add_run(source.store, path, partial=args.partial, coverage=args.coverage)
        except RunError as problem:  # one unfinished run must not keep the others out
            console.print(str(problem), markup=False, highlight=False, soft_wrap=True)
            refused += 1
            continue
        console.print(f"{path}: {'added as ' + key if key else 'in the store already'}", highlight=False)
    return 1 if refused else 0


def _docs(args: argparse.Namespace, source: Source, console: Any) -> int:
    from fedpurin.reproduce.docs import update

    if not args.paths:
        raise ConfigError("reproduce docs needs at least one Markdown file, e.g. docs/reproduction.md")
    stale = 0
    for path in args.paths:
        current = update(Path(path), lambda words: block(words, args.experiments), check=args.check)
        stale += not current
        text = "up to date" if current else "out of date" if args.check else "updated"
        console.print(f"{path}: {text}", highlight=False)
    return 1 if args.check and stale else 0


def block(words: list[str], experiments: str | None) -> str:
    """The Markdown of one block in a document, from its command line."""
    from fedpurin.reproduce.render import tables

    parser = argparse.ArgumentParser(prog="reproduce", add_help=False)
    add_arguments(parser)
    args = parser.parse_args(words)
    args.experiments = experiments
    found = tables(args.what, build_source(args))
    return "\n" + "\n".join(table.markdown() for table in found) + "\n"
