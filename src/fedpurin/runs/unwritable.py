"""What is said where a run directory cannot be written, and how to go on from there."""

from __future__ import annotations

import errno
from pathlib import Path

from fedpurin.errors import RunError
from fedpurin.runs.run import is_run
from fedpurin.shell import command

FULL = (errno.ENOSPC, errno.EDQUOT)
REMEDIES = {
    **dict.fromkeys(FULL, "make room"),
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "make it writable"),
    **dict.fromkeys((errno.EISDIR, errno.EEXIST, errno.ENOTDIR, errno.ENOTEMPTY), "move away what is there"),
}


class UnwritableError(RunError):
    """`str` says how to go on as things are by then: a run that failed before its first round was over is
    taken away again, and then there is nothing to resume."""

    def __init__(self, path: Path, problem: OSError) -> None:
        inside = problem.filename if problem.errno not in FULL else None
        named = f"{path} ({inside})" if inside not in (None, str(path)) else str(path)
        reason = problem.strerror or problem
        self.path = path
        self.said = f"cannot write to {named}: {reason}; {REMEDIES.get(problem.errno or 0, 'mend that')}"
        super().__init__(self.said)

    def __str__(self) -> str:
        try:
            resumable = is_run(self.path)
        except OSError:  # it was made with no permissions at all
            return self.said
        again = command("resume", self.path) if resumable else "run the same command again"
        return f"{self.said}, then: {again}"
