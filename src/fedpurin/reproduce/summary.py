"""The first page in sentences, from the store; what has not been run is named, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedpurin.reproduce.communication import traffic
from fedpurin.reproduce.findings import CIFAR, PASSED, shares, sixty_rounds
from fedpurin.reproduce.frontier import mib_in_all, mib_to, mib_until
from fedpurin.reproduce.markup import Paragraphs
from fedpurin.reproduce.recipes import RECIPES, Variant
from fedpurin.reproduce.result_store import Record
from fedpurin.reproduce.scales import Request
from fedpurin.reproduce.source import Source, seed_numbers
from fedpurin.reproduce.stats import LAST, Difference, noise, paired, paired_best
from fedpurin.runs.same_setting import method_label
from fedpurin.runs.traffic import running_mean, traffic_to

SHOWN_LEVELS = (65, PASSED)  # percent
SIXTY = Request(scale="paper", rounds=60)
FULL = ("cifar-10", 0.1)  # the setting of the paper's table of bytes


def summary(source: Source) -> Paragraphs:
    lines = [
        _best(source),
        _shares(source),
        _to_level(source),
        *_ends(source),
        _groups(source),
        _full(source),
    ]
    return Paragraphs([f"- {line}" for line in lines if line])


def rows_of(source: Source, recipe: str, request: Request) -> dict[str, tuple[Variant, list[Record]]]:
    """The rows of a recipe at CIFAR-10, alpha 0.5, by id, with what the store has of each."""
    here = replace(source, request=request)
    return {row.id: (row, here.records(RECIPES[recipe], row, CIFAR)) for row in RECIPES[recipe].rows}


def _best(source: Source) -> str:
    """Each method over the seeds that it has, which are named."""
    rows = rows_of(source, "table-accuracy", SIXTY).values()
    finished = [(row, [r for r in records if r.complete]) for row, records in rows]
    best = sorted(
        ((float(np.mean([r.best() for r in records])), row, records) for row, records in finished if records),
        key=lambda found: -found[0],
    )
    said = []
    for mean, row, records in best:
        printed = source.paper.number("accuracy", row.id, *CIFAR)
        said.append(f"{row.label} {mean:.2f} ({printed:.2f}; {_numbers(records)})")
    where = "CIFAR-10, α = 0.5, T = 60; in brackets the paper's with T = 200 and 3 seeds, and our seeds"
    return f"**Best round**, as uploaded, in percent, {where}: {', '.join(said)}." if said else ""


def _numbers(records: Sequence[Record]) -> str:
    return seed_numbers(record.config.run.seed for record in records)


def _shares(source: Source) -> str:
    said = shares(sixty_rounds(source))
    return f"**Bytes a round.** {said}" if said else ""


def _to_level(source: Source) -> str:
    rows = rows_of(source, "table-worth", SIXTY).values()
    finished = {row.label: rs for row, rs in rows if rs and rs[0].complete}
    if not finished:
        return ""
    lower, level = (float(at) for at in SHOWN_LEVELS)
    order = {label: [_mib(records, at) for at in (lower, level)] for label, records in finished.items()}
    said = [
        f"{label} ({_numbers(finished[label])}) "
        f"{mib_to(finished[label], 'trained', lower)} / {mib_to(finished[label], 'trained', level)}"
        f"{_highest(finished[label]) if np.isinf(order[label][1]) else ''}"
        for label in sorted(order, key=lambda label: order[label])
    ]
    text = (
        f"**Bytes to an accuracy.** MiB per client, both ways, to {lower:g} / {level:g} % after training "
        f"(means of three rounds): {'; '.join(said)}"
    )
    missing = [row.label for row, _ in rows if row.label not in finished]
    return text + (f"; not run to the end: {' / '.join(missing)}." if missing else ".")


def _mib(records: Sequence[Record], level: float) -> float:
    """To sort by: infinite where no seed gets there."""
    reached = [traffic_to(100 * r.curve("trained"), mib_until(r, "trained"), level) for r in records]
    return min((mib for mib in reached if mib is not None), default=float("inf"))


def _highest(records: Sequence[Record]) -> str:
    best = max(float(np.nanmax(100 * running_mean(record.curve("trained")))) for record in records)
    return f", highest {best:.1f} %"


def by_seed(source: Source) -> Paragraphs:
    """FedFrugal and its rivals seed by seed, and the paired differences where they share seeds."""
    rows = rows_of(source, "table-worth", SIXTY)
    lines = []
    for row, records in rows.values():
        seeds = [_of_one_seed(record) for record in records if record.complete]
        if seeds:
            lines.append(f"- {row.label}. {'; '.join(seeds)}.")
    _, ours = rows["fedfrugal"]
    for row, theirs in (rows["fedpurin"], rows["fedbn"]):
        gap = paired(ours, theirs, "trained")
        if gap is not None:
            lines.append(f"- FedFrugal − {row.label}, last ten rounds, {_seeds(gap)}: {_said(gap)}.")
    return Paragraphs(lines or ["- nothing measured yet"])


def _of_one_seed(record: Record) -> str:
    mib, end = mib_to([record], "trained", PASSED), record.mean("trained", slice(-LAST, None))
    passed = f"{PASSED} % {'never' if mib == 'never' else f'with {mib} MiB'}"
    seed, total = record.config.run.seed, mib_in_all([record])
    return f"seed {seed}: {passed}, {end:.2f} % at the end, {total:.1f} MiB in all"


def _seeds(gap: Difference) -> str:
    return f"{gap.seeds} seed{'s' if gap.seeds > 1 else ''}"


def _ends(source: Source) -> list[str]:
    """FedPURIN beside the two that the paper names, at the end and at each one's best."""
    rows = rows_of(source, "table-accuracy", SIXTY)
    _, ours = rows["fedpurin"]
    lines = []
    for row, theirs in (rows["fedbn"], rows["fedcac"]):
        trained, sent = (paired(ours, theirs, moment) for moment in ("trained", "upload"))
        best = paired_best(ours, theirs, "trained")
        if trained is not None:
            lines.append(
                f"**FedPURIN − {row.label}**, points up to round {trained.rounds}, {_seeds(trained)}. Last "
                f"ten rounds: {_said(trained)} after training, {_said(sent)} as uploaded. Each one's best "
                f"ten rounds: {_said(best)} after training."
            )
    twins = [twin for record in ours for twin in noise(record, source.store.records())]
    said = "; ".join(f"another {what} {gap.text()}" for what, gap in twins)
    return (
        [*lines, f"**Size of noise.** FedPURIN with {said} (last ten rounds, after training)."]
        if said
        else lines
    )


def _said(gap: Difference | None) -> str:
    return f"{gap.text()} ({gap.verdict_here})" if gap else "-"


def _groups(source: Source) -> str:
    rows = rows_of(source, "table-beta", SIXTY)
    bases = {row.method: rs for row, rs in reversed(rows.values())}  # the first of each method
    said, missing = [], []
    for row, records in rows.values():
        base = bases[row.method]
        if records is base:
            continue
        if not records or not records[0].complete:
            missing.append(f"{row.label}{_so_far(records)}")
            continue
        gap = paired(records, base, "trained")
        said.append(f"{row.label}: {_said(gap)}{f', {_seeds(gap)}' if gap else ''}")
    beside = "beside the same method with β = T / 2 (last ten rounds after training)"
    text = f"**Groups**, {beside}. {'; '.join(said)}."
    waits = f"{'Not' if said else '**Groups.** Not'} run to the end: {'; '.join(missing)}."
    return " ".join([*([text] if said else []), *([waits] if missing else [])])


def _so_far(records: Sequence[Record]) -> str:
    return f" ({records[0].done} rounds so far)" if records else ""


def full_length(source: Source) -> list[Record]:
    """FedPURIN on CIFAR-10, alpha 0.1, at the paper's length."""
    here, recipe = replace(source, request=Request(scale="paper")), RECIPES["table-accuracy"]
    return here.records(recipe, recipe.row("fedpurin"), FULL)


def _full(source: Source) -> str:
    records, name = full_length(source), "**The paper's full length** (CIFAR-10, α = 0.1, T = 200)"
    if not records or not records[0].complete:
        return f"{name}: FedPURIN is not run to the end{_so_far(records)}."
    best = sum(record.best() for record in records) / len(records)
    ours, printed = traffic(records), source.paper.traffic(*FULL, "fedpurin") or []
    pairs = [f"{a:.2f} ({b:.2f})" for a, b in zip(ours, printed, strict=True) if a is not None]
    seeds = ", ".join(str(record.config.run.seed) for record in records)
    return (
        f"{name}, seed {seeds}; in brackets the paper, three seeds: {method_label('fedpurin')} {best:.2f} % "
        f"({source.paper.number('accuracy', 'fedpurin', *FULL):.2f}); MiB up until and after β "
        f"{pairs[0]} and {pairs[1]}, down {pairs[2]} and {pairs[3]}."
    )
