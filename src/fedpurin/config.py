"""Typed, validated run configuration: TOML in, TOML out; unknown keys and bad values are errors.

No torch here: the command line reads this module for its help.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

import tomli_w

from fedpurin.errors import ConfigError

MethodName = Literal["separate", "fedavg", "fedper", "fedbn", "pfedsd", "fedcac", "fedpurin"]
ValueType = Literal["float32", "float16", "bfloat16", "int8"]
Partition = Literal["dirichlet", "dirichlet-disjoint", "classes", "iid"]

METHOD_NAMES: tuple[str, ...] = get_args(MethodName)


def setting(default: Any, help: str, **limits: Any) -> Any:
    """A field with its help text and its limits: above, least, most."""
    return field(default=default, metadata={"help": help, **limits})


@dataclass(frozen=True)
class RunSection:
    method: MethodName = setting("fedpurin", "which method")
    seed: int = setting(1, "fixes the split, the initial models and every mini-batch", least=0, most=2**31)
    rounds: int = setting(12, "communication rounds T", least=1)
    clients: int = setting(10, "number of clients N", least=1)
    participation: float = setting(1.0, "share of the clients that take part in a round", above=0, most=1)
    engine: Literal["local", "ray", "flower"] = setting("local", "what moves the messages")
    workers: int = setting(0, "worker processes; 0: one per core", least=0)
    device: str = setting("cpu", "cpu, cuda or mps; only cpu is tested and reproducible to the byte")
    share_metrics: bool = setting(True, "clients tell the server their accuracy and loss")
    checkpoint_every: int = setting(1, "rounds between checkpoints", least=1)


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
    shape: tuple[int, ...] = setting((), "for dataset = own: shape of one sample, e.g. [3, 32, 32]")
    classes: int = setting(0, "for dataset = own: number of classes", least=0)


@dataclass(frozen=True)
class ModelSection:
    name: str = setting("cnn", "resnet8, resnet10, cnn, mlp, or package.module:function")
    head: str = setting("", "module that is the classifier; empty: the last linear layer")


@dataclass(frozen=True)
class TrainSection:
    epochs: int = setting(5, "local epochs E per round", least=1)
    batch_size: int = setting(50, "samples per mini-batch", least=1)
    lr: float = setting(0.1, "SGD learning rate", above=0)
    momentum: float = setting(0.9, "SGD momentum, new every round", least=0, most=1)
    weight_decay: float = setting(0.0, "SGD weight decay", least=0)


@dataclass(frozen=True)
class MethodSection:
    tau: float = setting(0.5, "share of parameters kept as critical, per layer", above=0, most=1)
    beta: int = setting(6, "round after which critical parameters stop being shared", least=1)
    score: Literal["gradient", "delta", "magnitude", "random"] = setting("gradient", "FedPURIN's score")
    hessian: bool = setting(False, "add the quadratic term of Eq. 7")
    gradient_dtype: Literal["float32", "float16"] = setting("float32", "round the last gradient to this type")
    exchange_norm: Literal["no", "whole", "selected"] = setting("no", "FedPURIN: exchange batch norm")
    noncritical: Literal["global", "local"] = setting("global", "FedPURIN: what fills the other parameters")
    average: Literal["paper", "support"] = setting(
        "paper", "FedPURIN: average zeros in, or only what was sent"
    )
    floor: float = setting(1e-10, "FedPURIN: scores up to this are not critical; -1: no floor", least=-1)
    distill: float = setting(0.5, "pFedSD's lambda", least=0)
    temperature: float = setting(3.0, "pFedSD's temperature", above=0)


@dataclass(frozen=True)
class WireSection:
    values: ValueType = setting("float32", "type of the values on the wire")
    pack: bool = setting(False, "lossless packing (byte planes and zstd) where it is smaller")
    feedback: bool = setting(False, "add the rounding error of the round before (lossy types)")


SECTIONS: dict[str, type] = {
    "run": RunSection,
    "data": DataSection,
    "model": ModelSection,
    "train": TrainSection,
    "method": MethodSection,
    "wire": WireSection,
}
HINTS = {name: get_type_hints(kind) for name, kind in SECTIONS.items()}  # resolved once: that is slow


@dataclass(frozen=True)
class Config:
    run: RunSection = field(default_factory=RunSection)
    data: DataSection = field(default_factory=DataSection)
    model: ModelSection = field(default_factory=ModelSection)
    train: TrainSection = field(default_factory=TrainSection)
    method: MethodSection = field(default_factory=MethodSection)
    wire: WireSection = field(default_factory=WireSection)

    def __post_init__(self) -> None:
        for name in SECTIONS:
            _check(name, getattr(self, name))

    @classmethod
    def preset(cls, name: str) -> Config:
        if name not in PRESETS:
            raise ConfigError(f"unknown preset {name!r}; choose one of {', '.join(PRESETS)}")
        return cls().updated(PRESETS[name])

    @classmethod
    def from_toml(cls, path: Path, base: Config | None = None) -> Config:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise ConfigError(f"cannot read the configuration {path}: {problem}") from problem
        return cls.from_text(text, str(path), base)

    @classmethod
    def from_text(cls, text: str, origin: str = "configuration", base: Config | None = None) -> Config:
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as problem:
            raise ConfigError(f"{origin} is not valid TOML: {problem}") from problem
        preset = table.pop("preset", None)
        start = cls() if preset is None else cls.preset(str(preset))
        return (base or start).updated(table)

    def updated(self, table: Mapping[str, Any]) -> Config:
        """A copy with the values of {section: {key: value}}; what is unknown is refused."""
        changed: dict[str, Any] = {}
        for section, values in table.items():
            if section not in SECTIONS:
                raise ConfigError(f"unknown section [{section}]; the sections are {', '.join(SECTIONS)}")
            if not isinstance(values, Mapping):
                raise ConfigError(f"[{section}] must be a table of settings, not {values!r}")
            known = {f.name for f in fields(SECTIONS[section])}
            for key in values:
                if key not in known:
                    raise ConfigError(
                        f"unknown setting {section}.{key}; [{section}] accepts {', '.join(sorted(known))}"
                    )
            hints = HINTS[section]
            clean = {key: _convert(f"{section}.{key}", value, hints[key]) for key, value in values.items()}
            changed[section] = replace(getattr(self, section), **clean)
        return replace(self, **changed)

    def as_dict(self) -> dict[str, dict[str, Any]]:
        return {
            name: {f.name: _plain(getattr(getattr(self, name), f.name)) for f in fields(section)}
            for name, section in SECTIONS.items()
        }

    def to_toml(self) -> str:
        return tomli_w.dumps(self.as_dict())


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _convert(name: str, value: Any, hint: Any) -> Any:
    """The value as the type of the setting; text (from flags) is parsed."""
    origin = get_origin(hint)
    try:
        if hint is bool:
            if isinstance(value, str) and value.lower() in {"true", "false"}:
                return value.lower() == "true"
            if not isinstance(value, bool):
                raise ValueError
            return value
        if hint is int:
            if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
                raise ValueError
            return int(value)
        if hint is float:
            if isinstance(value, bool):
                raise ValueError
            return float(value)
        if origin is tuple:
            items = value.strip("[]").split(",") if isinstance(value, str) else value
            return tuple(int(item) for item in items if str(item).strip())
    except (TypeError, ValueError):
        kind = {bool: "true or false", int: "a whole number", float: "a number"}.get(
            hint, "a list of whole numbers"
        )
        raise ConfigError(f"{name} must be {kind}, not {value!r}") from None
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be text, not {value!r}")
    return value


def _check(section: str, values: Any) -> None:
    hints = HINTS[section]
    for f in fields(values):
        name, value = f"{section}.{f.name}", getattr(values, f.name)
        if get_origin(hints[f.name]) is Literal:
            choices = cast(tuple[str, ...], get_args(hints[f.name]))
            if value not in choices:
                raise ConfigError(f"{name} = {value!r} is unknown; choose one of {', '.join(choices)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name} = {value} is not a finite number")
        limits = f.metadata
        if "above" in limits and not value > limits["above"]:
            raise ConfigError(f"{name} = {value} must be greater than {limits['above']}{_upto(limits)}")
        if "least" in limits and value < limits["least"]:
            raise ConfigError(f"{name} = {value} must be at least {limits['least']}{_upto(limits)}")
        if "most" in limits and value > limits["most"]:
            raise ConfigError(f"{name} = {value} must be at most {limits['most']}")
    if section == "run" and values.device.split(":")[0] not in {"cpu", "cuda", "mps"}:
        raise ConfigError(f"run.device = {values.device!r} is unknown; choose cpu, cuda or mps")


def _upto(limits: Mapping[str, Any]) -> str:
    return f" and at most {limits['most']}" if "most" in limits else ""


def _paper(dataset: str, model: str, rounds: int, beta: int, alpha: float) -> dict[str, dict[str, Any]]:
    return {
        "run": {"rounds": rounds, "clients": 20},
        "data": {"dataset": dataset, "alpha": alpha, "train_samples": 500, "test_samples": 100},
        "model": {"name": model},
        "train": {"epochs": 5, "batch_size": 100, "lr": 0.1, "momentum": 0.9},
        "method": {"tau": 0.5, "beta": beta, "gradient_dtype": "float16"},
    }


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "quickstart": {},
    "paper-fashion-mnist": _paper("fashion-mnist", "resnet8", 200, 100, 0.1),
    "paper-cifar10": _paper("cifar-10", "resnet8", 200, 100, 0.1),
    "paper-cifar100": _paper("cifar-100", "resnet10", 300, 170, 0.1),
}
