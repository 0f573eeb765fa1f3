"""One client's side in a federation: what it answers to each message.

The process at a site (worker.py) hands messages to `Client` and lives through all rounds, so the data, the
model and torch itself are loaded once. What must survive the process is in files (store.py).
"""

from __future__ import annotations

import contextlib
import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

import fedpurin.errors as errors
from fedpurin import wire
from fedpurin.data import load_own
from fedpurin.devices import place
from fedpurin.engines.flower import records
from fedpurin.engines.flower.journal import Line, append_line, record_sent
from fedpurin.engines.flower.settings import PROGRESS, SiteSettings
from fedpurin.engines.flower.store import LostStateError, State, Store, pick, write_tensors
from fedpurin.engines.site import Site
from fedpurin.engines.states import named_model
from fedpurin.job import Job
from fedpurin.meta import Meta
from fedpurin.ready import check_ready
from fedpurin.runs.ledger import VALUE_BYTES
from fedpurin.train import ClientData, prepare_process
from fedpurin.version import __version__

app = ClientApp()  # Flower asks for one by name; it stays empty, and is never what answers here
log = logging.getLogger("fedpurin")


@dataclass(frozen=True)
class Ready:
    """What is built once for a configuration."""

    config: str
    site: Site
    data: ClientData


class Client:
    def __init__(self, settings: SiteSettings) -> None:
        prepare_process()
        self.settings = settings
        self.client = settings.client
        self._ready: Ready | None = None
        self._refused = ""

    def answer(self, message: Message, run_config: dict[str, Any]) -> tuple[Message, Line | None]:
        """The reply, and a line for the person at this site once it has left.

        A failure becomes one line that the server can show.
        """
        kind = message.metadata.message_type
        lost, line = False, None
        try:
            if kind == records.HELLO:
                content = self._hello(message)
            elif kind == records.WORK:
                content, line = self._work(message, run_config)
            elif kind == records.FINISH:
                content, line = self._finish(message, run_config)
            else:
                raise errors.MismatchError(f"there is no answer to a message of type {kind!r}")
            return Message(content, reply_to=message), line
        except errors.FedpurinError as error:
            reason, lost = str(error), isinstance(error, LostStateError)
            log.error("%s", reason)
        except Exception as error:  # own data and own models run foreign code: anything can happen
            reason = f"{type(error).__name__}: {error}"
            log.exception("client %s failed", self.client)
        return self.refuse(message, reason, lost=lost)

    def refuse(self, message: Message, reason: str, *, lost: bool = False) -> tuple[Message, Line | None]:
        """An answer that says why there is none; the person at this site is told, too, but only once."""
        reason = reason.splitlines()[0] if reason else "failed without a message"
        line = {"refused": reason} if reason != self._refused else None
        self._refused = reason
        content = records.content(**self._about(), error=reason, lost=lost)
        return Message(content, reply_to=message), line

    def note(self, line: Line) -> None:
        """Tell the person at this site what happened; never worth failing a round for."""
        with contextlib.suppress(OSError):
            append_line(Path(self.settings.state) / PROGRESS, {"client": self.client, **line})

    def _about(self) -> dict[str, Any]:
        return {"client": self.client, "version": records.VERSION, "package": __version__}

    def _hello(self, message: Message) -> RecordDict:
        record = records.read(message)
        theirs = records.get(record, "version", int)
        if theirs != records.VERSION:
            raise errors.MismatchError(
                f"the server runs fedpurin {record.get('package')!s}, which speaks "
                f"protocol {theirs}; client {self.client} has fedpurin {__version__} with protocol "
                f"{records.VERSION}: install the same version on both"
            )
        return records.content(**self._about())

    def _work(self, message: Message, run_config: dict[str, Any]) -> tuple[RecordDict, Line]:
        t, reply, ready, store = self._prepare(message, run_config)
        start, warning = self._start(ready.site, store, t, reply)
        done = ready.site.work(self.client, t, reply, start, ready.data)
        store.save(t, start, done.state)
        write_tensors(store.model_file, named_model(ready.site.layout, done.state))
        run, parts = ready.site.config.run, [done.upload or b"", done.meta]
        about = {"client": self.client, "round": t, "warning": warning}
        head = wire.peek(done.upload) if done.upload else None
        values, kind = (head.kept, head.value_type) if head else (0, "")
        self._audit(store, t, "upload", parts, values=values, type=kind, metrics=run.share_metrics)
        score = Meta.from_bytes(done.meta).upload if run.share_metrics else None
        line: Line = {
            "run": store.run,
            "round": t,
            "of": run.rounds,
            "accuracy": score.accuracy if score else None,
            "received": len(reply or b""),
            "sent": sum(map(len, parts)),
        }
        return records.content(**about, upload=done.upload, meta=done.meta), line

    def _finish(self, message: Message, run_config: dict[str, Any]) -> tuple[RecordDict, Line]:
        t, reply, ready, store = self._prepare(message, run_config)
        start, warning = self._start(ready.site, store, t + 1, reply)
        done = ready.site.finish(self.client, t, reply, start, ready.data)
        store.save(t + 1, start, done.state)
        write_tensors(store.model_file, named_model(ready.site.layout, done.state))
        about = {"client": self.client, "round": t, "warning": warning}
        share = ready.site.config.run.share_metrics
        self._audit(store, t, "finish", [done.meta, done.digest], values=0, type="", metrics=share)
        merged, best_round = Meta.from_bytes(done.meta).merged, int(done.state.get("best.round", 0))
        line: Line = {
            "run": store.run,
            "final": True,
            "model": str(store.model_file),
            "accuracy": merged.accuracy if merged and not best_round else None,
            "best_round": best_round,
        }
        return records.content(**about, meta=done.meta, digest=done.digest.hex()), line

    def _start(self, site: Site, store: Store, t: int, reply: bytes | None) -> tuple[State, str | None]:
        """The state to start from; what is wrong with files that were passed over for it."""
        try:
            start = starting_state(site, store, t, reply)
        except LostStateError as lost:
            raise LostStateError("; ".join([*store.damaged, str(lost)])) from None
        if not store.damaged:
            return start, None
        warning = "; ".join([*store.damaged, f"it goes on from its state of round {int(start['round'])}"])
        log.warning("%s", warning)
        self.note({"run": store.run, "warning": warning})
        return start, warning

    def _prepare(
        self, message: Message, run_config: dict[str, Any]
    ) -> tuple[int, bytes | None, Ready, Store]:
        """What both kinds of work begin with: the order, what is built for it, this client's files."""
        record = records.read(message)
        text = str(run_config.get("config", ""))
        if self._ready is None or self._ready.config != text:
            self._ready = None  # at most one model and data set in memory
            self._ready = self._build(text)
        store = Store(Path(self.settings.state), str(run_config.get("run", "")), self.client)
        t, reply = records.get(record, "round", int), records.get_or_none(record, "reply", bytes)
        rounds = self._ready.site.config.run.rounds
        if not 1 <= t <= rounds:
            raise errors.MismatchError(f"the server asks for round {t} of a run of {rounds} rounds")
        self.settings.limits.check_message(len(reply or b""), "to take a message")
        return t, reply, self._ready, store

    def _build(self, text: str) -> Ready:
        """Every limit of this site is checked here, before anything is trained."""
        limits = self.settings.limits
        job = Job.build(self.settings.read(text))
        values, d = job.config.value_type, job.selection.d
        limits.check_message(math.ceil(VALUE_BYTES[values] * d) + d // 8, "an upload that may reach the size")
        data = client_data(job, self.client, self.settings.data)
        limits.check_samples(len(data.train_y))
        check_ready(job, data.train_x)
        return Ready(text, Site(job, place(job.config.run.device, self.client)), data)

    def _audit(self, store: Store, t: int, what: str, parts: list[bytes], **about: Any) -> None:
        keep = self.settings.keep_messages
        record_sent(Path(self.settings.state), store.run, t, what, parts, keep=keep, **about)


def client_data(job: Job, client: int, own: str) -> ClientData:
    """The site's own data, or this client's share of the configured data set; nobody else's."""
    dataset = job.config.data.dataset
    if dataset == "own" and not own:
        raise errors.ConfigError("in this federation every site brings its own data: start with --data DATA")
    if dataset != "own" and own:
        raise errors.ConfigError(
            f"this federation trains on shares of {dataset}; for the sites' own data the server's "
            'configuration must say dataset = "own" in [data]'
        )
    if not own:
        return job.client_data(client)
    names = job.config.data.class_names
    if len(set(names)) != len(names):
        raise errors.ConfigError(f"data.class_names of the server names a class twice: {', '.join(names)}")
    if not names and Path(own).expanduser().is_dir():
        raise errors.ConfigError(
            f"{own} has a folder per class, and sites may hold different classes: the server's configuration "
            'must name them all, in order, as in class_names = ["cat", "dog"] in [data]'
        )
    four = load_own(own, classes=names or None, num_classes=len(job.class_names), shape=job.shape)
    return job.own_data(ClientData(*four), client)


def starting_state(site: Site, store: Store, t: int, reply: bytes | None) -> State:
    """The state that the server's reply builds upon."""
    if reply is not None:
        confirmed: int | None = wire.peek(reply).confirmed
    else:
        goes_on = site.selection.d == 0 or site.method.silent(t)
        confirmed = None if goes_on else 0
    try:
        state = pick(store.load(), t, confirmed)
    except errors.RunError as problem:
        if store.damaged:  # what it would have taken may have been in there
            raise LostStateError(str(problem)) from None
        raise
    return site.initial_state(store.client) if state is None else state
