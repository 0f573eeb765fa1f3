"""`fedpurin reproduce WHAT`: plan, run what the store lacks, print tables and draw figures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpurin.errors import ConfigError, RunError

if TYPE_CHECKING:
    from fedpurin.reproduce.execute import Means
    from fedpurin.reproduce.source import Source

TABLES = (
    "table-accuracy", "table-terms", "table-communication", "table-controls", "table-switches", "table-beta",
    "table-values", "table-paired", "table-windows",
)  # fmt: skip
FIGURES = ("figure-bars", "figure-rounds", "figure-bytes", "figure-bn", "figure-tau", "figure-coverage")
SHOWN = (
    "claims", "table-traffic", "table-bundled", "figure-traffic", "table-noise", "first-rounds", "inventory",
    "table-floor", "table-cost", "table-half", "table-kept", "findings-curves", "findings-traffic",
)  # fmt: skip
ACTIONS = ("check-perturbation", "check-norms", "import", "docs", "queue")
WHAT = (*TABLES, *FIGURES, *SHOWN, *ACTIONS)
DRAWN = (*FIGURES, "figure-traffic", "check-perturbation")
TAKE_PATHS = ("import", "docs", "check-norms")
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
    from fedpurin.files import check_writable
    from fedpurin.report.extras import need_matplotlib
    from fedpurin.reproduce.execute import Means

    source, means = build_source(args), Means(console, args.workers, args.data_dir)
    if args.paths and args.what not in TAKE_PATHS:
        raise ConfigError(f"reproduce {args.what} takes no paths, but got {' '.join(args.paths)}")
    if args.what == "import" or (args.what == "check-norms" and args.paths):
        return _import(args, source, means)
    if args.what == "docs":
        return _docs(args, means)
    if args.what == "queue":
        return _queue(args, source, means)
    if args.what in DRAWN:
        need_matplotlib()
    if args.out or args.what in DRAWN:
        check_writable(_output(args) / args.what)
    if not args.no_run and not _make(args, source, means):
        return 0
    return _show(args, source, means)


def _output(args: argparse.Namespace) -> Path:
    return Path(args.out or "reproduction")


def build_source(args: argparse.Namespace) -> Source:
    from fedpurin.reproduce.published import Paper
    from fedpurin.reproduce.result_store import ResultStore
    from fedpurin.reproduce.scales import Request
    from fedpurin.reproduce.source import Source
    from fedpurin.settings import parse_sets

    request = Request(
        scale=args.scale,
        datasets=tuple(_list(args.dataset)),
        alphas=tuple(_numbers(args.alpha, "--alpha")),
        methods=tuple(_methods(args.method)),
        seeds=tuple(int(s) for s in _numbers(args.seeds, "--seeds")),
        rounds=args.rounds,
        changes=parse_sets(args.set),
        levels=tuple(_numbers(args.levels, "--levels")),
    )
    return Source(ResultStore(experiments_folder(args.experiments) / "results"), Paper.load(), request)


def experiments_folder(named: str | None) -> Path:
    """--experiments, else ./experiments where there is one, else ./reproduction."""
    if named:
        return Path(named)
    return Path("experiments") if Path("experiments").is_dir() else Path("reproduction")


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _numbers(text: str | None, flag: str) -> list[float]:
    try:
        return [float(part) for part in _list(text)]
    except ValueError:
        raise ConfigError(f"{flag} {text!r} should be numbers separated by commas") from None


def _methods(text: str | None) -> list[str]:
    from fedpurin.methods import method_names

    names = [name.lower() for name in _list(text)]
    for name in names:
        if name not in method_names():
            raise ConfigError(f"--method {name!r} is unknown; choose among {', '.join(method_names())}")
    return names


def _make(args: argparse.Namespace, source: Source, means: Means) -> bool:
    """Run what is missing. False when only the plan was wanted."""
    from fedpurin.reproduce.execute import execute, plan, show_plan
    from fedpurin.reproduce.recipes import RECIPES

    if args.what == "check-perturbation":
        return _check_perturbation(args, source, means)
    if args.what not in RECIPES:
        return True  # these only read
    cells = RECIPES[args.what].cells(source.request)
    extra = {"figure-coverage": "coverage", "check-norms": "norms"}.get(args.what, "")
    steps = plan(cells, source.store, Path(args.runs), args.workers, extra)
    show_plan(steps, len({cell.key for cell in cells}), means)
    if args.dry_run:
        return False
    execute(steps, source.store, means, extra)
    return True


def _check_perturbation(args: argparse.Namespace, source: Source, means: Means) -> bool:
    from fedpurin.reproduce.execute import clock, estimate

    usual = "fashion-mnist-mini" if args.scale == "mini" else "cifar-10"
    dataset, alpha = next(iter(source.request.datasets), usual), next(iter(source.request.alphas), 0.5)
    rounds, clients = source.request.rounds or 1, 2
    config = source.request.config(dataset, alpha, next(iter(source.request.seeds), 1), "fedpurin")
    config = config.updated({"run": {"rounds": rounds}, "data": {"dir": args.data_dir}})
    stored = source.store.get("perturbation", config)
    if stored is not None and "lock_in" in stored:  # lines of an earlier version lack the lower half
        means.say("in the store already")
        return True
    share = clients / config.run.clients * (1 + 25 / config.train.epochs / rounds)
    seconds = estimate(config, 0, source.store, 1) * share
    means.say(
        f"{clients} clients train alone for {rounds} x {config.train.epochs} epochs: about {clock(seconds)}"
    )
    if args.dry_run:
        return False
    from fedpurin.reproduce.perturbation import check_perturbation

    source.store.append("perturbation", check_perturbation(config, clients, means.say))
    return True


def _show(args: argparse.Namespace, source: Source, means: Means) -> int:
    from fedpurin.files import write_atomic
    from fedpurin.reproduce.render import figures, tables

    for number, table in enumerate(tables(args.what, source), start=1):
        means.say(table.markdown())
        if args.out:
            folder = _output(args)
            folder.mkdir(parents=True, exist_ok=True)
            name = args.what + (f"-{number}" if number > 1 else "")
            write_atomic(folder / f"{name}.md", table.markdown())
            write_atomic(folder / f"{name}.tex", table.latex())
            means.say(f"wrote {folder / name}.md and .tex")
    if args.what in DRAWN:
        files = figures(args.what, source, _output(args))
        means.say("\n".join(f"wrote {file}" for file in files) or "nothing to draw yet")
    return 0


def _import(args: argparse.Namespace, source: Source, means: Means) -> int:
    from fedpurin.reproduce.execute import add_run
    from fedpurin.runs.run import find_runs

    refused = 0
    extras = ["coverage"] * args.coverage + ["norms"] * (args.what == "check-norms")
    for path in find_runs([Path(p) for p in args.paths]):
        try:
            key = add_run(source.store, path, partial=args.partial, extras=extras, data_dir=args.data_dir)
        except RunError as problem:  # one unfinished run must not keep the others out
            means.say(str(problem))
            refused += 1
            continue
        means.say(f"{path}: {'added as ' + key if key else 'in the store already'}")
    return 1 if refused else 0


def _docs(args: argparse.Namespace, means: Means) -> int:
    from fedpurin.reproduce.docs import update

    if not args.paths:
        raise ConfigError("reproduce docs needs at least one Markdown file, e.g. docs/reproduction.md")
    stale = 0
    for path in args.paths:
        current = update(Path(path), lambda words: block(words, args.experiments), check=args.check)
        stale += not current
        text = "up to date" if current else "out of date" if args.check else "updated"
        means.say(f"{path}: {text}")
    return 1 if args.check and stale else 0


def _queue(args: argparse.Namespace, source: Source, means: Means) -> int:
    from fedpurin.reproduce import queue as queues
    from fedpurin.reproduce.docs import update
    from fedpurin.reproduce.render import figures

    folder = experiments_folder(args.experiments)
    queue = queues.Queue.load(folder)
    if args.dry_run:
        queues.show(queue, queue.steps(source.store, Path(args.runs), args.workers), means)
        return 0

    def draw(words: list[str], out: Path) -> None:
        wanted = _parse(words, str(folder))
        figures(wanted.what, build_source(wanted), out)

    def renew(file: Path) -> None:
        update(file, lambda words: block(words, str(folder)), check=False)
        means.say(f"{file}: made anew")

    if not args.commit:
        queues.show(queue, queue.steps(source.store, Path(args.runs), args.workers), means)
        news = queues.work(queue, source.store, Path(args.runs), means, args.minutes)
        if not news:
            return 0
    queues.regenerate(queue, draw, renew)
    if args.commit:
        means.say(queues.commit(queue))
    return 0


def _parse(words: list[str], experiments: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="reproduce", add_help=False)
    add_arguments(parser)
    args = parser.parse_args(words)
    args.experiments = experiments
    return args


def block(words: list[str], experiments: str | None) -> str:
    """The Markdown of one block in a document, from its command line."""
    from fedpurin.reproduce.render import tables

    args = _parse(words, experiments)
    shown = tables(args.what, build_source(args))
    return "\n" + "\n".join(table.markdown() for table in shown) + "\n"
