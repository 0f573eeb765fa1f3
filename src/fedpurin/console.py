"""The one place that makes consoles. What is printed is data (paths, names, messages), never markup.

Style comes from `style=` or `rich.text.Text`: a folder that is called m[bold] is printed as it is called.
"""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.progress import TextColumn


def make_console(**options: Any) -> Console:
    """The options are those of rich."""
    return Console(markup=False, emoji=False, highlight=False, **options)


def is_terminal(*, stderr: bool = False) -> bool:
    """A program that was started without stdout has None in its place."""
    screen = sys.stderr if stderr else sys.stdout
    return screen is not None and screen.isatty()


def text_column(form: str) -> TextColumn:
    """A column of a progress bar."""
    return TextColumn(form, markup=False)
