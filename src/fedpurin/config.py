"""Typed, validated run configuration: TOML in, TOML out; unknown keys and bad values are errors.

[method] holds the settings of the method that run.method names, and only those: the method's own dataclass is
their schema. Methods need torch, so they load when the first configuration is made.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fedpurin import sections
from fedpurin.errors import ConfigError
from fedpurin.files import LARGEST_CONFIGURATION, read_bounded
from fedpurin.presets import PRESETS
from fedpurin.sections import DEFAULT_METHOD, ENGINES, SECTIONS
from fedpurin.settings import check_limits, converted, names_of, old_values, plain
from fedpurin.value_types import find_type

if TYPE_CHECKING:
    from fedpurin.methods import AnyMethod

USUAL = PRESETS["mini"]["method"]
PYTHON = "python"
"""In the place of a name: an object that the caller of `fedpurin.run` passed, and that no file knows."""


def parse(text: str, origin: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as problem:  # ValueError: also a number of 5,000 digits
        raise ConfigError(f"{origin} is not valid TOML: {problem}") from problem


def _method_class(name: str) -> type[AnyMethod]:
    from fedpurin.methods import find_method  # brings torch

    return find_method(name)


@dataclass(frozen=True)
class Config:
    run: sections.RunSection = sections.RunSection()
    data: sections.DataSection = sections.DataSection()
    model: sections.ModelSection = sections.ModelSection()
    train: sections.TrainSection = sections.TrainSection()
    wire: sections.WireSection = sections.WireSection()
    robust: sections.RobustSection = sections.RobustSection()
    method: AnyMethod = field(default_factory=lambda: _method_class(DEFAULT_METHOD)(**USUAL))
    usual: Mapping[str, Any] = field(default_factory=lambda: USUAL, compare=False, repr=False)
    """What the preset says of [method], for whichever methods have such a setting."""

    def __post_init__(self) -> None:
        for name in SECTIONS:
            check_limits(name, getattr(self, name))
        check_limits("method", self.method)
        if type(self.method) is not _method_class(self.run.method):
            raise ConfigError(
                f"run.method = {self.run.method!r}, but its settings are a {type(self.method).__name__}; "
                "change both with Config.updated({'run': {'method': ...}})"
            )
        if self.run.engine not in ENGINES and ":" not in self.run.engine:
            raise ConfigError(
                f"run.engine = {self.run.engine!r} is unknown; choose one of {', '.join(ENGINES)}, "
                "or package.module:Transport"
            )
        if not re.fullmatch(r"auto|(cpu|cuda|mps)(:\d{1,3})?", self.run.device):
            raise ConfigError(
                f"run.device = {self.run.device!r} is unknown; choose auto, cpu, cuda (or cuda:1) or mps"
            )
        if find_type(self.value_type).updates_only and not self.method.sends_updates:
            raise ConfigError(
                f"wire.values = {self.value_type!r} is for changes of weights, but {self.run.method} sends "
                "the weights themselves; choose int8 or auto, or a method that sends updates: fedfrugal"
            )
        if self.wire.feedback and self.method.sends_updates:
            raise ConfigError(
                f"wire.feedback = true does nothing with {self.run.method}, which keeps residuals of its own "
                "anyway; leave it false"
            )

        inside = self.method.ending().inside
        if inside and inside >= self.train.epochs:
            raise ConfigError(
                f"the last {inside} epochs are to be trained inside a mask, but train.epochs = "
                f"{self.train.epochs} leaves none before them to choose it by; raise it, or lower that number"
            )
        if self.robust.trim and not self.method.averages:
            raise ConfigError(
                f"robust.trim = {self.robust.trim} needs one mean over all clients, which {self.run.method} "
                "does not take; use robust.norm_bound, or a method that averages, such as fedavg or fedbn"
            )

    @classmethod
    def preset(cls, name: str) -> Config:
        if name not in PRESETS:
            raise ConfigError(f"unknown preset {name!r}; choose one of {', '.join(PRESETS)}")
        table = dict(PRESETS[name])
        usual = table.pop("method")
        method = _method_class(DEFAULT_METHOD)(**usual)
        return replace(cls(), usual=usual, method=method).updated(table)

    @classmethod
    def from_toml(cls, path: Path) -> Config:
        return cls._from_table(cls.read_table(path))

    @staticmethod
    def read_table(path: Path) -> dict[str, Any]:
        """The sections of a file as they stand there."""
        try:
            text = read_bounded(Path(path), LARGEST_CONFIGURATION).decode("utf-8-sig")  # as Windows saves it
            return parse(text, str(path))
        except (OSError, UnicodeDecodeError) as problem:
            raise ConfigError(f"cannot read the configuration {path}: {problem}") from problem

    @classmethod
    def from_text(cls, text: str, origin: str = "configuration") -> Config:
        return cls._from_table(parse(text, origin))

    @classmethod
    def _from_table(cls, table: dict[str, Any]) -> Config:
        preset = table.pop("preset", None)
        return (cls() if preset is None else cls.preset(str(preset))).updated(table)

    @classmethod
    def from_stored(cls, table: Mapping[str, Mapping[str, Any]]) -> Config:
        """A configuration that an earlier version wrote: settings of other methods are passed over, and those
        that it did not have are as they were then."""
        for section, values in table.items():
            if not isinstance(values, Mapping):
                raise ConfigError(f"[{section}] must be a table of settings, not {values!r}")
        named = {section: dict(values) for section, values in table.items()}
        run = converted("run", sections.RunSection, named.get("run", {}), "[run]")
        kind = _method_class(run.get("method", DEFAULT_METHOD))
        own = {k: v for k, v in named.get("method", {}).items() if k in names_of(kind)}
        named["method"] = old_values(kind) | own
        return cls().updated(named)

    def updated(self, table: Mapping[str, Any]) -> Config:
        """A copy with the values of {section: {key: value}}; what is unknown is refused.

        With another run.method, settings of the same name are kept, and the preset's usual ones apply.
        """
        changed: dict[str, Any] = {}
        for section, values in table.items():
            if section not in SECTIONS and section != "method":
                accepted = ", ".join([*SECTIONS, "method"])
                raise ConfigError(f"unknown section [{section}]; the sections are {accepted}")
            if not isinstance(values, Mapping):
                raise ConfigError(f"[{section}] must be a table of settings, not {values!r}")
            if section in SECTIONS:
                clean = converted(section, SECTIONS[section], values, f"[{section}]")
                changed[section] = replace(getattr(self, section), **clean)
        name = changed["run"].method if "run" in changed else self.run.method
        return replace(self, method=self._method_named(name, table.get("method", {})), **changed)

    def _method_named(self, name: str, settings: Mapping[str, Any]) -> AnyMethod:
        kind = _method_class(name)
        clean = converted("method", kind, settings, name)
        if type(self.method) is kind:
            return replace(self.method, **clean)
        own, before = names_of(kind), type(self.method)(**self.usual_of(type(self.method)))
        kept = {k: v for k, v in plain(self.method).items() if k in own and v != getattr(before, k)}
        return kind(**(self.usual_of(kind) | kept | clean))

    def usual_of(self, kind: type[AnyMethod]) -> dict[str, Any]:
        """What the preset says of the settings that this method has."""
        return {key: value for key, value in self.usual.items() if key in names_of(kind)}

    @property
    def value_type(self) -> str:
        """The type in which values travel."""
        return self.method.value_type if self.wire.values == "auto" else self.wire.values

    def as_dict(self) -> dict[str, dict[str, Any]]:
        return {name: plain(getattr(self, name)) for name in [*SECTIONS, "method"]}

    def to_toml(self) -> str:
        return tomli_w.dumps(self.as_dict())
