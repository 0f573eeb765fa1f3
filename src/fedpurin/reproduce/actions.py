"""`fedpurin reproduce WHAT`: plan, run what the store lacks, print tables and draw figures."""

from __future__ import annotations

import argparse
import math
import shlex
from pathlib import Path
from typing import Any, NoReturn

from fedpurin.errors import ConfigError, RunError
from fedpurin.files import check_writable, write_atomic
from fedpurin.methods import method_names
from fedpurin.report.extras import need_matplotlib
from fedpurin.reproduce import queue as queues
from fedpurin.reproduce.command import FIGURES, add_arguments
from fedpurin.reproduce.docs import update
from fedpurin.reproduce.execute import Means, add_run, clock, estimate, execute, plan, show_plan
from fedpurin.reproduce.perturbation import CLOCK, check_perturbation
from fedpurin.reproduce.recipes import RECIPES
from fedpurin.reproduce.render import figures, tables
from fedpurin.reproduce.result_store import ResultStore
from fedpurin.reproduce.scales import Request
from fedpurin.reproduce.source import Paper, Source
from fedpurin.runs.run import find_runs
from fedpurin.settings import parse_sets

DRAWN = (*FIGURES, "figure-traffic", "check-perturbation")
TAKE_PATHS = ("import", "docs", "check-norms")


def act(args: argparse.Namespace, console: Any) -> int:
    """The whole command. Returns the exit code."""
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
    _check_numbers(args)
    request = Request(
        scale=args.scale,
        datasets=tuple(_list(args.dataset)),
        alphas=tuple(_numbers(args.alpha, "--alpha")),
        methods=tuple(_methods(args.method)),
        seeds=tuple(_whole_numbers(args.seeds, "--seeds")),
        rounds=args.rounds,
        changes=parse_sets(args.set),
        levels=tuple(_numbers(args.levels, "--levels")),
    )
    return Source(ResultStore(experiments_folder(args.experiments) / "results"), Paper.load(), request)


def experiments_folder(named: str | None) -> Path:
    """--experiments, else ./experiments where there is one, else ./reproduction."""
    return Path(named or ("experiments" if Path("experiments").is_dir() else "reproduction"))


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _numbers(text: str | None, flag: str) -> list[float]:
    try:
        numbers = [float(part) for part in _list(text)]
    except ValueError:
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)):
        raise ConfigError(f"{flag} {text!r} should be numbers separated by commas")
    return numbers


def _whole_numbers(text: str | None, flag: str) -> list[int]:
    try:
        return [int(part) for part in _list(text)]
    except ValueError:
        raise ConfigError(f"{flag} {text!r} should be whole numbers separated by commas") from None


def _check_numbers(args: argparse.Namespace) -> None:
    if args.rounds is not None and args.rounds < 1:
        raise ConfigError(f"--rounds {args.rounds} should be 1 or more")
    if args.workers < 0:
        raise ConfigError(f"--workers {args.workers} should be 1 or more, or 0 for one per core")
    if args.minutes is not None and not args.minutes >= 0:
        raise ConfigError(f"--minutes {args.minutes} should be 0 or more")


def _methods(text: str | None) -> list[str]:
    names = [name.lower() for name in _list(text)]
    for name in names:
        if name not in method_names():
            raise ConfigError(f"--method {name!r} is unknown; choose among {', '.join(method_names())}")
    return names


def _make(args: argparse.Namespace, source: Source, means: Means) -> bool:
    """Run what is missing. False when only the plan was wanted."""
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
    usual = "fashion-mnist-mini" if args.scale == "mini" else "cifar-10"
    dataset, alpha = next(iter(source.request.datasets), usual), next(iter(source.request.alphas), 0.5)
    rounds, clients = source.request.rounds or 1, 2
    config = source.request.config(dataset, alpha, next(iter(source.request.seeds), 1), "fedpurin")
    config = config.updated({"run": {"rounds": rounds}, "data": {"dir": args.data_dir}})
    stored = source.store.get("perturbation", config)
    if stored is not None and stored.get("clock") == CLOCK:  # an earlier version measured less, and worse
        means.say("in the store already")
        return True
    share = clients / config.run.clients * (1 + 25 / config.train.epochs / rounds)
    seconds = estimate(config, 0, source.store, 1) * share
    epochs = f"{rounds} x {config.train.epochs} epochs"
    means.say(f"{clients} clients train alone for {epochs}: about {clock(seconds)}")
    if args.dry_run:
        return False
    source.store.append("perturbation", check_perturbation(config, clients, means.say))
    return True


def _show(args: argparse.Namespace, source: Source, means: Means) -> int:
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
    folder, runs = experiments_folder(args.experiments), Path(args.runs)
    queue = queues.Queue.load(folder)
    for words in queue.figures:
        _asked(words, str(folder))  # refused before the hours of work, not after them
    if args.dry_run or not args.commit:
        queues.show(queue, queue.steps(source.store, runs, args.workers), means)
        if args.dry_run or not queues.work(queue, source.store, runs, means, args.minutes):
            return 0
    for words in queue.figures:
        figures(*_asked(words, str(folder)), queue.out)
    for file in queue.files:
        update(file, lambda words: block(words, str(folder)), check=False)
        means.say(f"{file}: made anew")
    if args.commit:
        means.say(queues.commit(queue))
    return 0


class _Words(argparse.ArgumentParser):
    """A command line that stands in a file; what is wrong with it is an error of that file."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def _asked(words: list[str], experiments: str | None) -> tuple[str, Source]:
    """What a command line within a document or the queue asks for, and from what it is made."""
    parser = _Words(prog="reproduce", add_help=False)
    add_arguments(parser)
    try:
        args = parser.parse_args(words)
        args.experiments = experiments
        return args.what, build_source(args)
    except ConfigError as problem:
        raise ConfigError(f"reproduce {shlex.join(words)}: {problem}") from None


def block(words: list[str], experiments: str | None) -> str:
    """The Markdown of one block in a document, from its command line."""
    return "\n" + "\n".join(table.markdown() for table in tables(*_asked(words, experiments))) + "\n"
