"""What a search found: the Pareto front, the configuration to take, and what was not tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedpurin.config import Config
from fedpurin.errors import RunError
from fedpurin.runs.directory import stored_config
from fedpurin.runs.traffic import fronts
from fedpurin.tuning.candidates import never_varied
from fedpurin.tuning.trial import Standing, Trial


@dataclass(frozen=True)
class RankedTrial:
    trial: Trial
    standing: Standing
    rung: int  # how far it came
    on_front: bool = False
    recommended: bool = False


@dataclass(frozen=True)
class SearchOutcome:
    rows: list[RankedTrial]  # all that were tried, finalists first, each part by accuracy
    rungs: int
    budget_mib: float | None
    config: Config  # the recommended one
    why: str
    not_tried: list[str]

    @property
    def recommended(self) -> RankedTrial:
        return next(row for row in self.rows if row.recommended)

    @property
    def finalists(self) -> list[RankedTrial]:
        return [row for row in self.rows if row.rung == self.rungs]


def ranked(trials: Sequence[Trial], budget: float | None) -> list[Trial]:
    """Best first: those within the budget; front by front; the more accurate before the others."""
    standings = [Standing.of(trial, budget) for trial in trials]
    levels = fronts([(s.validation, s.mib) for s in standings])
    order = sorted(
        range(len(trials)),
        key=lambda i: (not standings[i].fits, levels[i], -standings[i].validation, standings[i].mib),
    )
    return [trials[i] for i in order]


def make_outcome(
    trials: Sequence[Trial],
    reached: Mapping[str, int],
    finalists: Sequence[Trial],
    budget: float | None,
    left_out: Sequence[str],
) -> SearchOutcome:
    rungs = max(reached.values())
    tried = [trial for trial in trials if trial.candidate.name in reached]
    standings = {trial.candidate.name: Standing.of(trial, budget) for trial in tried}
    last = [standings[trial.candidate.name] for trial in finalists]
    chosen, why = choose(last, budget)
    front = dict(zip(finalists, fronts([(s.validation, s.mib) for s in last]), strict=True))
    rows = [
        RankedTrial(
            trial,
            standings[trial.candidate.name],
            reached[trial.candidate.name],
            front.get(trial) == 0,
            trial is finalists[chosen],
        )
        for trial in tried
    ]
    rows.sort(key=lambda row: (-row.rung, -row.standing.validation, row.standing.mib))
    never = [t.label for t in trials if not t.started]
    no_time = [f"there was no time for {'; '.join(never)}"] if never else []
    not_tried = [*no_time, *left_out, *never_varied([t.candidate.config for t in tried])]
    return SearchOutcome(rows, rungs, budget, stored_config(finalists[chosen].path), why, not_tried)


def choose(standings: Sequence[Standing], budget: float | None) -> tuple[int, str]:
    """Which finalist to take, and why.

    With a budget of MiB the most accurate that fits. Without one the cheapest of those that cannot be told
    apart from the most accurate: within one standard error of it.
    """
    fitting = [i for i, s in enumerate(standings) if s.fits]
    if not fitting:
        least = min(s.mib for s in standings)
        raise RunError(
            f"no finalist fits the budget: the cheapest sends {least:.3g} MiB per client in "
            f"two rounds; allow more than {budget:g} MiB"
        )
    best = max(fitting, key=lambda i: (standings[i].validation, -standings[i].mib))
    if budget is not None:
        return (
            best,
            f"the highest validation accuracy of the finalists that stay within {budget:g} MiB per client",
        )
    top = standings[best]
    equal = [i for i in fitting if standings[i].validation >= top.validation - top.error]
    cheapest = min(equal, key=lambda i: (standings[i].mib, -standings[i].validation))
    if cheapest == best:
        return best, "the highest validation accuracy; none that is as good within its error is cheaper"
    return cheapest, (
        f"the cheapest of the finalists within one standard error ({100 * top.error:.1f} points) of the "
        f"highest validation accuracy ({100 * top.validation:.1f} %)"
    )
