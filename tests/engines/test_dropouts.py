"""Clients that vanish after they were asked, and come back: runs complete, nothing of theirs is touched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.peers import GONE, Dropouts
from engine_tools import metrics_of
from fedpurin.engines.driver import Driver
from fedpurin.engines.transport import Outcome, Reply
from fedpurin.methods import METHODS
from fedpurin.runs.directory import RunDirectory
from tiny import tiny_job

COUNTS = (12, 9, 7, 6, 11, 8)


class Watched(Dropouts):
    """Compares the states of those who vanished before and after each round."""

    checked = 0

    def run(self, op: str, t: int, clients: list[int], reply: Reply) -> Iterator[Outcome]:
        gone = self.gone(t, clients) if op == "work" else []
        before = {client: self.table.read(client) for client in gone}
        yield from super().run(op, t, clients, reply)
        for client, state in before.items():
            now = self.table.read(client)
            assert (now is None) == (state is None), "its initial state, which needs no record"
            assert all(torch.equal((now or {})[name], tensor) for name, tensor in (state or {}).items())
            self.checked += 1


@pytest.mark.parametrize("method", METHODS)
def test_half_of_the_clients_vanish_in_every_round_and_the_run_completes(method: str, tmp_path: Path) -> None:
    job = tiny_job(method, COUNTS)
    transport = Watched(job, 0.5)
    with RunDirectory.create(tmp_path / "run", job) as directory:
        Driver(job, directory, transport).run()
    *rounds, final = metrics_of(tmp_path / "run")
    assert [len(record["failed"]) for record in rounds] == [3] * 6
    assert {failure["reason"] for record in rounds for failure in record["failed"]} == {GONE}
    assert transport.checked == 18
    assert len({tuple(record["clients"]) for record in rounds}) > 1, "they come back"
    assert final["merged"]["clients"] == list(range(6))
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["missing_clients"] == []
    assert len(list((tmp_path / "run" / "models").iterdir())) == 6
