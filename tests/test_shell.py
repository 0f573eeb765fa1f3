"""Commands and messages as they are printed."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path

import pytest
from rich.table import Table

from fedpurin.console import make_console
from fedpurin.shell import command, one_line, word

NAMES = [
    b"plain", b"a b", b"it's", b'say "x"', b"[red]", b"$HOME", b"`id`", b"a;b", b"*", b"~", b"", b"-x",
    b"a\nb", b"tab\t", b"\x1b[2J", b"caf\xc3\xa9", b"caf\xe9", b"back\\slash", b"back\\\n", b"\xff1",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_a_printed_word_as_the_very_bytes_of_the_name(name: bytes) -> None:
    printed = word(os.fsdecode(name))
    assert printed.isprintable()
    read = subprocess.run(["bash", "-c", f"printf %s {printed}"], capture_output=True, check=True).stdout
    assert read == name


def test_a_command_is_one_line_that_can_be_pasted() -> None:
    assert command("resume", Path("runs/a b")) == "fedpurin resume 'runs/a b'"
    assert (
        command("run", Path("it's\n/c.toml"), "--seed", 3) == r"fedpurin run $'it\x27s\x0a/c.toml' --seed 3"
    )


def test_a_message_stays_on_its_line_and_moves_no_cursor() -> None:
    assert one_line("caf\u00e9 [x] \u03b1 = 0.5") == "caf\u00e9 [x] \u03b1 = 0.5"
    assert one_line("a\nb\x1b[2J\r\udcff") == r"a\nb\x1b[2J\r\udcff"


def test_nothing_that_is_printed_moves_the_cursor_wherever_it_comes_from() -> None:
    """A run directory or another machine may say anything; lines and columns of our own stay."""
    screen = io.StringIO()
    console = make_console(file=screen, width=80)
    table = Table("heading")
    table.add_row("cell\x1b[1A\u202e")
    console.print("one\x1b[2J\r\x9b1A", "\ntwo \u00b1")
    console.print(table)
    assert screen.getvalue().startswith("one\\x1b[2J\\r\\x9b1A \ntwo \u00b1\n")
    assert "cell\\x1b[1A\\u202e" in screen.getvalue()
    assert all(c.isprintable() or c == "\n" for c in screen.getvalue())
