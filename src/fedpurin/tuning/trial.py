"""One candidate and its run. A run is an ordinary run directory that pauses at the end of each rung.

What a run has sent after r rounds does not depend on how many it was planned for. So a budget of MiB is a
limit on rounds: a trial stops before the round that it could not pay, and stands for a run of so many rounds.
Shapes: T rounds so far.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedpurin import api
from fedpurin.engines.driver import Watcher
from fedpurin.files import write_atomic
from fedpurin.runs.checkpoints import checkpoints
from fedpurin.runs.directory import stored_config
from fedpurin.runs.parsing import read_json
from fedpurin.runs.run import MIB, VALIDATION, Run, load_run, row_means
from fedpurin.runs.shapes import COUNT, Needed
from fedpurin.tuning.candidates import Candidate

HELD_OUT = {"validation_samples": Needed([COUNT])}
LEAST_ROUNDS = 2  # before the second round nothing is known of the replies


class Paused(Exception):
    """The run has got as far as it should for now."""


@dataclass(frozen=True)
class Costs:
    """MiB per client, as sent."""

    whole: float  # of a run that ends after these rounds, with the last reply to everybody
    dearest: float  # of the rounds so far

    @classmethod
    def of(cls, run: Run) -> Costs:
        up_t, down_t = (
            run.ledger.per_round(way, run.ledger.total_m, run.rounds)[1:] / MIB / run.clients
            for way in ("up", "down")
        )  # down: of the reply that carries the aggregation of round t; that of the last round comes later
        messages_t = run.ledger.per_round("down", np.ones(len(run.ledger)), run.rounds)[1:]
        mean_reply_t = down_t * run.clients / np.maximum(messages_t, 1)
        # The last reply may cost as much as the largest so far.
        whole = up_t.sum() + down_t[:-1].sum() + mean_reply_t.max(initial=0.0)
        return cls(float(whole), float((up_t + down_t).max(initial=0.0)))


@dataclass
class Pacer(Watcher):
    """Pauses a run at a round, when the budget does not pay another one, or when the time is over."""

    trial: Trial
    until: int
    budget: float | None  # MiB per client, for a whole run
    ends: float | None  # on time.monotonic()
    watcher: SearchWatcher

    def round_begun(self, t: int, of: int, asked: int) -> None:
        if t > self.until or (t > 1 and self.ends is not None and time.monotonic() >= self.ends):
            raise Paused
        if t > LEAST_ROUNDS and not self.trial.may_go_on(self.budget):
            raise Paused

    def client_done(self, t: int, client: int, done: int, total: int) -> None:
        self.watcher.client_done(self.trial, t, self.until, done, total)


class SearchWatcher:
    """Follows a search; the defaults do nothing."""

    def rung_begun(self, rung: int, of: int, rounds: int, trials: int) -> None: ...

    def trial_begun(self, trial: Trial, place: int, of: int) -> None: ...

    def client_done(self, trial: Trial, t: int, until: int, done: int, total: int) -> None: ...

    def trial_done(self, trial: Trial, failed: str) -> None: ...


@dataclass(frozen=True)
class Trial:
    candidate: Candidate
    path: Path  # of its run

    @property
    def label(self) -> str:
        return self.candidate.label

    @property
    def planned(self) -> int:
        return self.candidate.config.run.rounds

    @property
    def complete(self) -> bool:
        return (self.path / "result.json").is_file()

    @property
    def started(self) -> bool:
        return (self.path / "config.toml").is_file()

    def run(self) -> Run:
        return load_run(self.path)

    @property
    def rounds(self) -> int:
        return self.run().rounds if self.started else 0

    def advance(self, pacer: Pacer) -> None:
        """Go on for as long as the pacer lets it."""
        try:
            if self.started:
                api.resume(self.path, pacer)
            else:
                api.run(self.candidate.config, self.path, pacer)
        except Paused:
            self.drop_checkpoints(keep=1)

    def may_go_on(self, budget: float | None) -> bool:
        """Whether one more round and the last reply would stay within the budget."""
        if self.complete:
            return False
        if budget is None or self.rounds < LEAST_ROUNDS:
            return True
        costs = Costs.of(self.run())
        return costs.whole + costs.dearest <= budget

    def finish(self) -> None:
        """End the run where it stands: a last reply, final models, result.json."""
        if not self.complete:
            config = stored_config(self.path).updated({"run": {"rounds": self.rounds}})
            write_atomic(self.path / "config.toml", config.to_toml())
            api.resume(self.path)
        self.drop_checkpoints(keep=0)

    def drop_checkpoints(self, keep: int) -> None:
        """They are large: a trial that pauses needs the last one only, and one that has ended none."""
        folders = checkpoints(self.path / "checkpoints")
        for folder in folders[: len(folders) - keep]:
            shutil.rmtree(folder)
        if not keep:
            for file in (self.path / "checkpoints").glob("*.rows"):
                file.unlink()


@dataclass(frozen=True)
class Standing:
    """What is known of a trial after some rounds."""

    rounds: int  # measured
    planned: int  # rounds of the configuration that it stands for
    validation: float  # mean over clients and the last rounds; what decides
    error: float  # standard error of it, as if all samples were drawn anew
    test: float  # of the same models on the test samples; decides nothing
    mib: float  # per client for all planned rounds, both ways
    measured: bool  # mib is the whole run's ledger; otherwise it is reckoned from the rounds so far
    fits: bool  # the budget

    @classmethod
    def of(cls, trial: Trial, budget: float | None) -> Standing:
        run = trial.run()
        costs = Costs.of(run)
        window = max(1, min(10, run.rounds // 3))
        validation, test = (_recent(run, moment, window) for moment in (VALIDATION, "trained"))
        samples = sum((read_json(trial.path / "clients.json", HELD_OUT) or {}).get("validation_samples", []))
        error = float(np.sqrt(max(validation * (1 - validation), 1e-4) / max(samples, 1)))
        if trial.complete:
            planned, mib = run.rounds, float(run.ledger.total_m.sum()) / MIB / run.clients
        else:
            planned = _affordable(run.rounds, costs, trial.planned, budget)
            mib = costs.whole + (planned - run.rounds) * costs.dearest
        fits = budget is None or mib <= budget
        return cls(run.rounds, planned, validation, error, test, mib, trial.complete, fits)


def _recent(run: Run, moment: str, window: int) -> float:
    mean_t = row_means(run.accuracy(moment))
    return float(np.mean(mean_t[~np.isnan(mean_t)][-window:]))


def _affordable(rounds: int, costs: Costs, wanted: int, budget: float | None) -> int:
    """Rounds that the budget pays, reckoned with the dearest so far."""
    if budget is None or not costs.dearest:
        return wanted
    return min(wanted, rounds + int(max(budget - costs.whole, 0.0) / costs.dearest))
