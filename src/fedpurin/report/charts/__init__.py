"""The charts of the report, a file each. A new file that defines CHART is in the page, in `figure` and in
`save_figure` without another line anywhere.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from fedpurin.report.chart import Definition


@cache
def all_charts() -> tuple[Definition, ...]:
    """From the top of the page to its end."""
    modules = [import_module(f"{__name__}.{entry.name}") for entry in iter_modules(__path__)]
    return tuple(sorted((module.CHART for module in modules), key=lambda chart: chart.place))
