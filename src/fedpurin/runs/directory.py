"""The run directory: configuration, metrics, ledger, checkpoints; atomic and resumable.

docs/run-directory.md describes the files. A checkpoint remembers how long metrics.jsonl and
ledger.jsonl were, so that a resumed run cuts off what came after it and repeats those rounds.
Whatever changes a file goes through `fedpurin.files`.
"""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from fedpurin import files
from fedpurin.config import Config
from fedpurin.environment import environment
from fedpurin.errors import RunError
from fedpurin.given import Given
from fedpurin.job import Job
from fedpurin.runs.checkpoints import (
    DAMAGED,
    KEPT_BEFORE,
    Checkpoint,
    Log,
    Tensors,
    checkpoints,
    checksum,
    read_checkpoint,
    read_indices,
    write_checkpoint,
    write_tensors,
)
from fedpurin.runs.models import CHECKSUMS, model_file, run_digest
from fedpurin.runs.parsing import read_json, read_lines, read_toml
from fedpurin.runs.places import LOGS, check_free, take_lock
from fedpurin.runs.rows import RowFile
from fedpurin.runs.run import is_run, load_run
from fedpurin.runs.same_setting import changes, decisive
from fedpurin.runs.shapes import ENVIRONMENT
from fedpurin.runs.unwritable import UnwritableError
from fedpurin.shell import command

Check = Callable[[int, dict[str, Tensors]], object]


class RunDirectory:
    """One run on disk. Only one process may write it at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warnings: list[str] = []  # what `rewind` had to do; for whoever started it to show
        self._logs = {log: Log() for log in LOGS}
        self._rows: list[RowFile] = []
        self._models: dict[int, int] = {}  # CRC-32 of each client's final model
        self._config: Config | None = None
        self._beside: list[Tensors] = []  # where the records are of checkpoints older than the one in use
        self._lock = take_lock(path)

    @classmethod
    def create(cls, path: Path, job: Job) -> RunDirectory:
        texts = {  # first of all: a model or data that do not fit must not leave half a directory
            "environment.json": json.dumps(environment(job.config.run), indent=1),
            "layout.json": json.dumps(job.describe_layout()),
            "clients.json": json.dumps(job.describe_clients()),
        }
        config = job.config.to_toml()
        try:
            files.make_folders(path)
            check_free(path)
            with contextlib.ExitStack() as on_failure:
                run = on_failure.enter_context(cls(path))
                check_free(path)  # again, now that nobody else can write it
                files.remove_leftovers(path)
                for name, text in texts.items():
                    files.write_atomic(path / name, text)
                for log in LOGS:
                    files.append(path / log, b"")
                files.make_folders(path / "checkpoints")
                files.write_atomic(path / "config.toml", config)  # last: now it is a run
                run._config = Config.from_stored(tomllib.loads(config))
                on_failure.pop_all()
        except OSError as problem:
            raise UnwritableError(path, problem) from problem
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        if not is_run(path):
            raise RunError(
                f"{path} is not a run directory: it has no config.toml; start it anew with fedpurin run"
            )
        return cls(path)

    @classmethod
    def reopen(cls, path: Path, given: Given | None = None) -> tuple[RunDirectory, Job]:
        """A run that is to be continued, and its job, which must have kept its model and its clients."""
        with contextlib.ExitStack() as on_failure:
            run = on_failure.enter_context(cls.open(path))
            if run.complete:
                raise RunError(f"{path} is complete; show it with: {command('show', path)}")
            job = Job.build(run.config(), given)
            run._check("layout.json", job.describe_layout(), "the model and its exchanged parameters")
            run._check("clients.json", job.describe_clients(), "the clients and their data")
            run._check_end()
            on_failure.pop_all()
        return run, job

    def _check(self, name: str, now: dict[str, Any], what: str) -> None:
        try:
            then = json.loads(files.regular(self.path / name).read_text())
        except (OSError, ValueError, RecursionError):
            raise RunError(
                f"{self.path / name} is missing or damaged; start anew with fedpurin run"
            ) from None
        if then != json.loads(json.dumps(now)):
            raise RunError(
                f"{self.path}/config.toml no longer gives {what} of {name}; "
                "undo the change, or start anew with fedpurin run"
            )

    def _check_end(self) -> None:
        """What would be found only when the result is written, after all rounds."""
        without = "delete it to go on without it"
        read_json(self.path / "environment.json", ENVIRONMENT, without)
        models = self.path / "models"
        if models.exists() and not models.is_dir():
            raise RunError(f"{models} is no folder, and the models are to go there; move it away")
        for name in ("result.json", "coverage.safetensors"):
            file = self.path / name
            if file.exists() and not file.is_file():
                raise RunError(f"{file} is no file, and one is to be written there; move it away")

    def config(self) -> Config:
        """As config.toml was when this was first asked for: what the run was begun with, whatever becomes of
        the file meanwhile."""
        if self._config is None:
            self._config = Config.from_stored(read_toml(self.path / "config.toml"))
        return self._config

    @property
    def complete(self) -> bool:
        return (self.path / "result.json").is_file()

    def close(self) -> None:
        for rows in self._rows:
            rows.close()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def remove_if_nothing_done(self) -> None:
        """A run that failed before its first round was over leaves nothing to continue; where nothing can be
        removed either, what is there is a run that begins anew."""
        with contextlib.suppress(OSError):
            if not (self.path / LOGS[0]).stat().st_size:
                files.disk.remove(self.path)

    # Logs

    def append(self, record: dict[str, Any], ledger_lines: list[dict[str, Any]]) -> None:
        with self._writing():
            for log, lines in zip(LOGS, ([record], ledger_lines), strict=True):
                data = "".join(json.dumps(line) + "\n" for line in lines).encode()
                files.append(self.path / log, data)
                self._logs[log] = self._logs[log].longer(data)

    def ledger_bytes(self) -> bytes:
        return (self.path / "ledger.jsonl").read_bytes()

    # Checkpoints

    def rows(self, name: str, size: int) -> RowFile:
        """Records that checkpoints refer to; to be asked for after `rewind`."""
        path = self.path / "checkpoints" / f"{name}.rows"
        self._rows.append(RowFile(name, size, path, self._writing, self._beside))
        return self._rows[-1]

    def checkpoint(self, t: int, parts: dict[str, Tensors]) -> None:
        with self._writing():
            for rows in self._rows:
                rows.sync()
            made = Checkpoint(t, parts, self._logs, self._setting())
            write_checkpoint(self.path / "checkpoints", made)
        for rows in self._rows:
            rows.committed(KEPT_BEFORE)

    def rewind(self, check: Check = lambda t, parts: None) -> tuple[int, dict[str, Tensors]]:
        """Go back to the newest whole checkpoint: its round and parts; round 0 and nothing without one.

        `check` raises one of DAMAGED where parts are not what the run can go on from. A damaged one gives way
        to the one before. Where none is left the run begins anew, and its logs, which can still be read, are
        put aside. What cannot be read for now (permissions, a failing
        disk) is an error that changes nothing. `warnings` says what happened.
        """
        with self._writing():
            files.make_folders(self.path / "checkpoints")
            for log in LOGS:
                files.append(self.path / log, b"")
            for folder in (self.path, self.path / "checkpoints", self.path / "models"):
                files.remove_leftovers(folder)
        folders = checkpoints(self.path / "checkpoints")
        while folders:
            folder = folders.pop()
            try:
                checkpoint = read_checkpoint(folder, {log: self.path / log for log in LOGS})
                self._check_setting(folder, checkpoint)
                check(checkpoint.round, checkpoint.parts)
            except DAMAGED as problem:
                said = f"it has no {problem}" if isinstance(problem, KeyError) else problem
                self.warnings.append(f"the checkpoint {folder} is damaged ({said}); trying the one before")
                continue
            except OSError as problem:
                raise RunError(
                    f"cannot read the checkpoint {folder}: {problem.strerror}; nothing was changed; make it "
                    f"readable, then: {command('resume', self.path)}"
                ) from problem
            with self._writing():
                for log in LOGS:
                    files.disk.truncate(self.path / log, checkpoint.logs[log].length)
            self._logs = dict(checkpoint.logs)
            self._beside = [read_indices(older) for older in folders]
            return checkpoint.round, checkpoint.parts
        self._begin_anew()
        return 0, {}

    def _setting(self) -> dict[str, Any]:
        """There may be more rounds than planned: they decide nothing but where a run ends."""
        table = decisive(self.config().as_dict())
        return {name: value for name, value in table.items() if name != "run.rounds"}

    def _check_setting(self, folder: Path, made: Checkpoint) -> None:
        planned = self.config().run.rounds
        if made.round > planned:
            raise RunError(
                f"the checkpoint {folder} is beyond the {planned} rounds of {self.path}/config.toml; nothing "
                f"was changed; set run.rounds to {made.round} or more, or start anew with fedpurin run"
            )
        if made.setting is not None and (said := changes(made.setting, self._setting())):
            raise RunError(
                f"the checkpoint {folder} was made with other settings than {self.path}/config.toml has "
                f"({said}); nothing was changed; undo the change, or start anew with fedpurin run"
            )

    def _only_what_is_repeated(self) -> bool:
        """Whether metrics.jsonl can be read, and has no more rounds than come before a first checkpoint."""
        try:
            rounds = [line.get("round", 0) for line in read_lines(self.path / LOGS[0])]
        except RunError:
            return False
        return all(t in range(1, self.config().run.checkpoint_every + 1) for t in rounds)

    def _begin_anew(self) -> None:
        """Empty logs. Old ones stay beside them, unless they hold no more than a checkpoint would repeat."""
        expected = not self.warnings and self._only_what_is_repeated()
        with self._writing():
            for log in reversed(LOGS):  # metrics.jsonl last: as long as it is there, `expected` is the same
                file = self.path / log
                if not expected and file.stat().st_size:
                    aside = files.unused(self.path / f"{log}.bak", "")
                    files.disk.rename(file, aside)
                    self.warnings.append(
                        f"no whole checkpoint is left: begins anew; {log} is kept as {aside}"
                    )
                files.write_atomic(file, "")
        self._logs = {log: Log() for log in LOGS}

    # The end

    def save_model(self, client: int, tensors: Tensors) -> None:
        with self._writing():
            files.make_folders(self.path / "models")
            file = model_file(self.path, client)
            files.write_with(file, partial(write_tensors, tensors))
            self._models[client] = checksum(file)

    def save_tensors(self, name: str, tensors: Tensors) -> None:
        with self._writing():
            files.write_with(self.path / f"{name}.safetensors", partial(write_tensors, tensors))

    def finish(self, digests: dict[int, str], clients: int) -> dict[str, Any]:
        """Write result.json from what the directory holds; without it the run counts as unfinished."""
        missing = [client for client in range(clients) if client not in digests]
        config = self.config().as_dict()
        summary = replace(load_run(self.path), config=config).derive_summary()
        digest = None if missing else run_digest([digests[c] for c in range(clients)], self.ledger_bytes())
        made = {"ledger_checksum": self._logs["ledger.jsonl"].crc, "setting": decisive(config)}
        if self._models:
            made[CHECKSUMS] = [self._models.get(client) for client in range(clients)]
        result = {**summary, "digest": digest, "missing_clients": missing, **made}
        with self._writing():
            files.write_atomic(self.path / "result.json", json.dumps(result, indent=1))
        return result

    @contextlib.contextmanager
    def _writing(self) -> Any:
        try:
            yield
        except OSError as problem:
            raise UnwritableError(self.path, problem) from problem


def stored_config(path: Path) -> Config:
    """The configuration of a run that nobody is writing at the moment."""
    with RunDirectory.open(path) as directory:
        return directory.config()
