"""How long a server waits for whom. No torch here: commands read this before they know what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fedpurin.errors import ConfigError


@dataclass(frozen=True)
class Terms:
    """The terms of a round."""

    minimum: int  # accepted uploads without which a round does not count
    deadline: float = 600.0  # seconds from asking to the last accepted upload of a round
    join: float = (
        600.0  # seconds to wait for clients to connect before the first round, and for the minimum later
    )
    patience: float = 15.0  # seconds that later rounds wait for absent clients once the minimum is there

    @classmethod
    def of(cls, clients: int, **given: float | None) -> Terms:
        """Defaults for a number of clients: half of them, rounded up, must deliver."""
        values: dict[str, Any] = {"minimum": -(-clients // 2)} | {
            k: v for k, v in given.items() if v is not None
        }
        terms = cls(**values)
        if not 1 <= terms.minimum <= clients:
            raise ConfigError(f"a minimum of {terms.minimum} uploads does not fit {clients} clients")
        if min(terms.deadline, terms.join) <= 0 or terms.patience < 0:
            raise ConfigError("the deadline and the time to join must be positive numbers of seconds")
        return terms

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
