"""Files that are written whole or not at all.

Everything that changes a run directory goes through `disk`. Tests put another one in its place, which fails,
tears what is written or forgets what was not synced.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from fedpurin.errors import RunError


class Disk:
    """The few things that are done to files."""

    def fill(self, path: Path, write: Callable[[Path], object]) -> None:
        """Let `write` make the file."""
        write(path)

    def append(self, path: Path, data: bytes) -> None:
        """Make the file longer; with nothing to append, make sure that it is there."""
        with path.open("ab") as file:
            file.write(data)

    def put(self, path: Path, at: int, data: bytes | memoryview) -> None:
        """Write into a file that is there, from this byte on."""
        with path.open("r+b", buffering=0) as file:
            file.seek(at)
            done = 0
            while done < len(data):
                done += file.write(data[done:])

    def truncate(self, path: Path, size: int) -> None:
        os.truncate(path, size)

    def sync(self, path: Path) -> None:
        """Make a file, or the names in a folder, outlast a power cut as they are now."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def make_folder(self, path: Path) -> None:
        path.mkdir()

    def remove(self, path: Path) -> None:
        """A file, or a folder with all that is in it."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


disk = Disk()
LARGEST_CONFIGURATION = 2**24  # bytes; those that fedpurin writes have a few thousand
MOST_LINKS = 40  # one behind the other; as many as Linux follows


def write_atomic(path: Path, content: bytes | str) -> None:
    """Temporary file, fsync, rename."""
    data = content.encode() if isinstance(content, str) else content
    write_with(path, lambda temporary: temporary.write_bytes(data))


def write_with(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place of a file, never of a device."""
    path = replaced(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        disk.fill(temporary, write)
        disk.sync(temporary)
        disk.rename(temporary, path)
    except BaseException:
        disk.remove(temporary)
        raise
    disk.sync(path.parent)


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
        target = replaced(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=target.parent):
                pass
        finally:
            for folder in missing:
                with suppress(OSError):
                    folder.rmdir()


def replaced(path: Path) -> Path:
    """Where a file of this name is written: a link stays a link, and what it leads to is replaced.

    Raises OSError where that is no file: a folder, a pipe, a device, or something that a process holds open
    (/dev/stdout), which other writers may be in the midst of.
    """
    for _ in range(MOST_LINKS):
        if not path.is_symlink():
            break
        folder = Path(os.path.realpath(path.parent))
        if folder.parts[1:2] == ("proc",):
            raise OSError(errno.EINVAL, "it leads to what a process has open, not to a file", str(path))
        path = folder / os.readlink(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    return regular(path) if os.path.lexists(path) else path


def regular(path: Path) -> Path:
    """The path of something in a run directory that is to be read or written to; raises OSError where it is
    a pipe, which would be waited for without end, or a device, which has no end."""
    kind = path.stat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # a folder is refused by whoever opens it
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    return path


def read_bounded(path: Path, most: int) -> bytes:
    """What somebody else wrote, read whole; raises OSError where it is no file or larger than such a file
    ever is."""
    with regular(path).open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most / 2**20:g} MiB", str(path))
    return content


def append(path: Path, data: bytes) -> None:
    """Add to the end of a file, for good."""
    disk.append(regular(path) if path.exists() else path, data)
    disk.sync(path)


def append_line(path: Path, line: str) -> None:
    """Add a line, for good. What a crash left of the last one is cut off first, lest the two become one."""
    if path.exists():
        _end_torn_line(regular(path))
    append(path, f"{line}\n".encode())


def _end_torn_line(path: Path) -> None:
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        if file.read() in (b"", b"\n"):
            return
        file.seek(0)
        end = file.read().rfind(b"\n") + 1
    disk.truncate(path, end)


def make_folders(path: Path) -> None:
    """A folder and those above it, for good. Of two processes that do so at the same moment neither fails."""
    if not path.is_dir():
        make_folders(path.parent)
        try:
            disk.make_folder(path)
        except FileExistsError:
            if not path.is_dir():
                raise
        disk.sync(path.parent)


@contextmanager
def only_process(lock: Path, refusal: Exception) -> Iterator[None]:
    """Nobody else holds this lock meanwhile; where somebody does, the refusal is raised at once."""
    held = FileLock(lock, timeout=0, thread_local=False)
    try:
        held.acquire()
    except Timeout:
        raise refusal from None
    try:
        yield
    finally:
        held.release()


def unused(path: Path, separator: str = "-") -> Path:
    """The path itself; where something is there, the first of NAME-2, NAME-3, ... where nothing is."""
    candidate, number = path, 2
    while candidate.exists():
        candidate, number = path.with_name(f"{path.name}{separator}{number}"), number + 1
    return candidate


def remove_leftovers(folder: Path) -> None:
    """Delete what a killed process had begun to write here."""
    for path in [*folder.glob(".*.tmp"), *folder.glob(".tmp*")]:  # ours, and those of safetensors
        disk.remove(path)
