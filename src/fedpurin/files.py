"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedpurin.errors import RunError


def write_atomic(path: Path, content: bytes | str) -> None:
    """Temporary file, fsync, rename."""
    data = content.encode() if isinstance(content, str) else content
    write_with(path, lambda temporary: temporary.write_bytes(data))


def write_with(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """fsync a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What goes wrong with a file that the user named is told in one line."""
    try:
        yield
    except OSError as problem:
        raise RunError(
            f"{path} cannot be written: {problem.strerror or problem}; choose another place"
        ) from problem


def check_writable(path: Path) -> None:
    """Refuse a path at which no file could be written; leaves nothing behind."""
    missing = [folder for folder in path.absolute().parents if not folder.exists()]
    with writing(path):
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        finally:
            for folder in missing:
                with suppress(OSError):
                    folder.rmdir()
