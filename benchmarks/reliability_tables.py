"""The tables of docs/reliability.md, from what `benchmarks.reliability` found; a test holds the page to them.

python -m benchmarks.reliability tables
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.reliability import GUARDED, GUARDS, LIED_TO, LIES, METHODS, RESULTS, SHARES, mean
from fedpurin.config import Config
from fedpurin.report.style import METHOD_LABELS

SEED = "s1"
LAST = 5  # rounds of a whole run whose mean is shown

Found = dict[str, Any]
Rows = dict[str, list[str]]


def tables() -> dict[str, str]:
    """By the benchmark they are from."""
    makers = {"dropouts": dropouts, "peers": peers, "liars": liars}
    return {name: make(json.loads((RESULTS / f"{name}.json").read_text())) for name, make in makers.items()}


def dropouts(found: Found) -> str:
    """Accuracy after the last reply."""
    runs = {method: [found[f"{method} {share:g} {SEED}"] for share in SHARES] for method in METHODS}
    rows = {METHOD_LABELS[method]: [percent(run["final"]) for run in row] for method, row in runs.items()}
    return markdown(
        ["after the last reply, all 20 clients", *(f"{100 * share:.0f} %" for share in SHARES)], rows
    )


def peers(found: Found) -> str:
    """Accuracy of the honest clients after the one round in which others lied."""
    rows = {
        f"{METHOD_LABELS[method]}{said(guard)}": [
            percent(found[f"{method} {SEED}"][f"{attack} {bad} {guard}"]["merged"]) for attack, bad in LIES
        ]
        for method, guards in GUARDED.items()
        for guard in guards
    }
    return markdown(["", *map(lie, LIES)], rows)


def liars(found: Found) -> str:
    """Accuracy of the honest clients over the last rounds after training, or when nobody was left."""
    planned = Config.preset("quickstart").run.rounds

    def cell(trained: list[float]) -> str:
        short = len(trained) < planned
        return f"ended in round {len(trained) + 1}" if short else percent(mean([*trained[-LAST:]]))

    rows = {
        f"{METHOD_LABELS[method]}{said(guard)}": [
            cell(found[f"{method} {attack} {bad} {guard} {SEED}"]["trained"]) for attack, bad in LIES
        ]
        for method, guards in LIED_TO.items()
        for guard in guards
    }
    return markdown(["", *map(lie, LIES)], rows)


def said(guard: str) -> str:
    return "".join(f", `{option} = {value:g}`" for option, value in GUARDS[guard].items())


def lie(case: tuple[str, int]) -> str:
    attack, bad = case
    return f"{bad} {attack}" if bad else "nobody lies"


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def markdown(header: list[str], rows: Rows) -> str:
    lines = [header, *([name, *cells] for name, cells in rows.items())]
    first, *others = ("|" + "|".join(f" {cell} " if cell else " " for cell in line) + "|" for line in lines)
    return "\n".join([first, "|" + "---|" * len(header), *others])
