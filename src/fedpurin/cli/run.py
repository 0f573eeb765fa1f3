"""fedpurin run | compare | resume"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpurin.cli.common import add_command, add_config_flags, make_console, read_config
from fedpurin.config import METHOD_NAMES, Config
from fedpurin.errors import ConfigError, RunError

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130
COMPARISON = "compare.json"


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
    compare.add_argument("--methods", metavar="A,B,C", default="fedpurin,fedavg,separate", help="or: all")
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
    resume.set_defaults(function=resume_one)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="RUN", help="directory of the results (default: a new one in runs/)")
    parser.add_argument("--tensorboard", action="store_true", help="write TensorBoard event files too")


def run_one(args: argparse.Namespace) -> int:
    config = read_config(args)
    _check_tensorboard(config, args.tensorboard)
    from fedpurin.runs import default_path

    path = Path(args.out) if args.out else default_path(config)
    if (path / "config.toml").exists():
        raise RunError(
            f"{path} holds a run already; continue it with: fedpurin resume {path}, or choose --out"
        )
    return _run_and_show(config, path, make_console(), args.tensorboard)


def _run_and_show(config: Config, path: Path, console: Console, tensorboard: bool) -> int:
    from fedpurin.cli.execute import execute
    from fedpurin.cli.tables import results_table

    try:
        execute(config, path, console, tensorboard=tensorboard)
    except KeyboardInterrupt:
        console.print(f"stopped; finished rounds are kept. Continue with: fedpurin resume {path}")
        return INTERRUPTED
    console.print(results_table([path]))
    console.print(f"The run is in {path}\nSee it with: fedpurin report {path} -o report.html")
    return 0


def resume_one(args: argparse.Namespace) -> int:
    path = Path(args.run)
    if (path / COMPARISON).is_file():
        return _resume_comparison(path, args.tensorboard)
    from fedpurin.runs import stored_config

    if (path / "result.json").exists():
        raise RunError(f"{path} is complete; show it with: fedpurin show {path}")
    config = stored_config(path)
    _check_tensorboard(config, args.tensorboard)
    return _run_and_show(config, path, make_console(), args.tensorboard)


def compare_many(args: argparse.Namespace) -> int:
    config = read_config(args)
    methods = list(METHOD_NAMES) if args.methods == "all" else [m.strip() for m in args.methods.split(",")]
    for method in methods:
        config.updated({"run": {"method": method}})  # refuses an unknown one before anything runs
    try:
        seeds = [int(seed) for seed in args.seeds.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds {args.seeds!r} should be whole numbers, e.g. 1,2,3") from None
    for seed in seeds:
        config.updated({"run": {"seed": seed}})
    _check_tensorboard(config, args.tensorboard)
    _check_runnable(config)
    path = Path(args.out) if args.out else _new_folder(Path("runs/compare"))
    plan = {"methods": methods, "seeds": seeds, "config": config.as_dict()}
    _claim(path, plan)
    return _compare(path, plan, make_console(), args.tensorboard, args.report)


def _check_tensorboard(config: Config, wanted: bool) -> None:
    if wanted and config.run.engine == "flower":
        raise ConfigError("--tensorboard follows the engines local and ray; leave it out with flower")


def _check_runnable(config: Config) -> None:
    """Data and model are looked at before anything is written."""
    from fedpurin.job import Job

    job = Job.build(config)
    job.check_data()
    job.describe_layout()


def _claim(path: Path, plan: dict[str, Any]) -> None:
    from fedpurin.files import write_atomic

    try:
        path.mkdir(parents=True, exist_ok=True)
        if (path / COMPARISON).exists():
            if json.loads((path / COMPARISON).read_text()) != plan:
                raise RunError(f"{path} holds another comparison; choose another --out")
        elif any(path.iterdir()):
            raise RunError(f"{path} is not empty and no comparison; choose another --out")
        write_atomic(path / COMPARISON, json.dumps(plan))
    except OSError as problem:
        raise RunError(f"cannot write to {path}: {problem.strerror}") from problem


def _resume_comparison(path: Path, tensorboard: bool) -> int:
    try:
        plan = json.loads((path / COMPARISON).read_text())
    except ValueError as problem:
        raise RunError(f"{path / COMPARISON} is damaged ({problem}); start the comparison anew") from problem
    _check_tensorboard(Config().updated(plan["config"]), tensorboard)
    return _compare(path, plan, make_console(), tensorboard, None)


def _compare(
    path: Path, plan: dict[str, Any], console: Console, tensorboard: bool, report: str | None
) -> int:
    from fedpurin.cli.execute import execute
    from fedpurin.cli.tables import results_table
    from fedpurin.methods import METHODS

    base = Config().updated(plan["config"])
    folders = []
    try:
        for seed in plan["seeds"]:
            for method in plan["methods"]:
                folder = path / f"{method}-s{seed}"
                folders.append(folder)
                if (folder / "result.json").exists():
                    continue
                config = replace(base, run=replace(base.run, method=method, seed=seed))
                name = METHODS[method].label + (f" s{seed}" if len(plan["seeds"]) > 1 else "")
                execute(config, folder, console, name=name, tensorboard=tensorboard)
    except KeyboardInterrupt:
        console.print(f"stopped; finished rounds are kept. Continue with: fedpurin resume {path}")
        return INTERRUPTED
    console.print(results_table(folders))
    if report:
        from fedpurin.report.page import write_report

        console.print(f"The report is in {write_report([path], Path(report))}")
    console.print(f"The runs are in {path}")
    return 0


def _new_folder(path: Path) -> Path:
    candidate, number = path, 2
    while candidate.exists():
        candidate, number = path.with_name(f"{path.name}-{number}"), number + 1
    return candidate
