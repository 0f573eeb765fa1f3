"""The code blocks of a Markdown page, and how each is run.

A page is run from top to bottom in an empty folder. Python blocks share their names. A block whose first
line is a comment with nothing but a file name is saved under it. A block whose first line is
`# not run: REASON` is left out, which the reader sees. Commands of fedpurin are called in this process,
training with four clients, few samples and one round.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpurin.cli import main

CHECKOUT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,})(?P<language>\S*)")
GENERATED = re.compile(r"<!-- (?:reproduce|output) [^\n]*-->.*?<!-- end -->", re.DOTALL)
COMMANDS = r"(?:fedpurin|pip|python|make|export|mkdir|cd|ray|scp|rm|sudo|nft|tensorboard|chmod|git) "
FILE_NAME = re.compile(r"# ([\w./-]+\.\w+)\s*$")
NOT_RUN = re.compile(r"# not run: \S+")
QUICK = shlex.split(
    "--rounds 1 --clients 4 --set train.epochs=1 --set data.train_samples=20 --set data.test_samples=10"
)


@dataclass(frozen=True)
class Block:
    line: int
    language: str  # sh, python, toml, text, ...
    text: str

    @property
    def first(self) -> str:
        return self.text.split("\n", 1)[0]

    @property
    def left_out(self) -> bool:
        return bool(NOT_RUN.match(self.first))


def blocks(page: str) -> Iterator[Block]:
    """Fenced and indented blocks in order, but not those that are generated."""
    page = GENERATED.sub(lambda match: "<!-- -->" + "\n" * match[0].count("\n"), page)
    lines = page.split("\n")
    at = 0
    while at < len(lines):
        start = at
        if fence := FENCE.match(lines[at]):
            at += 1
            while at < len(lines) and lines[at].strip() != fence["fence"]:
                at += 1
            body = [line[len(fence["indent"]) :] for line in lines[start + 1 : at]]
            yield Block(start + 1, fence["language"], "\n".join(body))
        elif re.match(" {4,}\\S", lines[at]) and (at == 0 or not lines[at - 1].strip()):
            while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
                at += 1
            text = _dedented(lines[start:at])
            yield Block(start + 1, _language(text), text)
            continue
        at += 1


def _dedented(lines: list[str]) -> str:
    width = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[width:] for line in lines).strip("\n")


def _language(text: str) -> str:
    """What an indented block is."""
    code = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    if code and re.match(COMMANDS, code[0]):
        return "sh"
    return "python" if code and re.match("(import|from) ", code[0]) else "text"


@dataclass
class Page:
    """Runs the blocks of one page, in the present folder."""

    path: Path
    say: Callable[[str], None]
    names: dict[str, Any] = field(default_factory=dict)

    def run(self) -> None:
        for block in blocks(self.path.read_text("utf-8")):
            where = f"{self.path.relative_to(CHECKOUT)}:{block.line}"
            self.say(f"{where} {block.language}")
            if not block.left_out:
                self.run_block(block, where)

    def run_block(self, block: Block, where: str) -> None:
        if named := FILE_NAME.match(block.first):
            sys.modules.pop(Path(named[1]).stem, None)  # another test may have had a module of this name
            Path(named[1]).parent.mkdir(parents=True, exist_ok=True)
            Path(named[1]).write_text(block.text + "\n", "utf-8")
        elif block.language == "python":
            exec(compile("\n" * block.line + block.text, str(self.path), "exec"), self.names)
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "sh":
            for command in block.text.replace("\\\n", " ").split("\n"):
                if command.strip() and not command.lstrip().startswith("#"):
                    self.run_command(command, where)
        elif not block.language.startswith("{"):  # what Sphinx is told
            assert block.language in ("", "text", "json", "console", "html"), f"{where}: {block.language}"
            assert not re.match(COMMANDS, block.text), f"{where}: write ```sh above commands"

    def run_command(self, command: str, where: str) -> None:
        words = shlex.split(command, comments=True)
        match words:
            case ["fedpurin", *rest]:
                code = call([*rest, *_quick(rest)])
                assert code == 0, f"{where}: {command} ended with {code}"
            case ["pip", "install", *what]:
                assert installable(what), f"{where}: {command} names a package or extra that is not there"
            case ["make", *targets]:
                makefile = (CHECKOUT / "Makefile").read_text()
                for target in targets:
                    name, is_variable, _ = target.partition("=")
                    line = f"\n{name} ?=" if is_variable else f"\n{name}:"
                    assert line in makefile, f"{where}: the Makefile has no {name}"
            case ["export", assignment]:
                name, _, value = assignment.partition("=")
                os.environ[name] = value
            case ["cd", folder]:
                os.chdir(folder)
            case _:
                done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300)
                assert done.returncode == 0, f"{where}: {command}\n{done.stdout}{done.stderr}"


def _quick(words: list[str]) -> list[str]:
    """What makes a command quick enough for a test."""
    match words:
        case ["run" | "compare", *rest]:
            return [*QUICK, *([] if "--engine" in rest else ["--engine", "inline"])]
        case ["reproduce", what, *rest] if what not in ("docs", "import"):  # numbers: tests/reproduce
            store = ["--experiments", str(CHECKOUT / "experiments")]
            return [*store, *([] if "--dry-run" in rest else ["--dry-run"])]
    return []


def call(words: list[str]) -> int:
    try:
        return main(words)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1


def installable(what: list[str]) -> bool:
    """Nothing is installed here: packages and extras must be those of pyproject.toml and constraints.txt."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
    pinned = {line.split("==")[0].lower() for line in (CHECKOUT / "constraints.txt").read_text().split("\n")}
    skip = False
    for word in what:
        if skip or word.startswith("-"):
            skip = word == "-c"
            continue
        name, _, extras = word.rstrip("]").partition("[")
        if name in ("fedpurin", "."):
            if not set(filter(None, extras.split(","))) <= set(project["optional-dependencies"]):
                return False
        elif name.lower() not in pinned:
            return False
    return True
