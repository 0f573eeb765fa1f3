"""Blocks of Markdown that are made from the store, so that a number in the docs cannot drift from it.

<!-- reproduce table-accuracy --scale mini -->
(generated)
<!-- end -->
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from fedpurin.errors import DataError
from fedpurin.files import write_atomic

BLOCK = re.compile(r"(<!-- reproduce (?P<words>[^\n]*?) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)
Render = Callable[[list[str]], str]


def regenerate(text: str, render: Render) -> str:
    """The text with every block made anew from its command line."""
    if text.count("<!-- reproduce ") != len(BLOCK.findall(text)):
        raise DataError("a <!-- reproduce ... --> block has no <!-- end -->; add it on a line of its own")

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}{render(shlex.split(match['words']))}{match[4]}"

    return BLOCK.sub(block, text)


def update(file: Path, render: Render, *, check: bool) -> bool:
    """Rewrite the file's blocks, or only look. Returns whether it was up to date."""
    try:
        before = file.read_text("utf-8")
    except OSError as problem:
        raise DataError(f"cannot read {file}: {problem.strerror}") from problem
    after = regenerate(before, render)
    if after != before and not check:
        write_atomic(file, after)
    return after == before
