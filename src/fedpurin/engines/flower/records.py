"""What a Flower message holds: one ConfigRecord, in which our bytes travel as one `bytes` value.

    hello   down  version                   up  version, client, package
    work    down  round, reply if any       up  client, round, upload if any, meta
    finish  down  round, reply if any       up  client, round, meta, digest
    a failure, instead of the latter two    up  client, error (one line), lost (its state is gone)

Every value comes from another machine: the getters check types and say what is wrong.
"""

from __future__ import annotations

from typing import TypeVar

from flwr.app import ConfigRecord, Message, MessageType, RecordDict

from fedpurin.errors import CorruptError

RECORD = "fedpurin"
VERSION = 2  # of these records; both sides must agree
HELLO, WORK, FINISH = MessageType.QUERY, MessageType.TRAIN, MessageType.EVALUATE

Value = int | str | bytes | bool
T = TypeVar("T", int, str, bytes)


def content(values: dict[str, Value | None]) -> RecordDict:
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
