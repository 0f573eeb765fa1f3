"""Optional packages, loaded when they are needed, with one clear error when they are missing."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

from fedpurin.errors import MissingExtraError


def need(module: str, purpose: str = "the HTML report") -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError("report", purpose) from error


def need_matplotlib() -> Any:
    log = logging.getLogger("matplotlib")
    if log.level == logging.NOTSET:  # without a home it tells of its cache, at length
        log.setLevel(logging.ERROR)
    return need("matplotlib", "a PNG, SVG or PDF figure")
