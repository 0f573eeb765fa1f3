"""`make docs`: the site builds without a warning, and asks no other host for anything."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from blocks import CHECKOUT


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "-b", "html"]
    built = subprocess.run(
        [*command, "-d", str(tmp_path / "doctrees"), str(CHECKOUT / "docs"), str(site)],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    pages = [page for page in site.rglob("*.html") if page.name != "demo-report.html"]
    assert len(pages) > 20
    for page in pages:
        text = page.read_text("utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]* src=\"([^\"]+)\"", text)
        loaded += re.findall(r"<link[^>]* rel=\"(?:stylesheet|preload|icon)\"[^>]* href=\"([^\"]+)\"", text)
        assert loaded
        assert not [one for one in loaded if re.match("(https?:)?//", one)], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", sheet.read_text("utf-8")), sheet
    assert (site / "demo-report.html").stat().st_size > 1_000_000  # the report of docs/runs/demo
