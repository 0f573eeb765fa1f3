"""Files written whole or not at all: what stands in their place beforehand, and what a crash left there."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fedpurin import files
from fedpurin.errors import RunError
from fedpurin.files import append_line, check_writable, read_bounded, write_atomic


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link_and_what_it_leads_to_is_replaced(tmp_path: Path, there: bool) -> None:
    (tmp_path / "far").mkdir()
    target = tmp_path / "far" / "real"
    if there:
        target.write_text("old")
    (tmp_path / "second").symlink_to(Path("far", "real"))
    (tmp_path / "first").symlink_to(tmp_path / "second")
    check_writable(tmp_path / "first")
    write_atomic(tmp_path / "first", "new")
    assert (tmp_path / "first").is_symlink()
    assert (tmp_path / "second").is_symlink()
    assert target.read_text() == "new"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["far", "first", "real", "second"]


def make(kind: str, path: Path) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to({"device": "/dev/null", "loop": path.name, "open file": "/proc/self/fd/1"}[kind])


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "device", "loop", "open file"])
def test_what_is_no_file_is_refused_also_behind_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    make(kind, Path("it"))
    Path("link").symlink_to("it")
    for name in ("it", "link"):
        with pytest.raises(RunError, match=f"{name} cannot be written: "):
            check_writable(Path(name))
        with pytest.raises(OSError):
            write_atomic(Path(name), "text")
    assert sorted(os.listdir()) == ["it", "link"]
    assert Path("link").is_symlink()


@pytest.mark.parametrize("name", [".", "..", "folder/..", "/"])
def test_a_folder_is_never_replaced_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomic(tmp_path / name, "text")


@pytest.mark.parametrize("left", ["", "one\n", "one\ntw", "half of the first"])
def test_a_line_is_added_behind_whole_lines_only(tmp_path: Path, left: str) -> None:
    (tmp_path / "lines").write_text(left)
    append_line(tmp_path / "lines", "new")
    whole = left[: left.rfind("\n") + 1]
    assert (tmp_path / "lines").read_text() == whole + "new\n"


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(OSError, match=r"it is larger than 0.5 MiB"):
        read_bounded(tmp_path / "sparse", 2**19)
    (tmp_path / "fits").write_bytes(b"1234")
    assert read_bounded(tmp_path / "fits", 4) == b"1234"
    with pytest.raises(OSError, match="device"):
        read_bounded(Path("/dev/zero"), 4)


def test_a_link_to_a_folder_is_removed_and_the_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    files.disk.remove(tmp_path / "link")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder").is_dir()
