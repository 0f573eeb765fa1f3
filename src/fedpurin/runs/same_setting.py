"""One rule for "the same setting", on configurations as plain tables, as config.toml and the store hold them.

Two runs have the same setting when they differ in nothing that decides their numbers, except in their seeds:
they are seeds of one experiment. The method's own settings count. Settings of other methods, which old files
hold too, do not count, and neither does where or how fast a run was made. wire.values = auto counts as the
type that it stands for. A setting that is newer than a file counts there with its default, or with what its
method says that it was `before`. If the seeds are equal too, the two runs are one cell, and need not both be
run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from fedpurin.config import PYTHON, Config
from fedpurin.errors import ConfigError
from fedpurin.settings import old_values

ConfigTable = Mapping[str, Any]  # {section: {key: value}}
SEEDS = ("run.seed", "run.split_seed", "run.model_seed", "run.order_seed")
SAME_AS_SEED = -1  # of the last three: as run.seed
# Where and how fast something runs does not change its bytes.
IRRELEVANT = {
    "run.engine", "run.workers", "run.device", "run.share_metrics", "run.checkpoint_every", "run.save_models",
    "data.dir",
}  # fmt: skip
DIVISION = (
    "data.partition", "data.alpha", "data.classes_per_client", "data.train_samples", "data.test_samples",
)  # fmt: skip
"""How one data set is divided among clients."""
SHOWN_DIFFERENCES = 5


@lru_cache
def _standard() -> Config:
    return Config()


@lru_cache
def method_settings(method: str) -> frozenset[str] | None:
    """The settings that this method has; None for one that is not installed here."""
    kind = _method(method)
    return None if kind is None else frozenset(field.name for field in fields(kind))


def own_name(name: object, what: str) -> str:
    """ "own data", "own model" for an object that came from Python and has no name; else the name."""
    return f"own {what}" if name in ("own", PYTHON) else str(name)


def method_label(method: str) -> str:
    return str(getattr(_method(method), "label", "") or method)


def _method(name: str) -> Any:
    from fedpurin.methods import find_method  # brings torch; needed only when runs are compared

    try:
        return find_method(name)
    except ConfigError:
        return None


@lru_cache
def _usual(method: str) -> dict[str, Any]:
    """The defaults, flat; without any of the method's own if it is not installed here."""
    if _method(method) is None:
        return flattened(_standard().as_dict() | {"method": {}})
    return flattened(_standard().updated({"run": {"method": method}}).as_dict())


@lru_cache
def _defaults(method: str) -> dict[str, Any]:
    """What a file means that does not hold a setting."""
    kind = _method(method)
    then = {} if kind is None else {f"method.{name}": value for name, value in old_values(kind).items()}
    own_type = {"wire.values": str(getattr(kind, "value_type", "float32"))}  # what auto means
    return _usual(method) | then | own_type


def setting_of(config: ConfigTable) -> dict[str, Any]:
    """Everything that decides the numbers but the seeds, flat: {"method.tau": 0.5, ...}."""
    return {name: value for name, value in relevant(config).items() if name not in SEEDS}


def setting_key(config: ConfigTable) -> Hashable:
    """Equal for runs that are seeds of one experiment."""
    return tuple(sorted((name, repr(value)) for name, value in setting_of(config).items()))


def seeds(config: ConfigTable) -> dict[str, int]:
    """The seeds of split, initial model and order of samples, each resolved."""
    run = config.get("run", {})
    common = int(run.get("seed", _standard().run.seed))
    own = {name: int(run.get(f"{name}_seed", SAME_AS_SEED)) for name in ("split", "model", "order")}
    return {name: common if seed == SAME_AS_SEED else seed for name, seed in own.items()}


def relevant(config: ConfigTable) -> dict[str, Any]:
    """What decides the numbers, flat; seeds that follow run.seed are left out."""
    method = method_of(config)
    accepted = method_settings(method)
    table = _defaults(method) | flattened(config)
    if table["wire.values"] == "auto":
        table["wire.values"] = _defaults(method)["wire.values"]
    foreign = {
        name
        for name in table
        if accepted is not None and name.startswith("method.") and name.partition(".")[2] not in accepted
    }
    following = {name for name in SEEDS[1:] if table.get(name) in (SAME_AS_SEED, table["run.seed"])}
    dropped = IRRELEVANT | foreign | following | set(unread(table))
    return {name: value for name, value in table.items() if name not in dropped}


def unread(table: ConfigTable) -> dict[str, str]:
    """Settings of a flat table that do nothing there, each with the one that makes it pointless."""
    idle: dict[str, str] = {}

    def leave_out(cause: str, *names: str) -> None:
        for name in names:
            idle.setdefault(name, f"{cause} = {table.get(cause)}")

    if table.get("data.split_file"):
        leave_out("data.split_file", *DIVISION)
    if table.get("data.dataset") in {"own", PYTHON}:
        leave_out("data.dataset", *DIVISION, "data.split_file")
    if table.get("data.dataset") != "own":
        leave_out("data.dataset", "data.shape", "data.classes", "data.class_names")
    if table.get("data.partition") != "classes":
        leave_out("data.partition", "data.classes_per_client")
    if table.get("data.partition") in {"classes", "iid"}:
        leave_out("data.partition", "data.alpha")
    if table.get("train.optimiser", "sgd") != "sgd":
        leave_out("train.optimiser", "train.momentum")
    method = _method(str(table.get("run.method", _standard().run.method)))
    own = {name.partition(".")[2]: value for name, value in table.items() if name.startswith("method.")}
    for name, cause in ({} if method is None else method.idle(own)).items():
        leave_out(f"method.{cause}", f"method.{name}")
    if table.get("wire.values") == "float32":
        leave_out("wire.values", "wire.feedback")
    return idle


def method_of(config: ConfigTable) -> str:
    return str(config.get("run", {}).get("method", _standard().run.method))


def flattened(config: ConfigTable) -> dict[str, Any]:
    flat = {}
    for section, table in config.items():
        for key, value in table.items() if isinstance(table, Mapping) else [("", table)]:
            flat[f"{section}.{key}"] = tuple(value) if isinstance(value, list) else value
    return flat


def differences(configs: Sequence[ConfigTable]) -> list[str]:
    """The settings in which these configurations are not all alike, the method's own first."""
    flat = [setting_of(config) for config in configs]
    names = {name for table in flat for name in table}
    defaults = [_defaults(method_of(config)) for config in configs]
    differing = [
        name
        for name in names
        # where a setting does nothing it counts as not changed
        if len({repr(own.get(name, usual.get(name))) for own, usual in zip(flat, defaults, strict=True)}) > 1
    ]
    return sorted(differing, key=lambda name: (not name.startswith("method."), name))


def describe_setting(config: ConfigTable, names: Iterable[str], most: int | None = SHOWN_DIFFERENCES) -> str:
    """ " (tau 0.2, alpha 0.5)": what sets a configuration apart; "" where nothing does."""
    own = setting_of(config)
    shown = [f"{name.partition('.')[2]} {own[name]}" for name in names if name in own]
    return f" ({', '.join(shown[:most])})" if shown else ""


def labels(
    configs: Sequence[ConfigTable],
    *,
    hidden: Sequence[str] = (),
    always: Sequence[str] = (),
    defaults: bool = True,
) -> list[str]:
    """Each one's method and what sets it apart from others of the same method: "FedPURIN (tau 0.2)".

    Without `defaults` a setting of the method that is at its default is not said; whoever differs says so.
    """
    texts = []
    for config in configs:
        rivals = [other for other in configs if method_of(other) == method_of(config)]
        names = dict.fromkeys([*differences(rivals), *always])
        shown = [name for name in names if name not in hidden]
        if not defaults:
            usual, flat = _usual(method_of(config)), setting_of(config)
            own = {name for name in shown if name.startswith("method.")}
            shown = [name for name in shown if name not in own or flat.get(name) != usual.get(name)]
        texts.append(method_label(method_of(config)) + describe_setting(config, shown))
    return texts


@dataclass(frozen=True)
class Cell:
    """One run that a table or figure needs. `label` names its row or line."""

    config: Config
    label: str = ""

    @property
    def key(self) -> str:
        return cell_key(self.config)


def cell_key(config: Config | ConfigTable) -> str:
    """Readable, and the same for the same numbers: FedAvg's key does not depend on beta.

    Only what an old file would have to say enters the hash, so that a setting added later changes no key.
    """
    if isinstance(config, Config):
        return _config_key(config)
    table = config
    flat, defaults = relevant(table), _defaults(method_of(table))
    digest = hashlib.sha256(json.dumps(unusual(table), sort_keys=True).encode()).hexdigest()[:10]
    dataset = str(flat["data.dataset"]).replace(":", "-").replace("/", "-")
    run = f"s{flat['run.seed']}-t{flat['run.rounds']}"
    alpha = flat.get("data.alpha", defaults["data.alpha"])
    return f"{method_of(table)}-{dataset}-a{alpha:g}-{run}-{digest}"


def unusual(table: ConfigTable) -> dict[str, Any]:
    """What decides the numbers and is not at its default: all that an old file would have to say."""
    defaults = _defaults(method_of(table))
    return {k: v for k, v in relevant(table).items() if repr(v) != repr(defaults.get(k))}


def decisive(table: ConfigTable) -> dict[str, Any]:
    """`unusual` as JSON holds it: what a checkpoint and a result say that they were made with. A split file
    may move: clients.json knows what was in it."""
    said: dict[str, Any] = json.loads(json.dumps(unusual(config_of(table).as_dict())))
    return {name: value for name, value in said.items() if name != "data.split_file"}


def changes(then: dict[str, Any], now: dict[str, Any]) -> str:
    """In which settings two tables of `unusual` differ: "method.tau was 0.5, is 0.3"; "" in none."""
    names = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
    said = [[str(table.get(name, "its default")) for table in (then, now)] for name in names]
    return "; ".join(f"{name} was {old}, is {new}" for name, (old, new) in zip(names, said, strict=True))


@lru_cache(maxsize=4096)
def _config_key(config: Config) -> str:
    return cell_key(config.as_dict())


def config_of(table: ConfigTable) -> Config:
    """The configuration a record was made with, without what its method, or this version, does not know."""
    accepted = method_settings(method_of(table))
    sections = _standard().as_dict()
    read = {
        section: {key: value for key, value in values.items() if key in sections[section]}
        for section, values in table.items()
        if section in sections
    }
    own = {k: v for k, v in table.get("method", {}).items() if accepted is None or k in accepted}
    then = {} if accepted is None else old_values(_method(method_of(table)))
    return _standard().updated({**read, "method": then | own})
