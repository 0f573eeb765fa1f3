"""Many peers at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from federation_fakes import Federation, simulated, small

PEERS = 200


@pytest.mark.slow
def test_two_hundred_peers_reach_what_the_simulator_does(tmp_path: Path) -> None:
    config = small(clients=PEERS, rounds=1).updated({"data": {"train_samples": 4, "test_samples": 2}})
    federation = Federation(tmp_path, config)
    result = federation.run()
    assert result["missing_clients"] == []
    assert federation.told("failed") == []
    assert [event["accepted"] for event in federation.told("round_done")] == [PEERS]
    assert result["digest"] == simulated(config, tmp_path / "simulated")["digest"]
