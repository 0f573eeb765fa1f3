"""What the commands decide: the server's, and a site's, whatever the server says. No torch, no Flower here.

A site's command writes its settings into a private file, and the site's process reads them from there. A
configuration that comes from the server is read with their permission only: nothing is imported by a name
that the site has not allowed, no file is opened because the server named it, and what is beyond the site's
limits is refused before anything is trained. The limits file:

    min_samples = 100                 # no training on fewer local samples
    max_rounds = 50                   # of one run
    methods = ["fedpurin"]            # empty or missing: any
    values = ["float32", "int8"]      # types of the values that are sent
    share_metrics = false             # accuracy, loss and times stay here
    max_message_mb = 20               # sent or received
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedpurin.config import Config
from fedpurin.errors import ConfigError
from fedpurin.files import write_atomic

MIB = 1 << 20
LONGEST = 366 * 86400.0  # seconds that a server waits for anybody
PROGRESS = "progress.jsonl"  # in a site's state directory: a line per message it has worked on
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # package.module:function; not cuda:0


@dataclass(frozen=True)
class Terms:
    """How long a server waits for whom."""

    minimum: int  # accepted uploads without which a round does not count
    deadline: float = 600.0  # seconds from asking to the last accepted upload of a round
    join: float = 600.0  # seconds to wait for clients before the first round, and for the minimum later
    patience: float = 15.0  # seconds that later rounds wait for absent clients once the minimum is there

    @classmethod
    def of(cls, clients: int, **given: Any) -> Terms:
        """Defaults for a number of clients: half of them, rounded up, must deliver. None: not given."""
        values = {"minimum": -(-clients // 2)} | {k: v for k, v in given.items() if v is not None}
        terms = cls(**values)
        if not 1 <= terms.minimum <= clients:
            raise ConfigError(f"a minimum of {terms.minimum} uploads does not fit {clients} clients")
        for name in ("deadline", "join", "patience"):
            seconds = getattr(terms, name)
            if not 0 <= seconds <= LONGEST or (name != "patience" and not seconds):
                least = "at least 0" if name == "patience" else "more than 0"
                raise ConfigError(
                    f"--{name} {seconds:g} does not fit: give {least} and at most {LONGEST:.0f} seconds"
                )
        return terms


@dataclass(frozen=True)
class Limits:
    """0 and empty mean: no limit."""

    min_samples: int = 0
    max_rounds: int = 0
    methods: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    share_metrics: bool = True
    max_message_mb: float = 0.0

    @classmethod
    def read(cls, path: Path) -> Limits:
        try:
            return cls.of(tomllib.loads(path.read_text()), str(path))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"cannot read the limits {path}: {error}") from None

    @classmethod
    def of(cls, table: dict[str, Any], origin: str = "the limits") -> Limits:
        kinds: dict[str, Any] = {f.name: type(f.default) for f in fields(cls)}
        clean: dict[str, Any] = {}
        for name, value in table.items():
            if name not in kinds:
                raise ConfigError(f"{origin}: unknown limit {name!r}; the limits are {', '.join(kinds)}")
            value = tuple(value) if isinstance(value, list) else value
            value = float(value) if kinds[name] is float and type(value) is int else value
            if type(value) is not kinds[name] or (
                isinstance(value, int | float) and not 0 <= value < math.inf
            ):
                raise ConfigError(f"{origin}: {name} = {value!r} should be like {kinds[name]()!r}")
            clean[name] = value
        return cls(**clean)

    def check(self, config: Config) -> None:
        """Raise unless this site agrees to the configuration."""
        run, values = config.run, config.value_type
        if self.max_rounds and run.rounds > self.max_rounds:
            self._refuse(f"{run.rounds} rounds", f"at most {self.max_rounds}")
        if self.methods and run.method not in self.methods:
            self._refuse(f"the method {run.method}", " or ".join(self.methods))
        if self.values and values not in self.values:
            self._refuse(f"values as {values}", " or ".join(self.values))
        if not self.share_metrics and run.share_metrics:
            self._refuse("accuracy and loss (share_metrics = true)", "share_metrics = false")

    def check_samples(self, samples: int) -> None:
        if samples < self.min_samples:
            raise ConfigError(
                f"this site trains on {self.min_samples} samples at least, and has {samples} for this run"
            )

    def check_message(self, size: float, what: str) -> None:
        if self.max_message_mb and size > self.max_message_mb * MIB:
            self._refuse(f"{what} of {size / MIB:.1f} MiB", f"at most {self.max_message_mb:g} MiB")

    @staticmethod
    def _refuse(asked: str, agreed: str) -> None:
        raise ConfigError(f"the server asks for {asked}; this site agrees to {agreed} (its limits file)")


@dataclass(frozen=True)
class SiteSettings:
    client: int
    state: str  # folder
    data: str = ""
    allow: tuple[str, ...] = ()  # package.module:function that a configuration may name
    local_paths: bool = False  # it may also name files: where server and sites are one machine and account
    limits: Limits = Limits()
    keep_messages: bool = False  # for the audit
    address: str = ""  # of the SuperNode's runtime interface
    ca: str = ""
    secret: str = ""

    def save(self, path: Path) -> None:
        write_atomic(path, json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> SiteSettings:
        table = json.loads(path.read_text())
        return cls(**table | {"allow": tuple(table["allow"]), "limits": Limits.of(table["limits"])})

    def read(self, text: str) -> Config:
        """The server's configuration, checked before anything in it is looked up."""
        try:
            table = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"the server's configuration is not valid TOML: {error}") from None
        for name in functions_named(table):
            if name not in self.allow:
                raise ConfigError(
                    f"the server's configuration names {name}, which this site does not allow: read that "
                    f"function, and if you agree start the client with --allow {name}"
                )
        config = Config.from_text(text, "the server's configuration")
        self.limits.check(config)
        if self.local_paths:
            return config
        if config.data.split_file:
            raise ConfigError(
                f"the server's configuration names the file {config.data.split_file}: a site opens no files "
                "that the server names; divide the data by partition and seed, or use the sites' own"
            )
        return replace(config, data=replace(config.data, dir=""))


def functions_named(value: Any) -> list[str]:
    """Every package.module:function in a configuration, at any depth, in whatever setting."""
    if isinstance(value, str):
        return [value] if FUNCTION.fullmatch(value) else []
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [name for item in items for name in functions_named(item)]
