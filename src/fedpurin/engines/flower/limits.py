"""A site's own brakes: what it agrees to, whatever a server asks for. No torch and no Flower here.

    min_samples = 100                 # no training on fewer local samples
    max_rounds = 50                   # of one run
    methods = ["fedpurin"]            # empty or missing: any
    values = ["float32", "int8"]      # types of the values that are sent
    share_metrics = false             # accuracy, loss and times stay here
    max_message_mb = 20               # sent or received

A configuration beyond a limit is refused before anything is trained, and the server is told why.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedpurin.config import Config
from fedpurin.errors import ConfigError

MIB = 1 << 20


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
        except (OSError, tomllib.TOMLDecodeError) as error:
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
            if type(value) is not kinds[name] or (kinds[name] is not bool and _negative(value)):
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


def _negative(value: Any) -> bool:
    return isinstance(value, int | float) and value < 0
