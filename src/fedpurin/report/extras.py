"""Optional packages, loaded when they are needed, with one clear error when they are missing."""

from __future__ import annotations

from typing import Any

from fedpurin.errors import MissingExtraError


def need_plotly() -> Any:
    """`plotly.graph_objects`."""
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise MissingExtraError("report", "the HTML report") from error
    return go


def need_matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("report", "a PNG, SVG or PDF figure") from error
    return matplotlib
