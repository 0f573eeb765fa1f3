"""One client's side in a federation. Flower starts a fresh process of this for every message."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

import fedpurin.errors as errors
from fedpurin.config import Config
from fedpurin.engines.flower import records

if TYPE_CHECKING:
    from fedpurin.engines.flower.store import State, Store
    from fedpurin.engines.site import Site
    from fedpurin.job import Job
    from fedpurin.train import ClientData

app = ClientApp()
log = logging.getLogger("fedpurin")


def client_id(context: Context) -> int:
    return int(context.node_config["partition-id"])


@app.query()
def hello(message: Message, context: Context) -> Message:
    """Who this node is. No torch here: the answer should come at once."""
    from fedpurin import __version__

    about: dict[str, records.Value | None] = {
        "client": client_id(context),
        "version": records.VERSION,
        "package": __version__,
    }
    return Message(records.content(about), reply_to=message)


@app.train()
def work(message: Message, context: Context) -> Message:
    """One round."""
    return answer(message, context, do_work)


@app.evaluate()
def finish(message: Message, context: Context) -> Message:
    """The last reply: the client's final personal model."""
    return answer(message, context, do_finish)


def answer(message: Message, context: Context, do) -> Message:  # type: ignore[no-untyped-def]
    """Run `do` and reply with what it returns; a failure becomes one line that the server can show."""
    from fedpurin.engines.flower.store import LostStateError

    client = client_id(context)
    lost = False
    try:
        return Message(do(message, context), reply_to=message)
    except errors.FedpurinError as error:
        reason, lost = str(error), isinstance(error, LostStateError)
        log.error("%s", reason)
    except Exception as error:  # own data and own models run foreign code: anything can happen
        reason = f"{type(error).__name__}: {error}"
        log.exception("client %s failed", client)
    reason = reason.splitlines()[0] if reason else "failed without a message"
    return Message(records.content({"client": client, "error": reason, "lost": lost}), reply_to=message)


def do_work(message: Message, context: Context) -> RecordDict:
    from fedpurin.engines.site import Site
    from fedpurin.meta import Meta

    client, t, reply, job, store, data = prepare(message, context)
    site = Site(job)
    start = starting_state(site, store, t, reply)
    done = site.work(client, t, reply, start, data)
    store.save(t, start, done.state)
    save_model(job, store, done.state)
    score = Meta.from_bytes(done.meta).upload if job.config.run.share_metrics else None
    store.note(
        round=t,
        of=job.config.run.rounds,
        accuracy=score.accuracy if score else None,
        received=len(reply or b""),
        sent=len(done.upload or b"") + len(done.meta),
    )
    return records.content({"client": client, "round": t, "upload": done.upload, "meta": done.meta})


def do_finish(message: Message, context: Context) -> RecordDict:
    from fedpurin.engines.site import Site
    from fedpurin.meta import Meta

    client, t, reply, job, store, data = prepare(message, context)
    site = Site(job)
    start = starting_state(site, store, t + 1, reply)
    done = site.finish(client, t, reply, start, data)
    store.save(t + 1, start, done.state)
    save_model(job, store, done.state)
    merged = Meta.from_bytes(done.meta).merged
    store.note(final=True, model=str(store.model_file), accuracy=merged.accuracy if merged else None)
    return records.content({"client": client, "round": t, "meta": done.meta, "digest": done.digest.hex()})


def prepare(message: Message, context: Context) -> tuple[int, int, bytes | None, Job, Store, ClientData]:
    """What both kinds of work begin with: the order, the configuration, this client's files and data."""
    from fedpurin.engines.flower.store import Store
    from fedpurin.job import Job
    from fedpurin.train import prepare_process

    prepare_process()
    record = records.read(message)
    client = client_id(context)
    job = Job.build(Config.from_text(str(context.run_config["config"]), "the server's configuration"))
    store = Store(Path(str(context.node_config["state-dir"])), str(context.run_config["run"]), client)
    data = client_data(job, client, str(context.node_config.get("data", "")))
    return (
        client,
        records.get(record, "round", int),
        records.get_or_none(record, "reply", bytes),
        job,
        store,
        data,
    )


def client_data(job: Job, client: int, own: str) -> ClientData:
    """The site's own data, or this client's share of the configured data set; nobody else's."""
    from fedpurin.data import load_own
    from fedpurin.train import ClientData

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
    return ClientData(*load_own(own, num_classes=len(job.class_names), shape=job.shape))


def starting_state(site: Site, store: Store, t: int, reply: bytes | None) -> State:
    """The state that the server's reply builds upon."""
    from fedpurin import wire
    from fedpurin.engines.flower.store import pick

    if reply is not None:
        confirmed: int | None = wire.peek(reply).confirmed
    else:
        confirmed = 0 if site.selection.d else None
    state = pick(store.load(), t, confirmed)
    return site.initial_state(store.client) if state is None else state


def save_model(job: Job, store: Store, state: State) -> None:
    """The personal model as it is now, parameters and buffers by name."""
    from fedpurin.engines.flower.store import write_tensors
    from fedpurin.engines.loop import named_model

    write_tensors(store.model_file, named_model(job.layout, state))
