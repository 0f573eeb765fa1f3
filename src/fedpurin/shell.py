"""Commands and texts as they are printed: a command can be pasted into a shell, a text stays on its line.

Names of files are bytes, and may hold spaces, quotes, line breaks, or what moves a terminal's cursor.
"""

from __future__ import annotations

import os
import shlex


def word(value: object) -> str:
    """One word of a command, quoted where a shell would read it as anything else."""
    text = str(value)
    if text.isprintable():
        return shlex.quote(text)
    plain = [chr(b) if 32 <= b < 127 and b not in b"'\\" else f"\\x{b:02x}" for b in os.fsencode(text)]
    return f"$'{''.join(plain)}'"  # bash and zsh; there is no other way to write these on one line


def command(*words: object) -> str:
    """`fedpurin` with these words behind it."""
    return " ".join(["fedpurin", *map(word, words)])


def one_line(text: str) -> str:
    """The text with line breaks, and all else that is no character to be seen, spelled out."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
