"""A result in the documents is generated: no accuracy, difference or traffic is typed into the prose by hand.

Looked for: decimals, and whole numbers of %, points or MiB. Code, generated blocks and links do not count.
"""

from __future__ import annotations

import re

import pytest
from blocks import CHECKOUT, GENERATED

# Speed, memory and faults: from the benchmarks that these pages name, not from runs of the store.
MEASURED = {"docs/scaling.md", "docs/reliability.md", "docs/federation.md"}

# Page, phrase and why it is no result.
ALLOWED = {
    "README.md": {"Python 3.11": "a version", "Version 0.2": "a version", "Apache-2.0": "a licence"},
    "docs/start.md": {"Python 3.11": "a version", "(3.11 is what we test)": "a version"},
    "docs/frontier.md": {
        "alpha 0.5": "a setting",
        "69 % with 8 MiB, 20 MiB in all and 71 %": "goals that were set before the runs",
    },
    "docs/fidelity.md": {
        "section 4.1": "of the paper",
        "section 4.2": "of the paper",
        "53.3 %": "printed in the paper",
    },
    "docs/reproduction.md": {
        "α = 0.1": "a setting",
        "α = 0.5": "a setting",
        "of 95 %": "the intervals' level",
        "a 95 % bootstrap": "the same",
        "within 0.05 points": "the bar of a verdict",
        "60, 65 and 69 %": "levels that were set before the runs",
        "0.1 with momentum of 0.9": "the paper's settings",
        "the 1 % step": "how far the check goes",
        "53.3 % less uplink": "printed in the paper",
        "section 4.1": "of the paper",
        "section 4.2": "of the paper",
        "follow 4.2": "the same",
    },
    "docs/report.md": {"60, 65, 69 %": "levels that the report looks for", "and 69 %": "the same"},
    "docs/run-directory.md": {"version 0.1": "a version"},
}
CODE = re.compile(r"^( *)(`{3,}).*?^\1\2|^ {4,}\S[^\n]*|`[^`\n]+`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\([^)\n]*\)")
RESULT = re.compile(r"\d+\.\d+(?: ?(?:%|points?\b|[KMG]iB))?|\d+ ?(?:%|points?\b|[KMG]iB)")
PAGES = sorted(
    {str(file.relative_to(CHECKOUT)) for file in [CHECKOUT / "README.md", *(CHECKOUT / "docs").rglob("*.md")]}
    - MEASURED
)


def typed_results(page: str, allowed: list[str]) -> list[str]:
    """Each with its line."""
    for hidden in (GENERATED, CODE, LINK, *(re.compile(re.escape(phrase)) for phrase in allowed)):
        page = hidden.sub(lambda match: "-" + "\n" * match[0].count("\n"), page)
    lines = enumerate(page.split("\n"), start=1)
    return [f"{number}: {match[0]}" for number, line in lines for match in RESULT.finditer(line)]


@pytest.mark.parametrize("page", PAGES)
def test_no_result_is_typed_by_hand(page: str) -> None:
    found = typed_results((CHECKOUT / page).read_text("utf-8"), list(ALLOWED.get(page, {})))
    assert not found, (
        f"{page} holds figures that nothing makes anew: {', '.join(found)}. Put them into a block "
        "(<!-- reproduce ... -->), say it without a figure, or, if it is no result, into backticks or ALLOWED"
    )


def test_what_is_allowed_is_still_there() -> None:
    unused = [
        f"{page}: {phrase}"
        for page, phrases in ALLOWED.items()
        for phrase in phrases
        if phrase not in (CHECKOUT / page).read_text("utf-8")
    ]
    assert not unused


PAGE = """
FedBN is at 77.1, five points above, with 3 MiB.

<!-- reproduce table-bundled -->
| FedBN | 77.1 |
<!-- end -->

```sh
fedpurin run --alpha 0.7
```

    tau = 0.3

- [a link](runs/a0.5.png), `beta = 0.1`; +1.4 points, 12 %; alpha 0.5
- 2,000 images, 20 clients, round 8
"""


def test_figures_are_found_in_prose_alone() -> None:
    assert typed_results(PAGE, ["alpha 0.5"]) == ["2: 77.1", "2: 3 MiB", "14: 1.4 points", "14: 12 %"]
