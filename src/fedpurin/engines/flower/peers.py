"""The clients as the server sees them: who is connected, and what comes back from each.

Flower numbers nodes anew when they restart without a key, so clients are known by their id: by the
registered key where there are keys, else by what the node answers to a hello. Messages get the round's
deadline as their time to live: a client that is too slow is dropped, and never trains for a round that
is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from fedpurin.engines.flower import records
from fedpurin.engines.pool import Outcome, Reply
from fedpurin.errors import EngineError, FedpurinError, MismatchError

POLL_SECONDS = 0.2
HELLO_SECONDS = 120.0
REASON_LENGTH = 300

Notify = Callable[..., None]
FLOWER_ERRORS = {
    1: "fedpurin cannot be started there: install the server's version",
    3: "no answer in time",
    4: "no answer in time",
    5: "the connection to it was lost",
    8: "its process died; is there enough memory?",
}
KINDS = {"work": records.WORK, "finish": records.FINISH}


class LostAtClientError(FedpurinError):
    """A client reports that it no longer has the state that the server counts on."""


@dataclass
class Peers:
    """`clients` nodes behind a Flower grid."""

    grid: Grid
    clients: int
    deadline: float  # seconds a round may take
    notify: Notify
    keys: dict[bytes, int] = field(default_factory=dict)  # public key -> client id; empty: no keys in use
    node_of: dict[int, int] = field(default_factory=dict)  # client -> node
    _hellos: dict[str, int] = field(default_factory=dict)  # message -> node, as long as there is no answer
    _again: dict[int, float] = field(
        default_factory=dict
    )  # node -> when to greet it again if it stays silent
    _done_with: set[int] = field(
        default_factory=set
    )  # refused nodes, and those whose client has come back anew

    def present(self) -> list[int]:
        """The clients that are connected now, ascending. Greets nodes that are new."""
        nodes = {node.node_id: node.public_key for node in self.grid.get_nodes()}
        known = set(self.node_of.values()) | self._done_with
        self._greet([node for node in nodes if node not in known])
        self._hear(nodes)
        return sorted(client for client, node in self.node_of.items() if node in nodes)

    def _greet(self, strangers: list[int]) -> None:
        now = time.monotonic()
        due = [node for node in strangers if self._again.get(node, now) <= now]
        hello = records.content({"version": records.VERSION})
        messages = [Message(hello, node, records.HELLO, ttl=HELLO_SECONDS, group_id="hello") for node in due]
        for node, message_id in zip(due, self.grid.push_messages(messages) if due else [], strict=True):
            self._hellos[message_id] = node
            self._again[node] = now + HELLO_SECONDS

    def _hear(self, nodes: dict[int, bytes]) -> None:
        for message in self.grid.pull_messages(list(self._hellos)) if self._hellos else []:
            node = self._hellos.pop(message.metadata.reply_to_message_id, None)
            if node is None or message.has_error():  # gone, or too slow: it is greeted again if it is there
                continue
            try:
                client = self._identify(message, nodes.get(node, b""))
            except FedpurinError as error:
                self._done_with.add(node)
                self.notify("refused", reason=str(error))
                continue
            if client in self.node_of:
                self._done_with.add(self.node_of[client])
            self.node_of[client] = node
            self.notify("joined", client=client)

    def _identify(self, message: Message, public_key: bytes) -> int:
        record = _record(message)
        client, version = records.get(record, "client", int), records.get(record, "version", int)
        if version != records.VERSION:
            raise MismatchError(
                f"client {client} runs fedpurin {record.get('package')}, which speaks another version of the "
                "protocol: install the server's version there"
            )
        if not 0 <= client < self.clients:
            raise MismatchError(
                f"a node calls itself client {client}; there are clients 0 to {self.clients - 1}"
            )
        if self.keys and self.keys.get(public_key) != client:
            raise MismatchError(
                f"a node calls itself client {client}, but its key is that of {self.keys.get(public_key)}"
            )
        return client

    def run(self, op: str, t: int, clients: Iterable[int], reply: Reply) -> Iterator[Outcome]:
        """Send one message to each of these clients and yield what comes of it, until the deadline."""
        end = time.monotonic() + self.deadline
        asked = list(clients)
        messages = [self._message(op, t, client, reply(client)) for client in asked]
        waiting = dict(zip(self.grid.push_messages(messages), asked, strict=True)) if messages else {}
        while waiting:
            for message in self.grid.pull_messages(list(waiting)):
                client = waiting.pop(message.metadata.reply_to_message_id, None)
                if client is not None:
                    yield self._outcome(op, t, client, message)
            if waiting and time.monotonic() > end:
                break
            if waiting:
                self.present()  # a client that restarted meanwhile is known again by the next round
                time.sleep(POLL_SECONDS)
        for client in waiting.values():
            yield Outcome(client, error=EngineError(f"no answer within {self.deadline:g} s"))

    def _message(self, op: str, t: int, client: int, reply: bytes | None) -> Message:
        content = records.content({"round": t, "reply": reply})
        return Message(content, self.node_of[client], KINDS[op], ttl=self.deadline, group_id=str(t))

    def _outcome(self, op: str, t: int, client: int, message: Message) -> Outcome:
        """A reply from another machine, checked. Whatever is wrong with it concerns this client alone."""
        try:
            record = _record(message)
            sender = records.get(record, "client", int)
            if sender != client:
                raise MismatchError(f"the node of client {client} answered as client {sender}")
            if "error" in record:
                kind = LostAtClientError if record.get("lost") is True else EngineError
                raise kind(one_line(records.get(record, "error", str)))
            if records.get(record, "round", int) != t:
                raise MismatchError(f"answered for round {record['round']} instead of {t}")
            meta = records.get(record, "meta", bytes)
            if op == "finish":
                return Outcome(client, meta, digest=_digest(record))
            return Outcome(client, meta, records.get_or_none(record, "upload", bytes))
        except FedpurinError as error:
            return Outcome(client, error=error)


def _record(message: Message) -> Any:
    if message.has_error():
        error = message.error
        said = error.reason or f"Flower's error {error.code}"
        raise EngineError(one_line(FLOWER_ERRORS.get(error.code, f"failed: {said}")))
    return records.read(message)


def _digest(record: Any) -> str:
    digest = records.get(record, "digest", str)
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise MismatchError("the final digest is not 64 hexadecimal digits")
    return digest


def one_line(text: str) -> str:
    """What another machine said, fit to be shown: one short line without control characters."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else "?" for c in line)[:REASON_LENGTH] or "failed without a message"
