"""Records of the store without running anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedpurin.config import Config
from fedpurin.reproduce.scales import option
from fedpurin.runs.same_setting import cell_key

MIB = 2**20
Reproduce = Callable[..., tuple[int, str]]


def make_line(
    config: Config,
    accuracy: float = 0.8,
    *,
    done: int | None = None,
    split: str | None = None,
    up: int = MIB,
    down: int = 2 * MIB,
    down_after: int | None = None,
    noise: float = 0.0,
) -> dict[str, Any]:
    """A run whose clients all have `accuracy` (plus their own fixed offset times `noise`)."""
    rounds = done or config.run.rounds
    offsets = noise * np.linspace(-1, 1, config.run.clients)
    row = [round(1e4 * (accuracy + offset)) for offset in offsets]
    after = down if down_after is None else down_after
    beta = option(config, "beta") or rounds
    downs = [down if t <= beta else after for t in range(1, rounds + 1)]
    return {
        "key": cell_key(config),
        "config": config.as_dict(),
        "complete": done is None,
        "done": rounds,
        "split": split or f"split of seed {config.run.seed}",
        "digest": None,
        "parameters": 1000,
        "exchanged": 800,
        "accuracy": {},
        "clients": {moment: [row] * rounds for moment in ("trained", "upload", "merged")},
        "bytes": {
            "up": [up] * rounds,
            "down": downs,
            "up_paper": [up] * rounds,
            "down_paper": downs,
            "outside": [400 if t <= beta else 100 for t in range(1, rounds + 1)],
        },
        "kept": {},
        "groups": None,
        "seconds": {"train": 10.0, "round": 6.0},
        "environment": {"torch": "2", "cpu": "test"},
    }
