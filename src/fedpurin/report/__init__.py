"""Reports: the HTML page, figures for notebooks and papers, TensorBoard, and the terminal watcher.

Plotting libraries load when they are used; reading run directories needs none. The watcher is
`fedpurin.report.watch.watch`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedpurin.report.figures import FIGURES, figure, save_figure
    from fedpurin.report.page import write_report
    from fedpurin.report.style import METHOD_COLORS, METHOD_LABELS, matplotlib_style
    from fedpurin.report.tensorboard import TensorboardWriter, tensorboard_writer

__all__ = [
    "FIGURES",
    "METHOD_COLORS",
    "METHOD_LABELS",
    "TensorboardWriter",
    "figure",
    "matplotlib_style",
    "save_figure",
    "tensorboard_writer",
    "write_report",
]

_HOMES = {
    "figures": ("FIGURES", "figure", "save_figure"),
    "page": ("write_report",),
    "style": ("METHOD_COLORS", "METHOD_LABELS", "matplotlib_style"),
    "tensorboard": ("TensorboardWriter", "tensorboard_writer"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"fedpurin.report.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
