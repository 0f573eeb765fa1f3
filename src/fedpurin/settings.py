"""Settings as dataclass fields: help text, limits, conversion from text. Sections and methods share this."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fedpurin.errors import ConfigError

LARGEST = 2**53 - 1  # larger whole numbers are counts of nothing, and floats do not hold them exactly


def setting(default: Any, help: str, **limits: Any) -> Any:
    """A field with its help text and its limits: above, least, most, or choices.

    `before`: what it counts as in files that are older than the setting, or its default; without it, the
    default.
    """
    return field(default=default, metadata={"help": help, **limits})


def old_values(kind: type) -> dict[str, Any]:
    """The settings of which old files that do not hold them mean something else than the default."""
    return {f.name: f.metadata["before"] for f in fields(kind) if "before" in f.metadata}


@cache
def hints(kind: type) -> dict[str, Any]:
    """The types of a dataclass's settings, resolved once: that is slow."""
    resolved = get_type_hints(kind)
    return {f.name: resolved[f.name] for f in fields(kind)}


def names_of(kind: type) -> list[str]:
    return [f.name for f in fields(kind)]


def help_of(kind: type, name: str) -> str:
    return str(next(f.metadata.get("help", "") for f in fields(kind) if f.name == name))


@cache
def choices_of(kind: type, name: str) -> tuple[Any, ...]:
    """The values that a setting may have; () where they are not listed."""
    hint = hints(kind)[name]
    listed = next(f.metadata.get("choices", ()) for f in fields(kind) if f.name == name)
    return get_args(hint) if get_origin(hint) is Literal else tuple(listed)


def parse_sets(words: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What --set says: from SECTION.KEY=VALUE to {section: {key: text}}."""
    table: dict[str, dict[str, Any]] = {}
    for word in words:
        target, equals, value = word.partition("=")
        section, dot, key = target.partition(".")
        if not equals or not dot:
            raise ConfigError(f"--set {word!r} should read SECTION.KEY=VALUE, e.g. --set train.lr=0.05")
        table.setdefault(section, {})[key] = value
    return table


def converted(section: str, kind: type, values: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """The values as the types of their settings. `whose` names who accepts them: [run], fedavg, ..."""
    accepted = names_of(kind)
    for key in values:
        if key not in accepted:
            choices = f"accepts {', '.join(sorted(accepted))}" if accepted else "has no settings"
            raise ConfigError(f"unknown setting {section}.{key}; {whose} {choices}")
    return {key: convert(f"{section}.{key}", value, hints(kind)[key]) for key, value in values.items()}


def convert(name: str, value: Any, hint: Any) -> Any:
    """The value as the type of the setting; text (from flags) is parsed."""
    try:
        if hint is bool:
            return {"true": True, "false": False}[str(value).lower()]
        if hint in (int, float):
            broken = isinstance(value, float) and not value.is_integer()
            if isinstance(value, bool) or (hint is int and broken):
                raise ValueError
            return hint(value)
        if get_origin(hint) is tuple:
            items = value.strip("[]").split(",") if isinstance(value, str) else value
            member = get_args(hint)[0]
            return tuple(member(str(item).strip()) for item in items if str(item).strip())
    except (KeyError, TypeError, ValueError, OverflowError):
        kinds = {bool: "true or false", int: "a whole number", float: "a number"}
        raise ConfigError(f"{name} must be {kinds.get(hint, 'a list')}, not {value!r}") from None
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be text, not {value!r}")
    if "\0" in value:
        raise ConfigError(f"{name} = {value!r} has a NUL in it, which no name or path can have; take it out")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # as bytes of an argument that are no UTF-8 become
            raise ConfigError(f"{name} = {value!r} is not UTF-8, as all settings must be") from None
    return value


def check_limits(section: str, values: Any) -> None:
    """Every setting of a dataclass is among its choices and within its limits."""
    kind: type = type(values)
    for f in fields(values):
        name, value = f"{section}.{f.name}", getattr(values, f.name)
        choices = choices_of(kind, f.name)
        if choices and value not in choices:
            raise ConfigError(f"{name} = {value!r} is unknown; choose one of {', '.join(map(str, choices))}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name} = {value} is not a finite number")
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int) and abs(number) > LARGEST:
                bound = f"at most {LARGEST}" if number > 0 else f"at least {-LARGEST}"
                raise ConfigError(f"{name} = {number} must be {bound}")
        limits = f.metadata
        up_to = f" and at most {limits['most']}" if "most" in limits else ""
        if "above" in limits and not value > limits["above"]:
            raise ConfigError(f"{name} = {value} must be greater than {limits['above']}{up_to}")
        if "least" in limits and value < limits["least"]:
            raise ConfigError(f"{name} = {value} must be at least {limits['least']}{up_to}")
        if "most" in limits and value > limits["most"]:
            raise ConfigError(f"{name} = {value} must be at most {limits['most']}")


def plain(values: Any) -> dict[str, Any]:
    """A dataclass's settings for TOML and JSON."""
    table = {f.name: getattr(values, f.name) for f in fields(values)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in table.items()}
