"""The one place that makes consoles. What is printed is data (paths, names, messages), never markup.

Style comes from `style=` or `rich.text.Text`: a folder that is called m[bold] is printed as it is called.
"""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.progress import TextColumn
from rich.text import Text

from fedpurin.shell import one_line


class _Screen(Console):
    """What others wrote (a run directory, another machine) may hold what moves a terminal's cursor."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str("\n".join(map(one_line, text.split("\n"))), **options)


def make_console(**options: Any) -> Console:
    """The options are those of rich."""
    return _Screen(markup=False, emoji=False, highlight=False, **options)


def is_terminal(*, stderr: bool = False) -> bool:
    """A program that was started without stdout has None in its place."""
    screen = sys.stderr if stderr else sys.stdout
    return screen is not None and screen.isatty()


def text_column(form: str) -> TextColumn:
    """A column of a progress bar."""
    return TextColumn(form, markup=False)
