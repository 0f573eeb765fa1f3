"""Where a run may be written: the folder it gets, whether that is free, and who may write there."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

from fedpurin import files
from fedpurin.config import Config
from fedpurin.errors import RunError
from fedpurin.runs.run import is_run
from fedpurin.runs.same_setting import setting_of
from fedpurin.shell import command

LOGS = ("metrics.jsonl", "ledger.jsonl")
BEGUN = {".lock", "environment.json", "layout.json", "clients.json", *LOGS, "checkpoints"}
"""What is there before config.toml makes it a run."""


def default_path(config: Config, folder: Path = Path("runs")) -> Path:
    """runs/METHOD-DATASET-aALPHA-sSEED, numbered where that exists; no alpha where it does nothing."""
    dataset = config.data.dataset.replace(":", "-").replace(".", "-")
    method = config.method.name or type(config.method).__name__
    alpha = f"-a{config.data.alpha:g}" if "data.alpha" in setting_of(config.as_dict()) else ""
    name = f"{method}-{dataset}{alpha}-s{config.run.seed}"
    return files.unused(folder / name)


def check_free(path: Path) -> None:
    """A new run may go where nothing is, or where the making of one was broken off."""
    inside = [p for p in path.iterdir() if not p.name.endswith(".tmp")]
    filled = [log for log in LOGS if (path / log).is_file() and (path / log).stat().st_size]
    kept = [*path.glob("checkpoints/round-*")]
    if is_run(path) or filled or kept or any(p.name not in BEGUN for p in inside):
        remedy = f"continue it with: {command('resume', path)}" if is_run(path) else "empty it"
        raise RunError(f"{path} is not empty; choose another --out, or {remedy}")


def take_lock(path: Path) -> FileLock:
    lock = FileLock(path / ".lock", timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(f"{path} is being written by another process; wait for it or stop it") from None
    except OSError as problem:
        raise RunError(f"cannot write to {path}: {problem.strerror}; make it writable") from problem
    return lock


def models_to_collect(path: Path) -> bool:
    """Whether a complete run still has its models with the sites of a federation on this machine."""
    return (path / "result.json").is_file() and any(path.glob("federation/site-*"))
