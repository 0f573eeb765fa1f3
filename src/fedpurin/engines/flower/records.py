"""What a Flower message holds: one ConfigRecord, in which our bytes travel as one `bytes` value.

    hello   down  version                   up  version, client, package
    work    down  round, reply if any       up  client, round, upload if any, meta
    finish  down  round, reply if any       up  client, round, meta, digest
    beside the latter two, if need be       up  warning (one line for the operator)
    a failure, instead of the latter two    up  client, error (one line), lost (its state is gone)

Every value comes from another machine: the getters check types and say what is wrong.
"""

from __future__ import annotations

from typing import TypeVar

from flwr.app import ConfigRecord, Message, MessageType, RecordDict

from fedpurin.engines.transport import Failure, Outcome
from fedpurin.errors import CorruptError, EngineError, FedpurinError, MismatchError

RECORD = "fedpurin"
VERSION = 2  # of these records; both sides must agree
HELLO, WORK, FINISH = MessageType.QUERY, MessageType.TRAIN, MessageType.EVALUATE
KINDS = {"work": WORK, "finish": FINISH}
FLOWER_ERRORS = {
    1: "fedpurin cannot be started there: install the server's version",
    3: "no answer in time",
    4: "no answer in time",
    5: "the connection to it was lost",
    8: "its process died; is there enough memory?",
}
REASON_LENGTH = 300

T = TypeVar("T", int, str, bytes)


def content(**values: int | str | bytes | bool | None) -> RecordDict:
    """A message's content; None stands for a value that is not there."""
    return RecordDict({RECORD: ConfigRecord({k: v for k, v in values.items() if v is not None})})


def read(message: Message) -> ConfigRecord:
    """Our record in a message. Raises CorruptError when it is not there."""
    if not message.has_content() or RECORD not in message.content.config_records:
        raise CorruptError("the message holds no fedpurin record; does the peer run another program?")
    return message.content.config_records[RECORD]


def get(record: ConfigRecord, name: str, kind: type[T]) -> T:
    """A value that must be there and have this type."""
    value = record.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        found = "nothing" if value is None else type(value).__name__
        raise CorruptError(f"the peer's message has {found} for {name!r} instead of {kind.__name__}")
    return value


def get_or_none(record: ConfigRecord, name: str, kind: type[T]) -> T | None:
    return get(record, name, kind) if name in record else None


def read_reply(message: Message) -> ConfigRecord:
    """At the server, where Flower answers for a node that does not."""
    if message.has_error():
        error = message.error
        said = error.reason or f"Flower's error {error.code}"
        raise EngineError(one_line(FLOWER_ERRORS.get(error.code, f"failed: {said}")))
    return read(message)


def outcome(op: str, t: int, client: int, message: Message) -> Outcome:
    """A reply from another machine, checked. Whatever is wrong with it concerns this client alone."""
    try:
        record = read_reply(message)
        sender = get(record, "client", int)
        if sender != client:
            raise MismatchError(f"the node of client {client} answered as client {sender}")
        if "error" in record:
            return failed(client, one_line(get(record, "error", str)), lost=record.get("lost") is True)
        if (answered := get(record, "round", int)) != t:
            raise MismatchError(f"answered for round {answered} instead of {t}")
        meta = get(record, "meta", bytes)
        if op == "work":
            return Outcome(client, meta, get_or_none(record, "upload", bytes))
        digest = get(record, "digest", str)
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise MismatchError("the final digest is not 64 hexadecimal digits")
        return Outcome(client, meta, digest=digest)
    except FedpurinError as error:
        return failed(client, str(error))


def warning(client: int, message: Message) -> str:
    """What a client wants the operator to know; "" for nothing."""
    if not message.has_content() or RECORD not in message.content.config_records:
        return ""
    said = read(message).get("warning")
    return f"client {client}: {one_line(said)}" if isinstance(said, str) else ""


def failed(client: int, reason: str, *, lost: bool = False) -> Outcome:
    """`lost`: the client no longer has the state that the server counts on."""
    return Outcome(client, failure=Failure(reason, "state" if lost else "client"))


def one_line(text: str) -> str:
    """What another machine said, fit to be shown: one short line without control characters."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else "?" for c in line)[:REASON_LENGTH] or "failed without a message"
