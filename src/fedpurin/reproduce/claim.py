"""One claim with its verdict."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    text: str
    figure: str
    verdict: str  # holds, fails, undecided
    needs: str  # what would decide it
    scale: str

    @classmethod
    def of(cls, text: str, figure: str, holds: bool, needs: str, scale: str) -> Claim:
        """Undecided while anything is missing, whatever the figures say so far."""
        return cls(text, figure, "undecided" if needs else "holds" if holds else "fails", needs, scale)

    @property
    def conclusion(self) -> str:
        return f"**{self.verdict}**" + (f": needs {self.needs}" if self.needs else "")


def undecided(text: str, needs: str, figure: str = "nothing measured yet", scale: str = "-") -> Claim:
    return Claim(text, figure, "undecided", needs, scale)
