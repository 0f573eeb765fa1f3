"""Text with a small GRU: is this line of Python code, a comment or a docstring?

The corpus is Python's own standard library, which is on every machine that can run this. Clients are its
packages, groups that nature made: each has authors and habits of its own. The marks that give the answer away
(#, quotes, indentation) are taken off, so that the network must read.

    python -m examples.text           writes runs/text/accuracy.png
"""

from __future__ import annotations

import io
import sysconfig
import tokenize
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import fedpurin

PACKAGES = ["asyncio", "concurrent", "email", "http", "json", "logging", "unittest", "xml"]
KINDS = ["code", "comment", "docstring"]
LENGTH, LETTERS, PER_KIND = 32, 128, 40


def lines_of(package: str) -> list[tuple[str, str]]:
    """(text, kind) of the lines of a package, without their marks, as many of each kind."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for file in sorted(Path(sysconfig.get_path("stdlib"), package).rglob("*.py")):
        previous = tokenize.NEWLINE
        for token in tokenize.generate_tokens(io.StringIO(file.read_text("utf-8")).readline):
            if token.type == tokenize.COMMENT:
                found["comment"].append(token.string.strip("#! "))
            elif token.type == tokenize.STRING and previous in (tokenize.INDENT, tokenize.NEWLINE):
                found["docstring"] += [line.strip() for line in token.string.strip("rR\"'").splitlines()]
            elif token.type == tokenize.NEWLINE:
                found["code"].append(token.line.split("#")[0].strip())
            if token.type not in (tokenize.NL, tokenize.COMMENT):
                previous = token.type
    rng = np.random.default_rng(0)
    samples = []
    for kind, lines in found.items():
        long_enough = sorted({line for line in lines if len(line) >= 12})
        chosen = rng.permutation(len(long_enough))[:PER_KIND]
        samples += [(long_enough[i], kind) for i in chosen]
    return samples


def tokens_of(text: str) -> list[int]:
    """A number per letter, padded with 0 to one length."""
    numbers = [min(ord(letter), LETTERS - 1) for letter in text[:LENGTH]]
    return numbers + [0] * (LENGTH - len(numbers))


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, 16)
        self.gru = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, len(KINDS))

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.gru(self.letters(tokens))
        read = (tokens > 0).unsqueeze(2)
        answer: Tensor = self.head((states * read).sum(1) / read.sum(1))
        return answer


def packages() -> dict[str, tuple[np.ndarray, list[str]]]:
    data = {}
    for package in PACKAGES:
        samples = lines_of(package)
        data[package] = (np.array([tokens_of(text) for text, _ in samples]), [kind for _, kind in samples])
    return data


def main(out: Path = Path("runs/text"), rounds: int = 8) -> fedpurin.Comparison:
    runs = fedpurin.compare(
        model=Reader,
        data=packages(),
        methods=["separate", "fedavg", "fedpurin"],
        rounds=rounds,
        epochs=2,
        batch_size=16,
        lr=0.005,
        optimiser="adam",
        out=out,
    )
    runs.save_figure("accuracy", out / "accuracy.png")
    return runs


def read(runs: fedpurin.Comparison, package: str, text: str) -> str:
    """What a package's own model says of a line."""
    answer = runs["fedpurin"].client(package).model()(torch.tensor([tokens_of(text)]))
    return KINDS[int(answer.argmax())]


if __name__ == "__main__":
    done = main()
    print(done)
    for line in (
        "return self._loop.create_task(coro)",
        "This is slow, so we do it only once.",
        "Return the number of items.",
    ):
        print(f"{line:<40} {read(done, 'asyncio', line)}")
