"""What several commands share: flags that make a configuration, and the console."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpurin.config import Config
from fedpurin.data.catalog import NAMES
from fedpurin.errors import ConfigError
from fedpurin.presets import PRESETS
from fedpurin.sections import ENGINES, SECTIONS, VALUES
from fedpurin.settings import help_of, names_of, parse_sets

if TYPE_CHECKING:
    from rich.console import Console

FLAGS = {  # flag -> where it goes
    "method": "run.method",
    "dataset": "data.dataset",
    "alpha": "data.alpha",
    "clients": "run.clients",
    "rounds": "run.rounds",
    "seed": "run.seed",
    "workers": "run.workers",
    "engine": "run.engine",
    "device": "run.device",
    "precision": "train.precision",
    "values": "wire.values",
    "data-dir": "data.dir",
    "model": "model.name",
    "tau": "method.tau",
    "beta": "method.beta",
    "participation": "run.participation",
}


def _methods() -> Iterable[str]:
    from fedpurin.methods import method_names  # brings torch, for whoever asks

    return method_names()


CHOICES: dict[str, Callable[[], Iterable[str]]] = {  # what a shell offers behind a flag
    "method": _methods,
    "dataset": lambda: NAMES,
    "engine": lambda: ENGINES,
    "device": lambda: ("auto", "cpu", "cuda", "mps"),
    "precision": lambda: ("float32", "bfloat16"),
    "values": lambda: VALUES,
    "model": lambda: ("resnet8", "resnet10", "cnn", "mlp"),
}


def complete(action: argparse.Action, choices: Callable[[], Iterable[str]] | None) -> None:
    """Offer these where a shell completes the argument; other values stay allowed."""
    if choices is not None:
        action.completer = lambda **_: list(choices())  # type: ignore[attr-defined]  # argcomplete's own


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, for programs")


def print_json(document: Any) -> None:
    print(json.dumps(document, indent=1, default=str, allow_nan=False))


def add_command(
    commands: Any, name: str, does: Callable[[argparse.Namespace], int] | str, example: str = ""
) -> Any:
    """A command, which says of itself what its function's docstring says; or a group, which says a text."""
    about = does if isinstance(does, str) else does.__doc__ or ""
    parser = commands.add_parser(
        name,
        help=about[:1].lower() + about[1:].removesuffix("."),
        description=about,
        epilog=f"Example:  fedpurin {example or name}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if callable(does):
        parser.set_defaults(function=does)
    return parser


def own_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """Those of the command itself, for a function whose parameters have the same names."""
    return {name: value for name, value in vars(args).items() if name not in ("command", "function")}


def path(text: str) -> Path | None:
    """An argument that is empty, as from a variable that is not set, counts as none."""
    return Path(text) if text else None


def add_config_flags(parser: argparse.ArgumentParser, *, without: tuple[str, ...] = ()) -> None:
    file = "settings; flags win over them"
    parser.add_argument("config", nargs="?", type=path, metavar="CONFIG.toml", help=file)
    presets = f"start from {', '.join(PRESETS)} (default: quickstart)"
    complete(parser.add_argument("--preset", metavar="P", help=presets), lambda: PRESETS)
    group = parser.add_argument_group("settings")
    for flag, target in FLAGS.items():
        if flag not in without:
            added = group.add_argument(f"--{flag}", metavar="X", dest=f"set:{target}", help=_help(target))
            complete(added, CHOICES.get(flag))
    group.add_argument(
        "--set", metavar="SECTION.KEY=X", action="append", default=[], dest="sets", help="any other setting"
    )


def _help(target: str) -> str:
    section, key = target.split(".")
    if section == "method":
        return "a setting of the method; fedpurin methods lists them"
    kind = SECTIONS[section]
    default = PRESETS["quickstart"].get(section, {}).get(key, getattr(kind(), key))
    return f"{help_of(kind, key)} (quickstart: {default})".replace("%", "%%")


def flag_settings(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What flags and --set say, as {section: {key: text}}."""
    table: dict[str, dict[str, Any]] = {}
    for name, value in vars(args).items():
        if name.startswith("set:") and value is not None:
            section, key = name.removeprefix("set:").split(".")
            table.setdefault(section, {})[key] = value
    for section, values in parse_sets(args.sets).items():
        table.setdefault(section, {}).update(values)
    return table


def named_method_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The settings of [method] that file and flags name."""
    named = Config.read_table(args.config) if args.config else {}
    return {**named.get("method", {}), **flag_settings(args).get("method", {})}


def read_config(args: argparse.Namespace, method: str | None = None) -> Config:
    """Preset, then file, then flags; --preset wins over a preset that the file names.

    For a `method` of a comparison only those method settings count that it has.
    """
    table, flags = Config.read_table(args.config) if args.config else {}, flag_settings(args)
    preset = table.pop("preset", None)
    config = Config.preset(args.preset or str(preset or "quickstart"))
    for part in (table, flags):
        if method is not None:
            from fedpurin.methods import find_method

            own = names_of(find_method(method))
            part["run"] = {**part.get("run", {}), "method": method}
            part["method"] = {k: v for k, v in part.get("method", {}).items() if k in own}
        config = config.updated(part)
    named = flags
    if args.config and not _is_whole(args.config, table):
        named = {section: table.get(section, {}) | flags.get(section, {}) for section in {*table, *flags}}
    refuse_idle(config, named)
    return config


def _is_whole(file: Path, table: dict[str, Any]) -> bool:
    """A configuration written by `Config.to_toml` names every setting, also those that do nothing."""
    of_a_run = (file.parent / "environment.json").is_file()
    return of_a_run or set(names_of(SECTIONS["data"])) <= set(table.get("data", {}))


def refuse_idle(config: Config, named: dict[str, dict[str, Any]]) -> None:
    """What was asked for and would do nothing is a mistake of whoever asks."""
    from fedpurin.runs.same_setting import flattened, unread

    idle = unread(flattened(config.as_dict()) | {"wire.values": config.value_type})
    if config.data.split_file:
        idle["run.clients"] = f"data.split_file = {config.data.split_file}"
    for section, values in named.items():
        for key in values:
            name = f"{section}.{key}"
            if name in idle and getattr(getattr(config, section), key) is not False:
                raise ConfigError(f"{name} does nothing with {idle[name]}; leave one of them out")


def make_console(*, stderr: bool = False) -> Console:
    """`stderr`: where a program reads stdout, people are told what happens beside it."""
    from fedpurin import console

    # Where output goes to a file or a pipe there is no screen to fit: tables keep their columns.
    width = None if console.is_terminal(stderr=stderr) else 130
    return console.make_console(soft_wrap=True, width=width, stderr=stderr)
