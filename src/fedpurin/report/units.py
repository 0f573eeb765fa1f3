"""Numbers that people read: shares, points, sizes, durations."""

from __future__ import annotations

NBSP = "\u00a0"  # keeps a number and its unit on one line


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}{NBSP}%"


def points(value: float) -> str:
    """Percentage points with a sign and a true minus."""
    return f"{value:+.1f}{NBSP}points".replace("-", "−")


def mib(value: float) -> str:
    """A size that a person can read: bytes below a tenth of a MiB."""
    if value == 0:
        return f"0{NBSP}MiB"
    if value < 0.1:
        return f"{value * 1024:.1f}{NBSP}KiB"
    return f"{value:,.2f}{NBSP}MiB" if value < 1000 else f"{value / 1024:,.2f}{NBSP}GiB"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f}{NBSP}s"
    if seconds < 3600:
        return f"{seconds / 60:.1f}{NBSP}min"
    return f"{seconds / 3600:.1f}{NBSP}h"
