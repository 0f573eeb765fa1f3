"""One claim with its verdict."""

from __future__ import annotations

from dataclasses import dataclass

NOTHING = "nothing measured yet"


@dataclass(frozen=True)
class Claim:
    text: str
    needs: str  # what would decide it; while anything is missing it is undecided, whatever the figures say
    figure: str = NOTHING
    scale: str = "-"
    holds: bool = False
    brief: str = ""  # the figure in a few words

    @property
    def conclusion(self) -> str:
        return f"**undecided**: needs {self.needs}" if self.needs else self.verdict

    @property
    def verdict(self) -> str:
        if self.needs:
            return "undecided"
        return "**holds**" if self.holds else "**fails**"
