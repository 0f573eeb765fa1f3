"""fedpurin init: a commented configuration and a my_project.py to start from."""

from __future__ import annotations

import argparse
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from fedpurin.cli.common import add_command, make_console
from fedpurin.errors import RunError
from fedpurin.shell import word

TEMPLATE = Path(__file__).parent / "templates" / "my_project.txt"
FILES = ("my_project.py", "config.toml")

PROJECT: dict[str, dict[str, Any]] = {  # what is set; everything else is shown with its default
    "run": {"method": "fedpurin", "clients": 8, "rounds": 10},
    "data": {
        "dataset": "my_project:data",
        "partition": "classes",
        "classes_per_client": 2,
        "train_samples": 60,
        "test_samples": 100,
    },
    "model": {"name": "my_project:model"},
    "train": {"epochs": 3, "batch_size": 20, "lr": 0.05},
    "method": {"tau": 0.5, "beta": 5},
}

HEAD = """\
# Settings of fedpurin. A line that is commented out shows the value that counts without it.
# Flags win over this file:  fedpurin run config.toml --rounds 3 --set train.lr=0.1
# fedpurin methods  lists the settings of every method; a setting that would do nothing is refused.

# preset = "quickstart"    # what this file starts from
"""


def add_commands(commands: Any) -> None:
    parser = add_command(commands, "init", write_project, "init mine")
    parser.add_argument("folder", nargs="?", default=".", type=Path, metavar="FOLDER", help="default: here")


def write_project(args: argparse.Namespace) -> int:
    """Write a commented configuration and a my_project.py to start from."""
    from fedpurin.files import write_atomic, writing

    folder = args.folder
    for name in FILES:
        if (folder / name).exists():
            raise RunError(f"{folder / name} is there already; choose another folder: fedpurin init FOLDER")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in zip(FILES, (TEMPLATE.read_text("utf-8"), configuration()), strict=True):
            write_atomic(folder / name, text)
    console = make_console()
    console.print(f"wrote {folder / 'my_project.py'}: your model and your data")
    console.print(f"wrote {folder / 'config.toml'}: every setting, with what it means")
    console.print("It runs as it is:")
    if folder != Path("."):
        console.print(f"  cd {word(folder)}")
    console.print("  fedpurin run config.toml")
    console.print("  fedpurin compare config.toml --methods separate,fedavg,fedpurin --out runs/first")
    return 0


def configuration() -> str:
    """The text of config.toml, made from the settings themselves."""
    from fedpurin.config import Config
    from fedpurin.sections import SECTIONS

    config = Config.preset("quickstart").updated(PROJECT)
    parts = [HEAD]
    for section in [*SECTIONS, "method"]:
        values = getattr(config, section)
        of = "" if section != "method" else f"    # of {config.method.label}; another method has others"
        parts.append(f"\n[{section}]{of}\n")
        for field in fields(values):
            is_set = field.name in PROJECT.get(section, {})
            parts.append(_setting(field, type(values), getattr(values, field.name), is_set))
    return "".join(parts)


def _setting(field: Field[Any], kind: type, value: Any, is_set: bool) -> str:
    """One line: the setting, commented out unless it is set, and what it means."""
    import tomli_w

    from fedpurin.settings import choices_of

    line = tomli_w.dumps({field.name: list(value) if isinstance(value, tuple) else value}).strip()
    means = str(field.metadata.get("help", ""))
    if choices := choices_of(kind, field.name):
        means += f"; one of {', '.join(map(str, choices))}"
    return f"{line if is_set else f'# {line}':<36}  # {means}\n"
