"""The documentation site: `make docs` builds it into build/site. To read it, no other host is asked.

A page that no navigation names, a link to nothing, a broken docstring: warnings, and warnings are errors.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import from_code

from fedpurin.report.page import write_report
from fedpurin.version import __version__

project = "fedpurin"
author = "the fedpurin contributors"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["runs"]

html_theme = "furo"
html_title = f"fedpurin {__version__}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#a34700", "color-brand-content": "#a34700"},
    "dark_css_variables": {"color-brand-primary": "#ff9d52", "color-brand-content": "#ff9d52"},
}
copybutton_exclude = ".linenos, .gp, .go"

myst_enable_extensions = ["attrs_inline", "attrs_block", "colon_fence"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
maximum_signature_line_length = 70
default_role = "code"


def as_rst(lines: list[str]) -> list[str]:
    """A plain-text docstring: indented parts are shown as they stand, and stars are stars."""
    result: list[str] = []
    literal = False
    for line in lines:
        if line.startswith(" "):
            if not literal:
                result += ["", "::", ""]
            literal = True
            result.append(f"    {line}")
            continue
        if line.strip() and literal:
            literal = False
            if result[-1].strip():
                result.append("")
        result.append(line if literal else _escaped(line))
    return result


def _escaped(line: str) -> str:
    """Outside of `code`, no character has a meaning of its own."""
    parts = re.split(r"(`[^`]+`)", line)
    clean = [part if part.startswith("`") else re.sub(r"([*|_\\])", r"\\\1", part) for part in parts]
    return "".join(clean).replace("`", "``")


def setup(app: Any) -> None:
    def complete(app: Any, page: str, source: list[str]) -> None:
        if page in from_code.PAGES:
            source[0] = source[0].replace(from_code.MARK, from_code.PAGES[page]())

    def change(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
        lines[:] = as_rst(lines)

    def sample_report(app: Any, problem: Exception | None) -> None:
        if problem is None and app.builder.name == "html":
            write_report([Path(app.srcdir) / "runs/demo"], Path(app.outdir) / "demo-report.html")

    app.connect("build-finished", sample_report)
    app.connect("source-read", complete)
    app.connect("autodoc-process-docstring", change)
