"""What absent and bad clients do to accuracy: figures and tables of docs/reliability.md.

    python -m benchmarks.reliability dropouts       # 16 runs of 30 rounds for each seed, about a minute each
    python -m benchmarks.reliability peers
    python -m benchmarks.reliability figures        # draws them again from benchmarks/results

A run that the results already hold is not repeated; --anew forgets them first.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers import ATTACKS, BadPeers, Dropouts
from fedpurin.config import Config
from fedpurin.engines.driver import Driver, Policy
from fedpurin.engines.transport import Transport
from fedpurin.errors import EngineError
from fedpurin.job import Job
from fedpurin.runs.directory import RunDirectory

RESULTS = Path(__file__).with_name("results")
METHODS = ("fedavg", "fedbn", "fedpurin", "fedfrugal")
SHARES = (0.0, 0.1, 0.3, 0.5)
ROUNDS = 30


BAD = (0, 7, 13)  # of 20; the accuracy of the other 17 is what counts, in every run
BAD_ROUNDS = 4
GUARDS: dict[str, dict[str, float]] = {"none": {}, "norm_bound": {"norm_bound": 1.5}, "trim": {"trim": 0.15}}
GUARDED = {"fedavg": ("none", "norm_bound", "trim"), "fedpurin": ("none", "norm_bound")}


def job_of(method: str, seed: int, rounds: int, **sections: dict[str, Any]) -> Job:
    table = {"run": {"method": method, "seed": seed, "rounds": rounds, "engine": "inline"}, **sections}
    return Job.build(Config.preset("quickstart").updated(table))


def follow(job: Job, transport: Transport) -> list[dict[str, Any]]:
    """The records of a run that leaves out whoever fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        policy = Policy(forgiving=True, checkpoint_every=10**6)
        with RunDirectory.create(path, job) as directory, contextlib.suppress(EngineError):
            Driver(job, directory, transport, policy).run()  # it stops where nobody is left to upload
        return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def mean(numbers: list[float | None]) -> float:
    known = [number for number in numbers if number is not None]
    return sum(known) / len(known)


class Watched(Dropouts):
    """Looks, in every round, whether a client that vanished still has the very state it had."""

    def __init__(self, job: Job, share: float) -> None:
        super().__init__(job, share)
        self.checked = 0

    def run(self, op, t, clients, reply):  # type: ignore[no-untyped-def]
        gone = self.gone(t, clients) if op == "work" else []
        before = {client: self.table.read(client) for client in gone}
        yield from super().run(op, t, clients, reply)
        for client, state in before.items():
            now = self.table.read(client)
            assert all(torch.equal(now[name], tensor) for name, tensor in state.items()), client
            self.checked += 1


def dropouts(method: str, share: float, seed: int) -> dict[str, Any]:
    job = job_of(method, seed, ROUNDS)
    transport = Watched(job, share)
    *rounds, final = follow(job, transport)
    assert sorted(final["merged"]["clients"]) == list(range(job.config.run.clients))
    return {
        "left out": sum(len(record["failed"]) for record in rounds),
        "states checked": transport.checked,
        "trained": [round(mean(record["trained"]["accuracy"]), 4) for record in rounds],
        "final": round(mean(final["merged"]["accuracy"]), 4),
    }


def peers(method: str, attack: str, bad: int, guard: str, seed: int) -> dict[str, Any]:
    job = job_of(method, seed, BAD_ROUNDS, robust=GUARDS[guard])
    transport = BadPeers(job, list(BAD[:bad]), ATTACKS.get(attack, torch.clone))
    rounds = [record for record in follow(job, transport) if not record.get("final")]
    trained = []
    for record in rounds:
        scores = dict(zip(record["clients"], record["trained"]["accuracy"], strict=True))
        honest = [score for client, score in scores.items() if client not in BAD]
        trained.append(round(mean(honest), 4) if honest else None)
    return {
        "rounds": len(rounds),
        "bounded": sum(len(record.get("bounded", [])) for record in rounds),
        "bounded honest": sum(b["client"] not in BAD[:bad] for r in rounds for b in r.get("bounded", [])),
        "left out": sum(len(record["failed"]) for record in rounds),
        "last": trained[-1] if trained else None,
        "trained": trained,
    }


def cases(what: str, seeds: list[int]) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """The name of each run, and how to make it."""
    if what == "peers":
        lies = [("a thousand-fold", 1), ("honest", 0), ("sign-flipped", 3), ("a thousand-fold", 3)]
        for seed, (attack, bad), method in itertools.product(seeds, [*lies, ("sign-flipped", 1)], GUARDED):
            for guard in GUARDED[method]:
                yield f"{method} {attack} {bad} {guard} s{seed}", peers, (method, attack, bad, guard, seed)
        return
    for seed in seeds:
        for method in METHODS:
            for share in SHARES:
                yield f"{method} {share:g} s{seed}", dropouts, (method, share, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("dropouts", "peers", "figures"))
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--anew", action="store_true")
    options = parser.parse_args()
    file = RESULTS / f"{options.what}.json"
    done: dict[str, Any] = json.loads(file.read_text()) if file.exists() and not options.anew else {}
    for name, make, arguments in cases(options.what, [int(s) for s in options.seeds.split(",")]):
        if name not in done:
            done[name] = make(*arguments)
            file.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
        print(name, {k: v for k, v in done[name].items() if not isinstance(v, list)}, flush=True)


if __name__ == "__main__":
    main()
