"""A program without stdout or stderr, as a service has it, does its work and prints nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import Command


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_commands_work_without_the_streams_that_are_closed(tmp_path: Path, closed: str) -> None:
    command = f'"{sys.executable}" -m fedpurin init mine {closed}'
    ended = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)  # noqa: S602
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["config.toml", "my_project.py"]
    text = (tmp_path / "mine" / "config.toml").read_text()
    assert text.startswith("# Settings of fedpurin.")


@pytest.mark.parametrize("words", ["methods", "methods --json"])
def test_output_that_grows_beyond_the_limit_on_files_is_told_in_one_line(tmp_path: Path, words: str) -> None:
    command = f'ulimit -f 0; "{sys.executable}" -m fedpurin {words} > out'
    ended = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "fedpurin: error: the output cannot be written: File too large\n"


def test_a_name_that_is_no_text_is_told_in_one_line(tmp_path: Path) -> None:
    for name, said in ((b"caf\xe9", r"caf\udce9"), (b"a\nb\x1b[2J", r"a\nb\x1b[2J")):
        ended = subprocess.run(
            [sys.executable, "-m", "fedpurin", "ledger", name], cwd=tmp_path, capture_output=True, text=True
        )
        assert ended.returncode == 1
        assert ended.stderr.startswith(f"fedpurin: error: {said} ")
        assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (MemoryError(), "the memory does not suffice"),
        (ImportError("libx.so: failed to map segment", name="torch"), "torch cannot be loaded .libx.so"),
        (OSError(24, "Too many open files"), "error: Too many open files"),
        (PermissionError(13, "Permission denied", "runs/x"), "runs/x: Permission denied; change its perm"),
    ],
)
def test_what_the_system_refuses_is_told_in_one_line(
    fedpurin: Command, monkeypatch: pytest.MonkeyPatch, problem: Exception, said: str
) -> None:
    def refuse(*_: object) -> int:
        raise problem

    monkeypatch.setattr("fedpurin.methods.method_names", refuse)
    assert re.search(said, fedpurin.refuse("methods"))


def test_a_command_in_a_folder_that_is_gone_says_so(tmp_path: Path) -> None:
    command = f'mkdir gone && cd gone && rmdir ../gone && "{sys.executable}" -m fedpurin methods'
    ended = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "fedpurin: error: the current folder is gone; change to another one\n"


def test_a_figure_needs_no_home_and_says_nothing_of_it(tmp_path: Path) -> None:
    code = "from fedpurin.report.extras import need_matplotlib; need_matplotlib().get_cachedir()"
    env = os.environ | {"HOME": "/dev/null", "MPLCONFIGDIR": "/dev/null/none", "TMPDIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
