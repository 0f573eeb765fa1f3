"""fedpurin run | compare | resume | methods"""

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
    path,
    print_json,
    read_config,
)
from fedpurin.errors import ConfigError, RunError
from fedpurin.shell import command

if TYPE_CHECKING:
    from fedpurin.comparing import Plan
    from fedpurin.config import Config
    from fedpurin.engines.driver import Watcher


def add_commands(commands: Any) -> None:
    run = add_command(commands, "run", run_one, "run --preset paper-cifar10 --alpha 0.5 --data-dir DATA")
    add_config_flags(run)
    _add_output(run)

    example = "compare --methods fedpurin,fedavg,separate --seeds 1,2,3"
    compare = add_command(commands, "compare", compare_many, example)
    add_config_flags(compare, without=("method", "seed"))
    usual = "separate,fedavg,fedpurin,fedfrugal"
    compare.add_argument("--methods", metavar="A,B,C", default=usual, help=f"or: all (default: {usual})")
    compare.add_argument("--seeds", metavar="1,2,3", default="1")
    compare.add_argument("--report", metavar="FILE", type=path, help="write an HTML report at the end")
    _add_output(compare)

    resume = add_command(commands, "resume", resume_one, "resume runs/compare")
    resume.add_argument("run", metavar="RUN", type=Path)
    _add_shown(resume)

    methods = add_command(commands, "methods", list_methods, "methods fedpurin")
    methods.add_argument("names", nargs="*", metavar="METHOD", help="only these (default: all)")
    add_json(methods)


def _add_output(parser: argparse.ArgumentParser) -> None:
    out = "directory of the results (default: a new one in runs/)"
    parser.add_argument("--out", metavar="RUN", type=path, help=out)
    _add_shown(parser)


def _add_shown(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tensorboard", action="store_true", help="write TensorBoard event files too")
    add_json(parser)


def run_one(args: argparse.Namespace) -> int:
    """Run one method."""
    from fedpurin.runs.places import default_path

    config = read_config(args)
    out = args.out or default_path(config)
    if (out / "config.toml").exists():
        raise RunError(
            f"{out} holds a run already; continue it with: {command('resume', out)}, or choose --out"
        )
    return _one(out, args, config)


def _one(out: Path, args: argparse.Namespace, config: Config | None) -> int:
    """A new run, or with no configuration the rest of one that stopped half-way."""
    from fedpurin import api
    from fedpurin.cli.progress import watching
    from fedpurin.cli.show import as_document, results_table
    from fedpurin.runs.directory import stored_config

    console = make_console(stderr=args.json)
    with watching(console, out, tensorboard=args.tensorboard) as watcher:
        if config is None:
            api.resume(out, watcher(stored_config(out)))
        else:
            api.run(config, out, watcher(config))
    if args.json:
        print_json(as_document([out])[0])
        return 0
    console.print(results_table([out]))
    see = command("report", out, "-o", "report.html")
    console.print(f"The run is in {out}\nSee it with: {see}")
    return 0


def resume_one(args: argparse.Namespace) -> int:
    """Continue a run or a comparison that stopped half-way."""
    from fedpurin.comparing import COMPARISON, Plan

    if (args.run / COMPARISON).is_file():
        return _compare(Plan.read(args.run), args.run, args)
    return _one(args.run, args, None)


def compare_many(args: argparse.Namespace) -> int:
    """Run several methods and seeds and compare them."""
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

        check_report(args.report)
    return _compare(Plan(configs, seeds), args.out or unused(Path("runs/compare")), args, args.report)


def _compare(plan: Plan, out: Path, args: argparse.Namespace, report: Path | None = None) -> int:
    from fedpurin.cli.progress import watching
    from fedpurin.cli.show import as_document, results_table
    from fedpurin.comparing import compare_plan

    console = make_console(stderr=args.json)
    with watching(console, out, tensorboard=args.tensorboard) as watcher:

        def named(config: Config) -> Watcher:
            seed = f" s{config.run.seed}" if len(plan.seeds) > 1 else ""
            return watcher(config, config.method.label + seed)

        paths = [run.path for run in compare_plan(plan, out, named)]
    if not args.json:
        console.print(results_table(paths))
    if report:
        from fedpurin.report.page import write_report

        console.print(f"The report is in {write_report([out], report)}")
    console.print(f"The runs are in {out}")
    if args.json:
        print_json(as_document(paths))
    return 0


def list_methods(args: argparse.Namespace) -> int:
    """List the methods and their settings."""
    from fedpurin.methods import method_names

    described = {name: _described(name) for name in args.names or method_names()}
    if args.json:
        print_json(described)
        return 0
    console = make_console()
    for name, method in described.items():
        console.print(name, style="bold", end="  ")
        console.print(method["about"])
        for key, about in method["settings"].items():
            console.print(f"    method.{key:16} {about['help']} (default: {about['default']})")
    console.print("Set them with --set method.KEY=VALUE, or in [method] of a configuration.")
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
