"""Every code block of every page is run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from blocks import CHECKOUT, Block, Page, blocks, installable

PAGES = [
    CHECKOUT / "README.md",
    CHECKOUT / "examples/methods/README.md",
    *sorted((CHECKOUT / "docs").rglob("*.md")),
]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_every_block_of_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("FEDPURIN_DATA", str(tmp_path / "data"))  # the docs promise to need none

    try:
        Page(page, print).run()
    finally:
        for name in set(sys.modules) - before:  # the next page may have a module of the same name
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


PAGE = """
Text.

    fedpurin methods
    fedpurin data list   # a comment

```python
# my.py
x = 1
```

```sh
# not run: needs three machines
fedpurin federation server
```

- an item

      import torch

<!-- output fedpurin methods -->

```text
fedpurin
```

<!-- end -->

    {"round": 3}
"""


def test_blocks_are_found_fenced_and_indented_and_not_where_generated() -> None:
    assert list(blocks(PAGE)) == [
        Block(4, "sh", "fedpurin methods\nfedpurin data list   # a comment"),
        Block(7, "python", "# my.py\nx = 1"),
        Block(12, "sh", "# not run: needs three machines\nfedpurin federation server"),
        Block(19, "python", "import torch"),
        Block(29, "text", '{"round": 3}'),
    ]
    assert [block.left_out for block in blocks(PAGE)] == [False, False, True, False, False]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```python\nassert 1 == 2\n```", AssertionError),
        ("```python\nimport nonsense_of_nobody\n```", ModuleNotFoundError),
        ("```sh\nfedpurin run --preset nonsense\n```", AssertionError),
        ("```sh\nfedpurin nonsense\n```", AssertionError),
        ("```sh\nmake nonsense\n```", AssertionError),
        ("```sh\npip install 'fedpurin[nonsense]'\n```", AssertionError),
        ("```sh\nls nonsense\n```", AssertionError),
        ("```toml\n[run\n```", ValueError),
        ("```text\nfedpurin run\n```", AssertionError),
    ],
)
def test_a_block_that_fails_fails_the_page(
    text: str, problem: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(text)
    with pytest.raises(problem):
        Page(CHECKOUT / "README.md", print).run_block(block, "here")


def test_packages_that_pages_install_are_known() -> None:
    assert installable(["-c", "constraints.txt", "-e", ".[report,flower]"])
    assert installable(["fedpurin[report]", "torch"])
    assert not installable(["left-pad"])
