"""Blocks of Markdown that are made anew, so that a number in the docs cannot drift from where it comes from.

<!-- reproduce table-accuracy --scale mini -->     a table, from the store of results
<!-- output fedpurin show runs/demo -->            what a command prints, called in the folder of the page
(generated)
<!-- end -->
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from fedpurin.errors import ConfigError, DataError
from fedpurin.files import read_bounded, write_atomic

BLOCK = re.compile(
    r"(?P<begin><!-- (?P<kind>reproduce|output) (?P<words>[^\n]*?) -->\n)(?P<body>.*?)(?P<end><!-- end -->)",
    re.DOTALL,
)
Render = Callable[[list[str]], str]
COLUMNS = 100
LARGEST_PAGE = 2**24  # bytes


def renewed(text: str, render: Render, folder: Path) -> str:
    """The text with every block made anew from its command line; commands are called in `folder`."""
    if len(re.findall("^<!-- (?:reproduce|output) ", text, re.MULTILINE)) != len(BLOCK.findall(text)):
        raise DataError(
            "a <!-- reproduce ... --> or <!-- output ... --> block has no <!-- end -->; "
            "add it on a line of its own"
        )

    def block(match: re.Match[str]) -> str:
        words = words_of(match["words"], f"<!-- {match['kind']} {match['words']} -->")
        body = render(words) if match["kind"] == "reproduce" else output(words, folder)
        return f"{match['begin']}{body}{match['end']}"

    return BLOCK.sub(block, text)


def words_of(line: str, where: str) -> list[str]:
    """The words of a command line that stands in a file."""
    try:
        return shlex.split(line)
    except ValueError as problem:
        raise ConfigError(f"{where} is no command line ({problem}); mend its quotes") from None


def output(words: list[str], folder: Path) -> str:
    """What a command prints, as a block of text."""
    if words[:1] != ["fedpurin"]:
        raise DataError(f"<!-- output {shlex.join(words)} -->: only fedpurin's commands can be called")
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=os.environ | {"COLUMNS": str(COLUMNS), "NO_COLOR": "1", "TERM": "dumb"},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise DataError(f"{shlex.join(words)} failed: {done.stderr.strip() or done.stdout.strip()}")
    lines = "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())
    return f"\n```text\n{lines}\n```\n\n"


def update(file: Path, render: Render, *, check: bool) -> bool:
    """Rewrite the file's blocks, or only look. Returns whether it was up to date."""
    try:
        before = read_bounded(file, LARGEST_PAGE).decode()
    except OSError as problem:
        raise DataError(f"cannot read {file}: {problem.strerror}; name a Markdown file") from problem
    except UnicodeDecodeError as problem:
        raise DataError(f"{file} is not UTF-8 ({problem}); name a Markdown file") from problem
    after = renewed(before, render, file.parent)
    if after != before and not check:
        write_atomic(file, after)
    return after == before
