"""What absent and bad clients do to accuracy: figures and tables of docs/reliability.md.

    python -m benchmarks.reliability dropouts       # 16 runs of 30 rounds for each seed, about a minute each
    python -m benchmarks.reliability peers          # two small federations, a minute
    python -m benchmarks.reliability liars          # 35 runs of 15 rounds, half a minute each
    python -m benchmarks.reliability figures        # draws them again from benchmarks/results
    python -m benchmarks.reliability tables         # prints them from there

A run that the results already hold is not repeated; --anew forgets them first.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers import ATTACKS, BadPeers, Dropouts
from fedpurin.config import Config
from fedpurin.engines.driver import Driver, Policy
from fedpurin.engines.hub import Hub
from fedpurin.engines.site import Site
from fedpurin.engines.transport import Transport
from fedpurin.errors import EngineError
from fedpurin.job import Job
from fedpurin.meta import Meta
from fedpurin.runs.directory import RunDirectory
from fedpurin.train import prepare_process

RESULTS = Path(__file__).with_name("results")
METHODS = ("fedavg", "fedbn", "fedpurin", "fedfrugal")
SHARES = (0.0, 0.1, 0.3, 0.5)
ROUNDS = 30


BAD = (0, 7, 13)  # of 20; the accuracy of the other 17 is what counts, in every run
BAD_ROUNDS = 4
LIES = (("honest", 0), *((attack, bad) for attack in ATTACKS for bad in (1, 3)))
LIGHT: dict[str, dict[str, Any]] = {"model": {"name": "mlp"}, "train": {"epochs": 2}}  # a run takes seconds
GUARDS: dict[str, dict[str, float]] = {"none": {}, "norm_bound": {"norm_bound": 1.5}, "trim": {"trim": 0.15}}
GUARDED = {"fedavg": ("none", "norm_bound", "trim"), "fedpurin": ("none", "norm_bound")}
LIED_TO = {**GUARDED, "fedfrugal": ("none", "norm_bound")}  # over a whole run


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
            assert (now is None) == (state is None), client
            assert all(torch.equal((now or {})[name], tensor) for name, tensor in (state or {}).items()), (
                client
            )
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


def peers(method: str, seed: int) -> dict[str, Any]:
    """Accuracy of the honest clients after merging, by what the bad ones sent in the last of four rounds."""
    prepare_process()
    job = job_of(method, seed, BAD_ROUNDS, **LIGHT)
    hub, site = Hub(job), Site(job)
    everybody = list(range(hub.clients))
    states = {client: site.initial_state(client) for client in everybody}
    for t in range(1, BAD_ROUNDS + 1):
        before, server = dict(states), {name: x.clone() for name, x in hub.state().items()}
        hub.begin(t, everybody)
        works = {c: site.work(c, t, hub.reply(c), states[c], job.client_data(c)) for c in everybody}
        states = {client: work.state for client, work in works.items()}
        if t < BAD_ROUNDS:
            for client, work in works.items():
                hub.accept(client, work.upload, work.meta)
            hub.close(t)
    found = {}
    for (attack, bad), guard in itertools.product(LIES, GUARDED[method]):
        wary = job_of(method, seed, BAD_ROUNDS, robust=GUARDS[guard], **LIGHT)
        liars = BadPeers(wary, list(BAD[:bad]), ATTACKS.get(attack, torch.clone))
        hub = Hub(wary)
        hub.restore(server)
        hub.begin(BAD_ROUNDS, everybody)
        for client, work in works.items():
            sent = work.upload
            if client in BAD[:bad] and sent is not None:
                sent = liars.forged(client, BAD_ROUNDS, sent, before[client])
            hub.accept(client, sent, work.meta)
        bounded = [bound["client"] for bound in hub.close(BAD_ROUNDS).get("bounded", [])]
        scores = []
        for client in set(everybody) - set(BAD):
            data = job.client_data(client)
            meta = Meta.from_bytes(
                site.finish(client, BAD_ROUNDS, hub.reply(client), states[client], data).meta
            )
            scores.append(meta.merged.accuracy if meta.merged else None)
        found[f"{attack} {bad} {guard}"] = {"merged": round(mean(scores), 4), "bounded": bounded}
    return found


def liars(method: str, seed: int, guard: str, attack: str, bad: int) -> dict[str, Any]:
    """Accuracy of the honest clients of the quickstart where the bad ones lie in every round."""
    job = job_of(method, seed, Config.preset("quickstart").run.rounds, robust=GUARDS[guard])
    records = follow(job, BadPeers(job, list(BAD[:bad]), ATTACKS.get(attack, torch.clone)))
    rounds = [record for record in records if "trained" in record]

    def honest(clients: list[int], accuracy: list[float | None]) -> list[float | None]:
        return [a for client, a in zip(clients, accuracy, strict=True) if client not in BAD]

    final = [record["merged"] for record in records if "trained" not in record]  # none where nobody was left
    bounds = [bound["client"] in BAD[:bad] for record in rounds for bound in record.get("bounded", [])]
    return {
        "trained": [round(mean(honest(r["clients"], r["trained"]["accuracy"])), 4) for r in rounds],
        "merged": [round(mean(honest(end["clients"], end["accuracy"])), 4) for end in final],
        "refused": sum(len(record["failed"]) for record in rounds),
        "bounded": [sum(bounds), len(bounds) - sum(bounds)],  # uploads of liars, of honest clients
    }


def cases(
    what: str, seeds: list[int], methods: Sequence[str] = METHODS
) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """The name of each run, and how to make it."""
    if what == "peers":
        for seed, method in itertools.product(seeds, GUARDED):
            yield f"{method} s{seed}", peers, (method, seed)
        return
    if what == "liars":
        for seed, method, (attack, bad) in itertools.product(seeds, LIED_TO, LIES):
            for guard in LIED_TO[method]:
                yield (
                    f"{method} {attack} {bad} {guard} s{seed}",
                    liars,
                    (method, seed, guard, attack, bad),
                )
        return
    for seed in seeds:
        for method in methods:
            for share in SHARES:
                yield f"{method} {share:g} s{seed}", dropouts, (method, share, seed)


def figures(folder: Path) -> None:
    """Accuracy over the share of clients that vanish, as found so far."""
    from matplotlib import pyplot

    from fedpurin.report.style import DASHES, MARKERS, look, matplotlib_style

    found = json.loads((RESULTS / "dropouts.json").read_text())
    measures: dict[str, Callable[[dict[str, Any]], float]] = {
        "after training, those present": lambda run: mean(run["trained"][-10:]),
        "after the last reply, all clients": lambda run: run["final"],
    }
    with matplotlib_style():
        figure, panels = pyplot.subplots(1, 2, figsize=(8.4, 3.4), sharey=True, layout="constrained")
        for axes, (title, measure) in zip(panels, measures.items(), strict=True):
            for method in dict.fromkeys(name.split()[0] for name in found):
                runs = {share: found.get(f"{method} {share:g} s1") for share in SHARES}
                points = [(100 * share, 100 * measure(run)) for share, run in runs.items() if run]
                shown = look(method)
                drawn = {"color": shown.color, "linestyle": DASHES[shown.dash]}
                marker = MARKERS[shown.marker]
                axes.plot(*zip(*points, strict=True), marker=marker, label=shown.label, **drawn)
            axes.set_title(title, fontsize="medium")
            axes.set_xlabel("clients that vanish in every round (%)")
            axes.set_xticks([100 * share for share in SHARES])
        panels[0].set_ylabel("accuracy (%)")
        panels[0].legend()
        figure.savefig(folder / "dropouts.png", dpi=150)
        pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("dropouts", "peers", "liars", "figures", "tables"))
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--methods", default=",".join(METHODS), help="whose dropouts; the figure shows all")
    parser.add_argument("--anew", action="store_true")
    options = parser.parse_args()
    if options.what == "figures":
        figures(RESULTS.parents[1] / "docs" / "figures")
        return
    if options.what == "tables":
        from benchmarks.reliability_tables import tables

        print("\n\n".join(tables().values()))
        return
    file = RESULTS / f"{options.what}.json"
    done: dict[str, Any] = json.loads(file.read_text()) if file.exists() and not options.anew else {}
    for name, make, arguments in cases(
        options.what, [int(s) for s in options.seeds.split(",")], options.methods.split(",")
    ):
        if name not in done:
            done[name] = make(*arguments)
            file.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
        print(name, {k: v for k, v in done[name].items() if not isinstance(v, list)}, flush=True)


if __name__ == "__main__":
    main()
