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

    @property
    def conclusion(self) -> str:
        if self.needs:
            return f"**undecided**: needs {self.needs}"
        return "**holds**" if self.holds else "**fails**"
