"""The configurations that a search tries: a list that a person can read, not a black box.

For every method there is its usual setting, every change of one of the settings below that it has, and such a
change together with int8 values. The method's own dataclass says what it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from fedpurin.config import Config
from fedpurin.errors import ConfigError
from fedpurin.methods import METHODS, AnyMethod, find_method
from fedpurin.runs.same_setting import method_label, setting_key
from fedpurin.settings import names_of, plain

ConfigTable = dict[str, dict[str, Any]]
YOURS = "as configured"
SHARES = ((0.02, 0.05), (0.05, 0.1), (0.1, 0.2), (0.25, 0.5))  # up, down
TAUS = (0.1, 0.25, 0.5)
VARIED = ("tau", "up", "down", "beta", "silent_after", "score")


@dataclass(frozen=True)
class Candidate:
    name: str  # of its folder
    label: str
    config: Config


def candidates(config: Config) -> tuple[list[Candidate], list[str]]:
    """The list, each method's usual setting before any variation; and what had to be left out, and why."""
    by_setting: dict[Any, Config] = {setting_key(config.as_dict()): config}
    left_out: list[str] = []
    in_waves: list[tuple[int, Config]] = []
    for name in _methods(config):
        for wave, table in _variations(config, name):
            try:
                in_waves.append((wave, _changed(config, table)))
            except ConfigError as problem:
                left_out.append(f"{method_label(name)} with {_told(table)}: {problem}")
    for _, variant in sorted(in_waves, key=lambda entry: entry[0]):
        by_setting.setdefault(setting_key(variant.as_dict()), variant)
    return _named(list(by_setting.values())), left_out


def _methods(config: Config) -> list[str]:
    """Training alone first, as the yardstick; then from the most frugal to the plainest, and one's own."""
    named = sorted(METHODS, key=lambda name: (name != "separate", -METHODS[name].order))
    own = config.run.method
    return named if own in named else [own, *named]


def _variations(config: Config, name: str) -> Iterator[tuple[int, ConfigTable]]:
    """Changes to the configuration, and in which wave they come."""
    base: ConfigTable = {"run": {"method": name}}
    yield 0, base
    sends = name != "separate"
    if sends:
        yield 1, base | {"wire": {"values": "int8"}}
    for change in _changes(find_method(name), config.run.rounds):
        yield 1, base | {"method": change}
        if sends:
            yield 2, base | {"method": change, "wire": {"values": "int8"}}


def _changed(config: Config, table: ConfigTable) -> Config:
    """Another method starts from its own usual settings; whatever the configured one has stays with it."""
    kind = find_method(table["run"]["method"])
    if kind is type(config.method):
        return config.updated(table)
    usual = plain(kind(**config.usual_of(kind)))
    return config.updated(table | {"method": usual | table.get("method", {})})


def _changes(kind: type[AnyMethod], rounds: int) -> Iterator[dict[str, Any]]:
    """One setting of the method at a time."""
    own = names_of(kind)
    if "tau" in own:
        yield from ({"tau": tau} for tau in TAUS)
    if "up" in own and "down" in own:
        yield from ({"up": up, "down": down} for up, down in SHARES)
    half = max(1, rounds // 2)
    if "beta" in own:
        yield from ({"beta": beta} for beta in (1, half))
    if "silent_after" in own:
        yield {"silent_after": half}
    types: dict[str, Any] = get_type_hints(kind)
    if "curvature" in get_args(types.get("score")):
        yield {"score": "curvature"}


def _named(configs: list[Config]) -> list[Candidate]:
    """Labels name what is not usual for the method."""
    named: list[Candidate] = []
    for i, config in enumerate(configs):
        kind = type(config.method)
        own, usual = plain(config.method), plain(kind(**config.usual_of(kind)))
        changed = [
            f"{name.replace('_', ' ')} {own[name]}"
            for name in VARIED
            if name in own and own[name] != usual[name]
        ]
        if config.value_type != config.method.value_type:
            changed.append(config.value_type)
        label = config.method.label + (f" ({', '.join(changed)})" if changed else "")
        short = kind.name or kind.__name__.lower()
        named.append(Candidate(f"{i + 1:02d}-{short}", label + (f", {YOURS}" if i == 0 else ""), config))
    return named


def _told(table: ConfigTable) -> str:
    changes = table.get("method", {}) | table.get("wire", {})
    return ", ".join(f"{key} {value}" for key, value in changes.items()) or "its usual settings"


def never_varied(tried: list[Config]) -> list[str]:
    """What the search leaves as it is, method by method and for training."""
    lines = []
    for kind in dict.fromkeys(type(config.method) for config in tried):
        fixed = [name for name in names_of(kind) if name not in VARIED]
        if fixed:
            lines.append(f"{kind.label}: other values of {', '.join(fixed)}")
    return [
        *lines,
        f"tau beyond {_list(TAUS)}; shares beyond {_list(SHARES)} up and down; beta other than 1 and half of "
        "the rounds; silence after another round than half; scores other than the usual one and curvature; "
        "float16 and bfloat16 values; several of these changes at once",
        "training: epochs, batch size, learning rate, momentum, weight decay; the model; participation",
        "other seeds: one split, one initial model, one order of samples",
    ]


def _list(values: tuple[Any, ...]) -> str:
    return ", ".join(" / ".join(map(str, v)) if isinstance(v, tuple) else str(v) for v in values)
