"""The first lines of docs/reproduction.md: what the store says so far, in words that follow the data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from fedpurin.reproduce.claims_tables import verdict_counts
from fedpurin.reproduce.communication import traffic
from fedpurin.reproduce.findings import PASSED, passes, shares, sixty_rounds
from fedpurin.reproduce.findings_score import score_verdicts, without_groups
from fedpurin.reproduce.frontier import mib_in_all, mib_until
from fedpurin.reproduce.markup import Paragraphs
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.source import Source, seed_numbers
from fedpurin.reproduce.stats import Difference, noise, paired, partners
from fedpurin.reproduce.summary import FULL, SIXTY, full_length, rows_of
from fedpurin.runs.same_setting import method_label
from fedpurin.runs.traffic import traffic_to

LEVEL = 65  # percent, for bytes to an accuracy: every method that talks gets there on every split so far
RIVALS = ("fedavg", "fedcac", "fedbn", "fedbn-int8", "fedbn-silent")
CHEAP, BY_RUN = "less beside", "less for the whole run only beside"
BY_LEVEL, DEARER = "less to the level only beside", "more beside"
CHEAPER = (CHEAP, BY_RUN, BY_LEVEL, DEARER)
CLEAR = ("better", "worse")
ORDER = {"better": "above", "not distinguishable": "not distinguishable from", "worse": "below"}


def headlines(source: Source) -> Paragraphs:
    said = {
        "Bytes": " ".join(text for text in (_full_bytes(source), shares(sixty_rounds(source))) if text),
        "Accuracy": _accuracy(source),
        "Speed": _speed(source),
        "Worth its bytes?": _worth(source),
        "Groups": without_groups(source),
        "The score": score_verdicts(source),
        "Claims": f"{verdict_counts(source)}; the paper's main table alone is 189 runs of 200 or 300 rounds.",
    }
    titles = {name: name if name.endswith("?") else f"{name}." for name in said}
    return Paragraphs([f"- **{titles[name]}** {text}" for name, text in said.items() if text])


def _full_bytes(source: Source) -> str:
    records = [record for record in full_length(source) if record.complete]
    printed = source.paper.traffic(*FULL, "fedpurin")
    if not records or printed is None:
        return ""
    pairs = zip(traffic(records), printed, strict=True)
    furthest = max(abs(ours - theirs) for ours, theirs in pairs if ours is not None)
    where = f"CIFAR-10, α = 0.1, {_numbers(records)}"
    means = "four means (up and down, until and after β)"
    return f"Over the paper's 200 rounds ({where}) FedPURIN's {means} are the paper's to {furthest:.2f} MiB."


def _numbers(records: Sequence[Record]) -> str:
    return seed_numbers(record.config.run.seed for record in records)


def _accuracy(source: Source) -> str:
    """By verdict: what FedPURIN is above, level with and below, and on how many splits."""
    runs = sixty_rounds(source)
    ours = runs.pop("fedpurin", [])
    told: dict[str, list[str]] = {verdict: [] for verdict in ORDER}
    for method, theirs in runs.items():
        gap = paired(ours, theirs, "trained")
        if gap is not None:
            told[gap.verdict].append(f"{method_label(method)} ({_beside(gap, ours, theirs)})")
    said = "; ".join(f"{words} {', '.join(told[v])}" for v, words in ORDER.items() if told[v])
    if not said:
        return ""
    where = "CIFAR-10, α = 0.5, last ten of 60 rounds, after training"
    twins = [twin for record in ours for twin in noise(record, source.store.records())]
    again = "; ".join(f"another {what} alone, {gap.text()}" for what, gap in twins)
    return f"{where}, in points: FedPURIN is {said}. Size of noise: {again or 'not measured yet'}."


def _beside(gap: Difference, ours: Sequence[Record], theirs: Sequence[Record]) -> str:
    """The interval where the difference is not clear without it."""
    pairs, points = partners(ours, theirs), gap.text() if gap.verdict not in CLEAR else f"{gap.mean:+.1f}"
    if len(pairs) == 1:
        return f"{points}, one split"
    above = sum((one.mean > 0) for a, b in pairs if (one := paired([a], [b], "trained")))
    return f"{points}, above on {above} of {len(pairs)} splits"


def _speed(source: Source) -> str:
    runs = sixty_rounds(source)
    named = [runs[name] for name in ("fedpurin", "fedbn", "fedcac") if name in runs]
    said = "; ".join(passes(records) for records in named)
    return f"{PASSED} % after training is passed in round: {said}." if len(named) > 1 else ""


def _worth(source: Source) -> str:
    """FedPURIN's bytes in percent of each other's, over the seeds that both have."""
    rows = rows_of(source, "table-worth", SIXTY)
    ours, told = rows["fedpurin"][1], defaultdict[str, list[str]](list)
    for name in RIVALS:
        row, theirs = rows[name]
        pairs = [(a, b) for a, b in partners(ours, theirs) if a.complete and b.complete]
        if not pairs:
            continue
        mine, others = ([pair[i] for pair in pairs] for i in (0, 1))
        whole, level = mib_in_all(mine) / mib_in_all(others), _to_level(mine, others)
        gap = paired(mine, others, "trained")
        said = f"{row.label} ({100 * whole:.0f} / {f'{100 * level:.0f}' if level else '-'} %"
        said += f", {_numbers(mine)}" + (f"; FedPURIN {gap.text()} points)" if gap and whole >= 1 else ")")
        told[_dearer(whole, level)].append(said)
    if not told:
        return ""
    said = "; ".join(f"{words} {', '.join(told[words])}" for words in CHEAPER if words in told)
    return f"FedPURIN's traffic in percent of another's, whole run / to {LEVEL} % after training, is {said}."


def _dearer(whole: float, level: float | None) -> str:
    """For the whole run and, where both get there, to the level."""
    if level is None:
        return BY_RUN if whole < 1 else DEARER
    if (whole < 1) != (level < 1):
        return BY_RUN if whole < 1 else BY_LEVEL
    return CHEAP if whole < 1 else DEARER


def _to_level(mine: list[Record], others: list[Record]) -> float | None:
    """None where a run does not get there."""
    needed = []
    for records in (mine, others):
        mib = [traffic_to(100 * r.curve("trained"), mib_until(r, "trained"), LEVEL) for r in records]
        reached = [value for value in mib if value is not None]
        if len(reached) < len(mib):
            return None
        needed.append(float(np.mean(reached)))
    return needed[0] / needed[1] if needed[1] else None
