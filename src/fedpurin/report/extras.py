"""Optional packages, loaded when they are needed, with one clear error when they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fedpurin.errors import MissingExtraError


def need_plotly(part: str = "graph_objects") -> Any:
    return _need(f"plotly.{part}", "the HTML report")


def need_jinja() -> Any:
    return _need("jinja2", "the HTML report")


def need_matplotlib() -> Any:
    return _need("matplotlib", "a PNG, SVG or PDF figure")


def _need(module: str, purpose: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError("report", purpose) from error
