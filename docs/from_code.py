"""Markdown that is made when the site is built: help of the commands, settings and methods."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from fedpurin.cli.main import build_parser
from fedpurin.methods import METHODS
from fedpurin.presets import PRESETS
from fedpurin.sections import SECTIONS
from fedpurin.settings import choices_of, hints


def commands() -> str:
    """A section per command, with its help."""
    os.environ["COLUMNS"] = "96"
    return "\n".join(_commands(build_parser()))


def _commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                title = below.prog
                yield f"{'#' * len(title.split())} {title}\n\n```text\n{below.format_help().strip()}\n```\n"
                yield from _commands(below)


def settings() -> str:
    """A table per section of a configuration, and the presets."""
    parts = [f"## [{name}]\n\n{_table(kind, name)}\n" for name, kind in SECTIONS.items()]
    parts.append(
        "## [method]\n\nThe settings of the method that `run.method` names: [Methods](methods.md).\n"
    )
    parts.append("## Presets\n")
    for name, table in PRESETS.items():
        told = [
            f"`{section}.{key} = {value}`"
            for section, values in table.items()
            for key, value in values.items()
        ]
        parts.append(f"- **{name}**: {', '.join(told)}")
    return "\n".join(parts)


def methods() -> str:
    """Each method: what its file says, and its settings."""
    parts = []
    for name, kind in METHODS.items():
        told = (sys.modules[kind.__module__].__doc__ or "").strip()
        first, _, rest = told.partition("\n")
        parts.append(
            f"## {kind.label}\n\n`--method {name}`. {first.partition(': ')[2].capitalize() or first}\n"
        )
        if rest.strip():
            parts.append(f"```text\n{rest.strip(chr(10))}\n```\n")
        parts.append((_table(kind, "method") if fields(kind) else "It has no settings.") + "\n")
    return "\n".join(parts)


def _table(kind: Any, section: str) -> str:
    rows = ["| setting | default | values | what it is |", "|---|---|---|---|"]
    for field in fields(kind):
        hint = hints(kind)[field.name]
        help = str(field.metadata.get("help", "")).replace("|", "\\|")
        default = f"`{field.default}`" if field.default not in ("", ()) else "-"
        values = _values(hint, field.metadata, choices_of(kind, field.name))
        rows.append(f"| `{section}.{field.name}` | {default} | {values} | {help} |")
    return "\n".join(rows)


def _values(hint: Any, limits: Any, choices: tuple[Any, ...]) -> str:
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    if hint is bool:
        return "`true`, `false`"
    name = {int: "whole number", float: "number", str: "text"}.get(hint, "list")
    words = (("above", ">"), ("least", "≥"), ("most", "≤"))
    said = [f"{word} {limits[key]}" for key, word in words if key in limits and limits[key] < 2**31]
    return " ".join([name, *said])


PAGES = {"reference/commands": commands, "reference/settings": settings, "reference/methods": methods}
MARK = "<!-- from code -->"
