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
from typing import TYPE_CHECKING, Any, Literal

import tomli_w

from fedpurin.errors import ConfigError
from fedpurin.presets import PRESETS
from fedpurin.settings import check_limits, converted, names_of, plain, setting
from fedpurin.value_types import NAMES, find_type

if TYPE_CHECKING:
    from fedpurin.methods import AnyMethod

VALUES = ("auto", *NAMES)
Partition = Literal["dirichlet", "dirichlet-disjoint", "classes", "iid"]
ENGINES = ("local", "ray", "flower", "inline")
DEFAULT_METHOD = "fedpurin"
PYTHON = "python"
"""In the place of a name: an object that the caller of `fedpurin.run` passed, and that no file knows."""


@dataclass(frozen=True)
class RunSection:
    method: str = setting(DEFAULT_METHOD, "which method: a name, or package.module:Class")
    seed: int = setting(1, "fixes the split, the initial models and every mini-batch", least=0, most=2**31)
    split_seed: int = setting(-1, "who holds what; -1: as run.seed", least=-1, most=2**31)
    model_seed: int = setting(-1, "the initial models; -1: as run.seed", least=-1, most=2**31)
    order_seed: int = setting(-1, "the order of samples; -1: as run.seed", least=-1, most=2**31)
    rounds: int = setting(12, "communication rounds T", least=1)
    clients: int = setting(10, "number of clients N", least=1)
    participation: float = setting(1.0, "share of the clients that take part in a round", above=0, most=1)
    engine: str = setting("local", "what moves the messages: local, ray, flower, or inline (no processes)")
    workers: int = setting(0, "worker processes; 0: one per core", least=0)
    device: str = setting(
        "cpu", "cpu, cuda, mps or auto (cuda, else mps, else cpu); only cpu repeats to the byte"
    )
    share_metrics: bool = setting(True, "clients tell the server their accuracy and loss")
    checkpoint_every: int = setting(1, "rounds between checkpoints", least=1)
    save_models: Literal["all", "participants", "none"] = setting(
        "all", "whose final models are saved; participants: of those that took part in a round"
    )

    @property
    def split_seed_used(self) -> int:
        return self.seed if self.split_seed < 0 else self.split_seed

    @property
    def model_seed_used(self) -> int:
        return self.seed if self.model_seed < 0 else self.model_seed

    @property
    def order_seed_used(self) -> int:
        return self.seed if self.order_seed < 0 else self.order_seed


@dataclass(frozen=True)
class DataSection:
    dataset: str = setting(
        "fashion-mnist-mini", "data set, package.module:function, or own (each site its own)"
    )
    dir: str = setting("", "folder with the official files; empty: FEDPURIN_DATA or the user's cache")
    partition: Partition = setting("dirichlet", "who holds what")
    alpha: float = setting(0.1, "Dirichlet concentration; small means very different clients", above=0)
    classes_per_client: int = setting(2, "for partition = classes", least=1)
    train_samples: int = setting(200, "training samples per client", least=1)
    test_samples: int = setting(100, "test samples per client", least=1)
    split_file: str = setting("", "use the split saved in this file")
    validation: float = setting(
        0.0,
        "share of a client's training samples held out to choose its best model by; 0: none, keep the last",
        least=0,
        most=0.9,
    )
    shape: tuple[int, ...] = setting((), "for dataset = own: shape of one sample, e.g. [3, 32, 32]")
    classes: int = setting(0, "for dataset = own: number of classes", least=0)
    class_names: tuple[str, ...] = setting((), "for dataset = own: the classes, in order")


@dataclass(frozen=True)
class ModelSection:
    name: str = setting("cnn", "resnet8, resnet10, cnn, mlp, or package.module:function")
    head: str = setting("", "module that is the classifier; empty: the last linear layer")


@dataclass(frozen=True)
class TrainSection:
    epochs: int = setting(5, "local epochs E per round", least=1)
    batch_size: int = setting(50, "samples per mini-batch", least=1)
    lr: float = setting(0.1, "learning rate", above=0)
    momentum: float = setting(0.9, "SGD momentum, new every round", least=0, most=1)
    weight_decay: float = setting(0.0, "weight decay", least=0)
    optimiser: Literal["sgd", "adam", "adamw", "python"] = setting("sgd", "new every round")
    loss: Literal["cross_entropy", "mse", "bce", "python"] = setting(
        "cross_entropy", "what is minimised; others than cross_entropy for data passed from Python"
    )
    metric: Literal["auto", "accuracy", "r2", "label_accuracy", "python"] = setting(
        "auto", "what is measured, the higher the better; auto: the usual one for the loss"
    )
    precision: Literal["float32", "bfloat16"] = setting(
        "float32", "of the model's arithmetic; bfloat16: mixed, weights and messages stay as they are"
    )


@dataclass(frozen=True)
class WireSection:
    values: str = setting(
        "auto", "type of the values on the wire; auto: what the method is made for", choices=VALUES
    )
    pack: bool = setting(False, "lossless packing (byte planes and zstd) where it is smaller")
    feedback: bool = setting(False, "add the rounding error of the round before (lossy types)")


@dataclass(frozen=True)
class RobustSection:
    norm_bound: float = setting(
        0.0, "an upload lies at most this many times as far out as the median of its round; 0: off", least=0
    )
    sample_bound: float = setting(
        0.0, "a sample count weighs at most this many times the median of its round; 0: off", least=0
    )
    trim: float = setting(
        0.0,
        "share of the clients left out at either end of each coordinate's mean; 0: off",
        least=0,
        most=0.49,
    )

    def __post_init__(self) -> None:
        for name in ("norm_bound", "sample_bound"):
            if 0 < getattr(self, name) < 1:
                raise ConfigError(
                    f"robust.{name} = {getattr(self, name)} is below the median itself; "
                    "choose 1 or more (2 or 3 are usual), or 0 to switch it off"
                )


SECTIONS: dict[str, type] = {
    "run": RunSection,
    "data": DataSection,
    "model": ModelSection,
    "train": TrainSection,
    "wire": WireSection,
    "robust": RobustSection,
}


def parse(text: str, origin: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise ConfigError(f"{origin} is not valid TOML: {problem}") from problem


def _default_method() -> AnyMethod:
    return _method_class(DEFAULT_METHOD)(**PRESETS["mini"]["method"])


def _method_class(name: str) -> type[AnyMethod]:
    from fedpurin.methods import find_method  # brings torch

    return find_method(name)


@dataclass(frozen=True)
class Config:
    run: RunSection = field(default_factory=RunSection)
    data: DataSection = field(default_factory=DataSection)
    model: ModelSection = field(default_factory=ModelSection)
    train: TrainSection = field(default_factory=TrainSection)
    wire: WireSection = field(default_factory=WireSection)
    robust: RobustSection = field(default_factory=RobustSection)
    method: AnyMethod = field(default_factory=_default_method)
    usual: Mapping[str, Any] = field(
        default_factory=lambda: PRESETS["mini"]["method"], compare=False, repr=False
    )
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
    def from_toml(cls, path: Path, base: Config | None = None) -> Config:
        return cls._from_table(cls.read_table(path), base)

    @staticmethod
    def read_table(path: Path) -> dict[str, Any]:
        """The sections of a file as they stand there."""
        try:
            return parse(Path(path).read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as problem:
            raise ConfigError(f"cannot read the configuration {path}: {problem}") from problem

    @classmethod
    def from_text(cls, text: str, origin: str = "configuration", base: Config | None = None) -> Config:
        return cls._from_table(parse(text, origin), base)

    @classmethod
    def _from_table(cls, table: dict[str, Any], base: Config | None) -> Config:
        preset = table.pop("preset", None)
        start = cls() if preset is None else cls.preset(str(preset))
        return (base or start).updated(table)

    @classmethod
    def from_stored(cls, table: Mapping[str, Mapping[str, Any]]) -> Config:
        """A configuration that an earlier version wrote: settings of other methods are passed over."""
        for section, values in table.items():
            if not isinstance(values, Mapping):
                raise ConfigError(f"[{section}] must be a table of settings, not {values!r}")
        named = {section: dict(values) for section, values in table.items()}
        accepted = names_of(_method_class(named.get("run", {}).get("method", DEFAULT_METHOD)))
        named["method"] = {k: v for k, v in named.get("method", {}).items() if k in accepted}
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
        own, before = names_of(kind), type(self.method)(**self._usual_of(type(self.method)))
        kept = {
            key: value
            for key, value in plain(self.method).items()
            if key in own and value != getattr(before, key)
        }
        return kind(**(self._usual_of(kind) | kept | clean))

    def _usual_of(self, kind: type[AnyMethod]) -> dict[str, Any]:
        return {key: value for key, value in self.usual.items() if key in names_of(kind)}

    @property
    def value_type(self) -> str:
        """The type in which values travel."""
        return self.method.value_type if self.wire.values == "auto" else self.wire.values

    def as_dict(self) -> dict[str, dict[str, Any]]:
        return {name: plain(getattr(self, name)) for name in [*SECTIONS, "method"]}

    def to_toml(self) -> str:
        return tomli_w.dumps(self.as_dict())
