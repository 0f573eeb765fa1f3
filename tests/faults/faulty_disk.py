"""A disk with one fault: the n-th thing done to it fails, is torn, or is the last before the power is cut.

    fail       an I/O error, once; of what was to be written, half is there
    full       no space is left from here on
    kill       the process is gone before it
    torn       the process is gone half-way through a write
    lost       the power is cut after it: whatever was not synced, names and contents, is as it was before
    overtaken  the same, but all names made it to the disk before the contents, which are zeros

After a death every further call raises as well, so that no clean-up of the dying process reaches the disk.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from fedpurin.files import Disk

FAULTS = ("fail", "full", "kill", "torn", "lost", "overtaken")
WRITES = ("fill", "append", "put")
Undo = Callable[[], object]


class Died(BaseException):
    """The process is gone; no handler for errors sees this."""


class CountingDisk(Disk):
    """Notes what is done, as (kind, path), before it is done."""

    def __init__(self) -> None:
        self.log: list[tuple[str, Path]] = []

    def before(self, kind: str, path: Path) -> bool:
        """Whether a write stays a half one."""
        self.log.append((kind, path))
        return False

    def after(self, kind: str, path: Path) -> None:
        """It is done."""

    def fill(self, path: Path, write: Callable[[Path], object]) -> None:
        half = self.before("fill", path)
        super().fill(path, write)
        if half:
            os.truncate(path, path.stat().st_size // 2)
        self.after("fill", path)

    def append(self, path: Path, data: bytes) -> None:
        half = self.before("append", path)
        super().append(path, data[: len(data) // 2] if half else data)
        self.after("append", path)

    def put(self, path: Path, at: int, data: bytes | memoryview) -> None:
        half = self.before("put", path)
        super().put(path, at, data[: len(data) // 2] if half else data)
        self.after("put", path)

    def truncate(self, path: Path, size: int) -> None:
        self.before("truncate", path)
        super().truncate(path, size)
        self.after("truncate", path)

    def sync(self, path: Path) -> None:
        self.before("sync", path)
        super().sync(path)
        self.after("sync", path)

    def rename(self, old: Path, new: Path) -> None:
        self.before("rename", new)
        super().rename(old, new)
        self.after("rename", new)

    def make_folder(self, path: Path) -> None:
        self.before("make_folder", path)
        super().make_folder(path)
        self.after("make_folder", path)

    def remove(self, path: Path) -> None:
        self.before("remove", path)
        super().remove(path)
        self.after("remove", path)


class FaultyDisk(CountingDisk):
    """The n-th call (from 1) suffers the fault."""

    def __init__(self, fault: str, n: int) -> None:
        super().__init__()
        self.fault, self.n = fault, n
        self.dead = False

    def before(self, kind: str, path: Path) -> bool:
        if self.dead:
            raise Died
        super().before(kind, path)
        now = len(self.log)
        if self.fault == "full" and now >= self.n and kind in (*WRITES, "make_folder"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if now != self.n:
            return False
        if self.fault == "kill":
            self.die()
        if self.fault == "fail" and kind not in WRITES:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self.fault in ("fail", "torn") and kind in WRITES

    def after(self, kind: str, path: Path) -> None:
        if len(self.log) != self.n:
            return
        if self.fault == "fail" and kind in WRITES:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.fault in ("torn", "lost", "overtaken"):
            self.die()

    def die(self) -> None:
        self.dead = True
        raise Died


class PowerCut(FaultyDisk):
    """Knows what has not been synced: contents by file, and names by the folder that holds them."""

    def __init__(self, fault: str, n: int) -> None:
        super().__init__(fault, n)
        self.shadow = Path(tempfile.mkdtemp())
        self.contents: dict[Path, bytes] = {}  # as they were when last synced
        self.names: list[tuple[Path, Undo]] = []  # folder, and how to take back what was done in it

    def die(self) -> None:
        for path, content in self.contents.items():
            if self.fault == "lost":
                path.write_bytes(content)
            else:
                path.write_bytes(content + bytes(max(0, path.stat().st_size - len(content))))
        if self.fault == "lost":
            for _, undo in reversed(self.names):
                undo()
        shutil.rmtree(self.shadow)
        super().die()

    def fill(self, path: Path, write: Callable[[Path], object]) -> None:
        self._will_change(path)
        super().fill(path, write)

    def append(self, path: Path, data: bytes) -> None:
        self._will_change(path)
        super().append(path, data)

    def put(self, path: Path, at: int, data: bytes | memoryview) -> None:
        self._will_change(path)
        super().put(path, at, data)

    def truncate(self, path: Path, size: int) -> None:
        self._will_change(path)
        super().truncate(path, size)

    def _will_change(self, path: Path) -> None:
        if self.dead or path in self.contents:
            return
        self.contents[path] = path.read_bytes() if path.exists() else b""
        if not path.exists():
            self.names.append((path.parent, lambda: path.unlink(missing_ok=True)))

    def sync(self, path: Path) -> None:
        if not self.dead:
            self.contents.pop(path, None)
            self.names = [(folder, undo) for folder, undo in self.names if folder != path]
        super().sync(path)

    def rename(self, old: Path, new: Path) -> None:
        if not self.dead:
            kept = self._keep(new)
            self.contents = {_moved(p, old, new): c for p, c in self.contents.items() if p != new}

            def undo() -> None:
                os.replace(new, old)
                if kept is not None:
                    shutil.move(kept, new)  # perhaps from another file system

            self.names.append((new.parent, undo))
        super().rename(old, new)

    def make_folder(self, path: Path) -> None:
        if not self.dead:
            self.names.append((path.parent, lambda: shutil.rmtree(path, ignore_errors=True)))
        super().make_folder(path)

    def remove(self, path: Path) -> None:
        if not self.dead and path.exists():
            kept = self._keep(path)
            assert kept is not None
            self.contents = {p: c for p, c in self.contents.items() if not p.is_relative_to(path)}
            self.names.append((path.parent, lambda: shutil.move(kept, path)))
        super().remove(path)

    def _keep(self, path: Path) -> Path | None:
        """A copy of what a name stood for, to bring it back; None where it stood for nothing."""
        copy = self.shadow / str(len(self.names))
        if path.is_dir():
            shutil.copytree(path, copy)
        elif path.exists():
            shutil.copyfile(path, copy)
        else:
            return None
        return copy


def _moved(path: Path, old: Path, new: Path) -> Path:
    return new / path.relative_to(old) if path.is_relative_to(old) else path


class DeadlyDisk(CountingDisk):
    """Kills its own process, for real, inside the n-th call of a kind in a place; writes are torn."""

    def __init__(self, place: str, n: int) -> None:
        super().__init__()
        self.place, self.left = place, n

    def before(self, kind: str, path: Path) -> bool:
        hit = place_of(kind, path) == self.place
        self.left -= hit
        if hit and self.left == 0:
            if kind in WRITES:
                return True
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    def after(self, kind: str, path: Path) -> None:
        if self.left == 0 and place_of(kind, path) == self.place:
            os.kill(os.getpid(), signal.SIGKILL)


PLACES = ("checkpoint write", "checkpoint rename", "log append", "final save", "directory creation")


def place_of(kind: str, path: Path) -> str:
    """Where in a run something is done, in words."""
    name = path.name
    if kind == "append":
        return "log append"
    if path.parent.name == "models" or "result.json" in name or "coverage" in name:
        return "final save" if ".round" not in str(path.parent) else "checkpoint write"
    if path.parent.name == "checkpoints" and kind == "rename":
        return "checkpoint rename"
    if ".round" in str(path) or path.suffix == ".rows":
        return "checkpoint write"
    return "directory creation"
