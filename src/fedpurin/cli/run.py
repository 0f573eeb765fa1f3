"""fedpurin run | compare | resume"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpurin.cli.common import (
    add_command,
    add_config_flags,
    add_json,
    make_console,
    named_method_settings,
    print_json,
    read_config,
)
from fedpurin.errors import ConfigError, RunError
from fedpurin.stopping import INTERRUPTED

if TYPE_CHECKING:
    from rich.console import Console

    from fedpurin.comparing import Plan
    from fedpurin.config import Config
    from fedpurin.engines.driver import Watcher


def add_commands(commands: Any) -> None:
    run = add_command(
        commands, "run", "run one method", "fedpurin run --preset paper-cifar10 --alpha 0.5 --data-dir DATA"
    )
    add_config_flags(run)
    _add_output(run)
    run.set_defaults(function=run_one)

    compare = add_command(
        commands,
        "compare",
        "run several methods and seeds and compare them",
        "fedpurin compare --methods fedpurin,fedavg,separate --seeds 1,2,3",
    )
    add_config_flags(compare, without=("method", "seed"))
    usual = "separate,fedavg,fedpurin,fedfrugal"
    compare.add_argument("--methods", metavar="A,B,C", default=usual, help=f"or: all (default: {usual})")
    compare.add_argument("--seeds", metavar="1,2,3", default="1")
    compare.add_argument("--report", metavar="FILE", help="write an HTML report at the end")
    _add_output(compare)
    compare.set_defaults(function=compare_many)

    resume = add_command(
        commands,
        "resume",
        "continue a run or a comparison that stopped half-way",
        "fedpurin resume runs/compare",
    )
    resume.add_argument("run", metavar="RUN")
    resume.add_argument("--tensorboard", action="store_true", help="write TensorBoard event files too")
    add_json(resume)
    resume.set_defaults(function=resume_one)

    methods = add_command(
        commands, "methods", "list the methods and their settings", "fedpurin methods fedpurin"
    )
    methods.add_argument("names", nargs="*", metavar="METHOD", help="only these (default: all)")
    add_json(methods)
    methods.set_defaults(function=list_methods)


def list_methods(args: argparse.Namespace) -> int:
    from fedpurin.methods import method_names

    described = {name: _described(name) for name in args.names or method_names()}
    if args.json:
        print_json(described)
        return 0
    console = make_console()
    for name, method in described.items():
        console.print(f"[bold]{name}[/bold]  {method['about']}")
        for key, about in method["settings"].items():
            console.print(f"    method.{key:16} {about['help']} (default: {about['default']})")
    console.print(r"Set them with --set method.KEY=VALUE, or in \[method] of a configuration.")
    return 0


def _described(name: str) -> dict[str, Any]:
    from dataclasses import fields

    from fedpurin.methods import find_method

    kind = find_method(name)
    about = (sys.modules[kind.__module__].__doc__ or "").strip().splitlines()
    settings = {f.name: {**f.metadata, "default": f.default} for f in fields(kind)}
    for setting in settings.values():
        setting.setdefault("help", "")
    return {"label": kind.label, "about": about[0] if about else kind.label, "settings": settings}


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="RUN", help="directory of the results (default: a new one in runs/)")
    parser.add_argument("--tensorboard", action="store_true", help="write TensorBoard event files too")
    add_json(parser)


def run_one(args: argparse.Namespace) -> int:
    from fedpurin.runs.directory import default_path

    config = read_config(args)
    path = Path(args.out) if args.out else default_path(config)
    if (path / "config.toml").exists():
        raise RunError(
            f"{path} holds a run already; continue it with: fedpurin resume {path}, or choose --out"
        )
    return _one(path, args, config)


def _one(path: Path, args: argparse.Namespace, config: Config | None) -> int:
    """A new run, or with no configuration the rest of one that stopped half-way."""
    from fedpurin import api
    from fedpurin.cli.show import as_document, results_table
    from fedpurin.cli.watching import watching
    from fedpurin.runs.directory import stored_config
    from fedpurin.stopping import stoppable

    console = make_console(stderr=args.json)
    try:
        with stoppable(), watching(console, tensorboard=args.tensorboard) as watcher:
            if config is None:
                api.resume(path, watcher(stored_config(path)))
            else:
                api.run(config, path, watcher(config))
    except KeyboardInterrupt:
        return _stopped(path, console)
    if args.json:
        print_json(as_document([path])[0])
        return 0
    console.print(results_table([path]))
    console.print(f"The run is in {path}\nSee it with: fedpurin report {path} -o report.html")
    return 0


def _stopped(path: Path, console: Console) -> int:
    console.print(f"stopped; finished rounds are kept. Continue with: fedpurin resume {path}")
    return INTERRUPTED


def resume_one(args: argparse.Namespace) -> int:
    from fedpurin.comparing import COMPARISON, Plan

    path = Path(args.run)
    if (path / COMPARISON).is_file():
        return _compare(Plan.read(path), path, args)
    return _one(path, args, None)


def compare_many(args: argparse.Namespace) -> int:
    from fedpurin.comparing import Plan, check_settings_are_used
    from fedpurin.files import unused
    from fedpurin.methods import METHODS

    methods = list(METHODS) if args.methods == "all" else [m.strip() for m in args.methods.split(",")]
    check_settings_are_used(list(named_method_settings(args)), methods)
    configs = {method: read_config(args, method) for method in methods}
    try:
        seeds = [int(seed) for seed in args.seeds.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds {args.seeds!r} should be whole numbers, e.g. 1,2,3") from None
    for config in configs.values():
        for seed in seeds:
            config.updated({"run": {"seed": seed}})
    if args.report:
        from fedpurin.report.page import check_report

        check_report(Path(args.report))
    path = Path(args.out) if args.out else unused(Path("runs/compare"))
    return _compare(Plan(configs, seeds), path, args, args.report)


def _compare(plan: Plan, path: Path, args: argparse.Namespace, report: str | None = None) -> int:
    from fedpurin.cli.show import as_document, results_table
    from fedpurin.cli.watching import watching
    from fedpurin.comparing import compare_plan
    from fedpurin.stopping import stoppable

    console = make_console(stderr=args.json)
    try:
        with stoppable(), watching(console, tensorboard=args.tensorboard) as watcher:

            def named(config: Config) -> Watcher:
                seed = f" s{config.run.seed}" if len(plan.seeds) > 1 else ""
                return watcher(config, config.method.label + seed)

            runs = compare_plan(plan, path, named)
    except KeyboardInterrupt:
        return _stopped(path, console)
    if not args.json:
        console.print(results_table([run.path for run in runs]))
    if report:
        from fedpurin.report.page import write_report

        console.print(f"The report is in {write_report([path], Path(report))}")
    console.print(f"The runs are in {path}")
    if args.json:
        print_json(as_document([run.path for run in runs]))
    return 0
