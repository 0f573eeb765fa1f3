"""Run directories shared by the report tests; made once per session because they only get read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from make_run import Spec, make_run

METHODS = ("separate", "fedavg", "fedper", "fedbn", "pfedsd", "fedcac", "fedpurin")


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison directory: seven methods, 8 clients, 6 rounds."""
    root = tmp_path_factory.mktemp("comparison")
    for method in METHODS:
        make_run(root / method, Spec(method, clients=8, rounds=6, beta=4))
    return root


@pytest.fixture(scope="session")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods over three seeds."""
    root = tmp_path_factory.mktemp("seeds")
    for method in ("separate", "fedpurin"):
        for seed in (1, 2, 3):
            make_run(root / f"{method}-{seed}", Spec(method, clients=5, rounds=4, seed=seed, beta=3))
    return root


@pytest.fixture(scope="session")
def half_way(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that died in round 4 of 10 while writing, with half of the clients in each round."""
    spec = Spec(clients=8, rounds=10, stop_after=3, torn=True, participation=0.5)
    return make_run(tmp_path_factory.mktemp("half") / "run", spec)
