"""Reports: the HTML page, figures for notebooks and papers, TensorBoard, and the terminal watcher.

Plotting libraries load when they are used; reading run directories needs none. The watcher is
`fedpurin.report.watch.watch`.
"""

from __future__ import annotations

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
