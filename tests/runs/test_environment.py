"""Which commit a run names: that of fedpurin's checkout, never of a repository around it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from fedpurin.environment import source_commit


def repository(top: Path, package: Path) -> str:
    """A git repository at `top` with one commit that holds `package`; the commit."""
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "one"], ["rev-parse", "HEAD"]):
        done = subprocess.run([*git, *words], cwd=top, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_checkout_names_its_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    package = tmp_path / "src" / "fedpurin"
    commit = repository(tmp_path, package)
    assert source_commit(package) == (commit, False)
    (package / "new.py").write_text("")
    assert source_commit(package) == (commit, True)


def test_a_repository_that_surrounds_the_virtual_environment_is_not_asked(tmp_path: Path) -> None:
    package = tmp_path / ".venv" / "lib" / "site-packages" / "fedpurin"
    repository(tmp_path, package)
    assert source_commit(package) == ("", False)


def test_an_installation_that_git_ignores_is_no_checkout(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("src/fedpurin\n")
    package = tmp_path / "src" / "fedpurin"
    repository(tmp_path, package)
    assert source_commit(package) == ("", False)


def test_outside_of_any_repository_there_is_no_commit(tmp_path: Path) -> None:
    assert source_commit(tmp_path) == ("", False)
