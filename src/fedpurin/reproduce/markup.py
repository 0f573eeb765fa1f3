"""A table with the paper's numbers beside ours, as Markdown and as LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

WORDS = 20  # text longer than this is aligned left
SAME = 5e-3  # values this near are printed alike and share their rank


@dataclass(frozen=True)
class Entry:
    """One measured value; `note` marks what is not comparable, such as an unfinished run."""

    value: float
    spread: float | None = None
    paper: float | None = None
    note: str = ""
    rank: int = 0  # 1 best, 2 second, 0 neither

    def parts(self) -> tuple[str, str, str]:
        """Value, spread and comparison as plain text."""
        spread = f" ± {self.spread:.2f}" if self.spread is not None else ""
        beside = f" ({self.paper:.2f}, {self.value - self.paper:+.2f})" if self.paper is not None else ""
        return f"{self.value:.2f}", spread, beside

    def markdown(self) -> str:
        value, spread, beside = self.parts()
        marked = {1: f"**{value}**", 2: f"<u>{value}</u>"}.get(self.rank, value)
        return f"{marked}{spread}{beside}{' ' + self.note if self.note else ''}"

    def latex(self) -> str:
        value, spread, beside = self.parts()
        marked = {1: f"\\textbf{{{value}}}", 2: f"\\underline{{{value}}}"}.get(self.rank, value)
        text = marked + spread.replace("±", "$\\pm$") + beside.replace("-", "$-$")
        return text + (f" {latex_text(self.note)}" if self.note else "")


Item = Entry | str


@dataclass(frozen=True)
class MarkupTable:
    title: str
    header: list[str]
    rows: list[list[Item]]  # the first item of a row is its name
    notes: list[str]

    def markdown(self) -> str:
        columns = range(len(self.header))
        lines = [_line(self.header), _line(["---" if self._has_words(i) else "---:" for i in columns])]
        rows: list[list[Item]] = self.rows or [["not run yet", *["-"] * (len(self.header) - 1)]]
        lines += [_line([i.markdown() if isinstance(i, Entry) else i for i in row]) for row in rows]
        return "\n".join(lines + (["", *self.notes] if self.notes else [])) + "\n"

    def _has_words(self, column: int) -> bool:
        items = [row[column] for row in self.rows]
        return column == 0 or any(isinstance(item, str) and len(item) > WORDS for item in items)

    def latex(self) -> str:
        lines = [
            "% needs \\usepackage{booktabs}",
            "\\begin{table}",
            f"\\caption{{{latex_text(' '.join([self.title, *self.notes]))}}}",
            f"\\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}",
            "\\toprule",
            _latex_row(self.header),
            "\\midrule",
            *(_latex_row(row) for row in self.rows),
            "\\bottomrule",
            "\\end{tabular}",
            "\\end{table}",
        ]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Paragraphs:
    """Text with numbers from the store, where a table would say less."""

    lines: list[str]

    def markdown(self) -> str:
        return "\n".join(self.lines) + "\n"

    def latex(self) -> str:
        return "\n\n".join(latex_text(line) for line in self.lines) + "\n"


def _line(items: Sequence[str]) -> str:
    return "| " + " | ".join(item.replace("|", "\\|") for item in items) + " |"


def _latex_row(items: Sequence[Item]) -> str:
    return " & ".join(i.latex() if isinstance(i, Entry) else latex_text(i) for i in items) + " \\\\"


SYMBOLS = {"α": "alpha", "β": "beta", "τ": "tau", "±": "pm", "†": "dagger", "≥": "ge"}
LATEX = {
    **{letter: f"\\{letter}" for letter in "%_&#{}"},
    **{letter: f"$\\{name}$" for letter, name in SYMBOLS.items()},
    **{"\\": "\\textbackslash{}", "−": "$-$", "`": "", "*": ""},
}


def latex_text(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in re.sub("</?u>", "", text))


def rank_columns(rows: list[list[Item]]) -> list[list[Item]]:
    """Mark best and second in every column; entries with a note are shown but not ranked."""
    marked = [list(row) for row in rows]
    for column in range(1, max((len(row) for row in rows), default=0)):
        ranked = [(row, e) for row in marked if isinstance(e := row[column], Entry) and not e.note]
        if len(ranked) < 2:
            continue
        levels: list[float] = []
        for value in sorted((e.value for _, e in ranked), reverse=True):
            if not levels or levels[-1] - value >= SAME:
                levels.append(value)
        for row, entry in ranked:
            for place, level in enumerate(levels[:2], start=1):
                if abs(entry.value - level) < SAME:
                    row[column] = replace(entry, rank=place)
    return marked
