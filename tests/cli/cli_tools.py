"""Commands in this process, with what they print."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fedpurin.cli import main


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    error: str


class Command:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: str) -> Answer:
        try:
            code = main(list(words))
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        out, error = self.capsys.readouterr()
        return Answer(code, out, error)

    def refuse(self, *words: str) -> str:
        """The one line on stderr of a command that must fail."""
        answer = self(*words)
        assert answer.code != 0
        assert answer.error.count("\n") == 1, answer.error
        assert answer.error.endswith("\n")
        assert "Traceback" not in answer.error + answer.out
        return answer.error
