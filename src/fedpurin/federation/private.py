"""A network of its own for the SuperLink, so that other accounts of the machine do not reach it.

Flower's control interface has no login. On the machine's own loopback every account could use it. Where Linux
lets ordinary accounts make namespaces, the SuperLink gets a loopback that nobody else has, together with the
processes that talk to it; nginx reaches it through a socket file that only this account may open.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fedpurin.errors import EngineError
from fedpurin.federation import guard, relay
from fedpurin.federation.service import Service

LONGEST_SOCKET_PATH = 100  # Linux takes 107
START_SECONDS = 60.0


def why_not() -> str | None:
    """Why this machine gives no private network to this account; None: it does."""
    if sys.platform != "linux":
        return "this is not Linux"
    if not (shutil.which("unshare") and shutil.which("nsenter")):
        return "unshare and nsenter are not installed (Debian: util-linux)"
    test = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "true"], capture_output=True, text=True
    )
    return None if test.returncode == 0 else test.stderr.strip() or "unshare failed"


class PrivateNetwork:
    def __init__(self, folder: Path, port: int) -> None:
        self._short = len(str(folder / "link.sock")) > LONGEST_SOCKET_PATH
        self.socket = (short_folder(folder) if self._short else folder) / "link.sock"
        command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-I", relay.__file__]
        command += [str(self.socket), str(port)]
        self.socket.unlink(missing_ok=True)
        self.service = Service("the private network", command, log=folder / "network.log")
        self.prefix = self._wait()

    def _wait(self) -> list[str]:
        """What to put before a command so that it runs inside."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.service.alive():
            if self.socket.exists():
                inside = guard.descendants(self.service.pid)[0]
                return [
                    *("nsenter", "--preserve-credentials", "--user", "--net"),
                    *("--target", str(inside), "--"),
                ]
            time.sleep(0.02)
        raise EngineError(f"{self.service.name} did not start; {self.service.last_words()}")

    def stop(self) -> None:
        self.service.stop()
        self.socket.unlink(missing_ok=True)
        if self._short:
            with contextlib.suppress(OSError):
                self.socket.parent.rmdir()


def short_folder(folder: Path) -> Path:
    """For paths too long for a socket: a private folder elsewhere, the same for the same run."""
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    short = Path(tempfile.gettempdir()) / f"fedpurin-{os.getuid()}-{name}"
    short.mkdir(mode=0o700, exist_ok=True)
    about = short.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) != 0o700:
        raise EngineError(f"{short} is not a private folder of this account: remove it")
    return short
