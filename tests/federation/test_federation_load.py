"""Many peers at once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from federation_fakes import Federation, simulated, small

from fedpurin.config import Config
from fedpurin.engines.flower import client_app
from fedpurin.job import Job

PEERS = 200


@pytest.fixture
def one_job_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred machines would each divide the data; this one does it once."""
    made: dict[str, Job] = {}

    def build(config: Config) -> Job:
        return made.setdefault(config.to_toml(), made.get(config.to_toml()) or Job.build(config))

    monkeypatch.setattr(client_app, "Job", SimpleNamespace(build=build))


@pytest.mark.slow
@pytest.mark.usefixtures("one_job_for_all")
def test_two_hundred_peers_reach_what_the_simulator_does(tmp_path: Path) -> None:
    config = small(clients=PEERS, rounds=1).updated({"data": {"train_samples": 4, "test_samples": 2}})
    federation = Federation(tmp_path, config)
    result = federation.run()
    assert result["missing_clients"] == []
    assert federation.told("failed") == []
    assert [event["accepted"] for event in federation.told("round_done")] == [PEERS]
    assert result["digest"] == simulated(config, tmp_path / "simulated")["digest"]
