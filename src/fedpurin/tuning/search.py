"""Successive halving on the validation samples.

All candidates run for the rounds of the first rung; a third of them goes on to the second, a third of those
to the last. Who goes on is decided on accuracy and MiB at once: first those that no other beats in both, the
more accurate before the others. A run that goes on is continued, not repeated.

A search is a folder, and going on with it is calling it again:
    tune.json        what is searched
    journal.jsonl    a line per trial and rung: rounds and seconds
    runs/NN-METHOD/  the run of each candidate
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpurin.comparing import claim
from fedpurin.config import Config
from fedpurin.errors import ConfigError, EngineError, RunError
from fedpurin.files import append_line, writing
from fedpurin.job import Job
from fedpurin.runs.parsing import read_lines
from fedpurin.runs.shapes import COUNT, NUMBER, TEXT, Needed, check
from fedpurin.tuning.candidates import candidates
from fedpurin.tuning.outcome import SearchOutcome, make_outcome, ranked
from fedpurin.tuning.trial import Pacer, SearchWatcher, Trial

SHARE = 0.2  # held out for validation where the configuration holds out none
FEWER = 3  # one in so many goes on to the next rung
RUNGS = 3
FEWEST = 2  # trials that a rung takes, whatever the time
SEARCH, JOURNAL = "tune.json", "journal.jsonl"
LINE = {"trial": Needed(TEXT), "until": Needed(COUNT), "seconds": Needed(NUMBER), "failed": Needed(TEXT)}
"""What a line of the journal holds that a search goes by."""


def tune(
    config: Config,
    out: Path | str,
    *,
    budget_mib: float | None = None,
    minutes: float | None = None,
    watcher: SearchWatcher | None = None,
) -> SearchOutcome:
    """Search method and settings for this configuration's data and model; `out` is the folder of the search.

    `budget_mib`: MiB per client, both ways, for a whole run. `minutes`: of searching. Called again with the
    same arguments it goes on where it stopped.
    """
    config = _checked(config, budget_mib, minutes)
    listed, left_out = candidates(config)
    folder = Path(out)
    configs = {candidate.name: candidate.config.as_dict() for candidate in listed}
    text = json.dumps({"budget_mib": budget_mib, "minutes": minutes, "candidates": configs}, indent=1)
    claim(folder, SEARCH, text, "search", "search (or one of another version)")
    trials = [Trial(candidate, folder / "runs" / candidate.name) for candidate in listed]
    search = Search(folder, trials, budget_mib, minutes, watcher or SearchWatcher())
    finalists = search.run()
    reasons = [f"{trial.label}: {search.failed[trial]}" for trial in trials if trial in search.failed]
    return make_outcome(trials, search.reached, finalists, budget_mib, [*reasons, *left_out])


def _checked(config: Config, budget_mib: float | None, minutes: float | None) -> Config:
    if budget_mib is None and minutes is None:
        raise ConfigError(
            "tune needs a budget: MiB per client (--budget-mib), minutes of search (--minutes), or both"
        )
    for name, value in (("--budget-mib", budget_mib), ("--minutes", minutes)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{name} {value} must be a number above 0")
    if config.run.engine == "flower":
        raise ConfigError(
            "tune tries its candidates in a simulation; choose run.engine = local, ray or inline"
        )
    if not config.run.share_metrics:
        raise ConfigError("tune chooses by what clients measure; set run.share_metrics = true")
    changes: dict[str, Any] = {"run": {"checkpoint_every": 1}}
    if not config.data.validation:
        changes["data"] = {"validation": SHARE}
    config = config.updated(changes)
    job = Job.build(config)
    job.check_data()
    job.describe_clients(), job.describe_layout()  # whatever is wrong with data or model shows here
    return config


@dataclass
class Search:
    folder: Path
    trials: list[Trial]
    budget: float | None
    minutes: float | None
    watcher: SearchWatcher
    reached: dict[Trial, int] = field(default_factory=dict)  # the last rung of each, from 1
    failed: dict[Trial, str] = field(default_factory=dict)  # why

    def run(self) -> list[Trial]:
        """Climb all rungs; the finalists, whose runs are complete."""
        in_play = self.trials
        rungs = rung_rounds(self.trials[0].planned)
        for number, until in enumerate(rungs, start=1):
            in_play = self._climb(number, len(rungs), until, in_play)
        for trial in in_play:
            trial.finish()
        return in_play

    def _climb(self, rung: int, of: int, until: int, in_play: list[Trial]) -> list[Trial]:
        """Run one rung; those of its trials that go on to the next, or that are the finalists."""
        ends = None if self.minutes is None else 60 * self.minutes * rung / of
        done: list[Trial] = []
        self.watcher.rung_begun(rung, of, until, len(in_play))
        for place, trial in enumerate(in_play, start=1):
            line = self._line(trial, until)
            if line is None:
                if ends is not None and len(done) >= FEWEST and self._spent() >= ends:
                    break
                line = self._advance(trial, rung, until, place, len(in_play))
            if line["failed"]:
                self.failed[trial] = line["failed"]
                continue
            done.append(trial)
            self.reached[trial] = rung
        if not done:
            raise RunError("every candidate failed: " + "; ".join(dict.fromkeys(self.failed.values())))
        best_first = ranked(done, self.budget)
        kept = best_first if rung == of else best_first[: max(FEWEST, math.ceil(len(in_play) / FEWER))]
        for trial in self.trials:
            if trial not in kept and trial.started and not trial.complete:
                trial.drop_checkpoints(keep=0)  # its records stay
        return kept

    def _line(self, trial: Trial, until: int) -> dict[str, Any] | None:
        """What the journal says of the trial in this rung; None: it is still to be done."""
        names = (trial.candidate.name, until)
        return next((line for line in self._journal() if (line["trial"], line["until"]) == names), None)

    def _advance(self, trial: Trial, rung: int, until: int, place: int, of: int) -> dict[str, Any]:
        self.watcher.trial_begun(trial, place, of)
        began = time.monotonic()
        left = None if self.minutes is None else began + max(60 * self.minutes - self._spent(), 0.0)
        failed = ""
        try:
            if trial.may_go_on(self.budget):
                trial.advance(Pacer(trial, until, self.budget, left, self.watcher))
        except EngineError as problem:  # as when every client diverged: this candidate is no good
            failed = str(problem)
        line = {
            "trial": trial.candidate.name, "rung": rung, "until": until, "rounds": trial.rounds,
            "seconds": time.monotonic() - began, "failed": failed,
        }  # fmt: skip
        with writing(self.folder / JOURNAL):
            append_line(self.folder / JOURNAL, json.dumps(line))
        self.watcher.trial_done(trial, failed)
        return line

    def _journal(self) -> Iterator[dict[str, Any]]:
        file = self.folder / JOURNAL
        for number, line in enumerate(read_lines(file), start=1):
            yield check(file, line, LINE, f"line {number}", "take the line out, or choose another --out")

    def _spent(self) -> float:
        """Seconds of searching, also of earlier calls; those of a trial that was cut off do not count."""
        return sum(float(line["seconds"]) for line in self._journal())


def rung_rounds(rounds: int) -> list[int]:
    """At which round each rung ends: after a ninth, a third, all; not before the second."""
    ends = (max(2, math.ceil(rounds / FEWER**k)) for k in range(RUNGS))
    return sorted({min(end, rounds) for end in ends})
