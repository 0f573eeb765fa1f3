"""The clients as the server sees them: who is connected, and what comes back from each.

Flower numbers nodes anew when they restart without a key, so clients are known by their id: by the
registered key where there are keys, else by what the node answers to a hello. Messages get the round's
deadline as their time to live: a client that is too slow is dropped, and never trains for a round that
is over.

A site repeats a round to the same bytes, so what is lost on the way is simply asked for again: when Flower
reports a dead node or process, when a client comes back under another node id, and when a node answers a
later message although it owes the answer to an earlier one (nodes work through their messages in order).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedpurin.engines.flower import records
from fedpurin.engines.flower.roster import Roster
from fedpurin.engines.flower.runtime import NotPushed
from fedpurin.engines.transport import Failure, Outcome, Reply
from fedpurin.errors import EngineError, FedpurinError, MismatchError
from fedpurin.version import __version__

SHORTEST_WAIT, LONGEST_WAIT = 0.1, 0.5  # between questions for answers
LOOK_SECONDS = 0.5  # between questions for who is connected
HELLO_SECONDS = 120.0
PROBE_SECONDS = 20.0  # without an answer, after which a node is greeted again: it may have lost the message
MAX_TRIES = 4  # per client and round
REASON_LENGTH = 300

Notify = Callable[..., None]
FLOWER_ERRORS = {
    1: "fedpurin cannot be started there: install the server's version",
    3: "no answer in time",
    4: "no answer in time",
    5: "the connection to it was lost",
    8: "its process died; is there enough memory?",
}
REVOKED = "its key was revoked or replaced"
LOST_ON_THE_WAY = (4, 5, 8)  # worth another try
KINDS = {"work": records.WORK, "finish": records.FINISH}


@dataclass
class Asked:
    """One client's order and what became of it so far."""

    client: int
    content: RecordDict
    tries: int = 0
    node: int = 0
    message: str = ""  # id; empty: it has to be sent (again)
    probe: str = ""  # id of a hello that was sent after it
    since: float = 0.0  # when it was sent, or found to be lost
    problem: str = ""  # the last reason why it has to be sent again


@dataclass
class Peers:
    """`clients` nodes behind a Flower grid."""

    grid: Grid
    clients: int
    deadline: float  # seconds a round may take
    notify: Notify
    roster: Roster = field(default_factory=Roster)  # whose keys are accepted, and for which client
    node_of: dict[int, int] = field(default_factory=dict)  # client -> node
    patience: float = 15.0  # seconds that a round waits for a client that it has lost
    _key_of: dict[int, bytes] = field(default_factory=dict)  # client -> the key it came with
    _hellos: dict[str, int] = field(default_factory=dict)  # message -> node, as long as there is no answer
    _again: dict[int, float] = field(default_factory=dict)  # node -> when to greet it again
    _done_with: set[int] = field(default_factory=set)  # refused, or its client has come back anew
    _here: set[int] = field(default_factory=set)  # clients, when we last looked

    def present(self) -> list[int]:
        """The clients that are connected now, ascending. Greets nodes that are new."""
        nodes = {node.node_id: node.public_key for node in self.grid.get_nodes()}
        self._dismiss()
        known = set(self.node_of.values()) | self._done_with
        self._greet([node for node in nodes if node not in known])
        self._hear(nodes)
        here = sorted(client for client, node in self.node_of.items() if node in nodes)
        for client in sorted(self._here - set(here)):
            self.notify("left", client=client)
        self._here = set(here)
        return here

    def members(self) -> set[int]:
        """The clients that may take part, connected or not."""
        return set(self.roster.clients().values()) if self.roster else set(range(self.clients))

    def _dismiss(self) -> None:
        """Clients whose key is no longer theirs: revoked, or replaced by a new one. Flower may have forgotten
        their nodes already."""
        if not self.roster:
            return
        keys, members = self.roster.clients(), self.members()
        for client, node in list(self.node_of.items()):
            if keys.get(self._key_of[client]) != client:
                del self.node_of[client]
                self._done_with.add(node)
                self._here.discard(client)  # it did not leave, it was told to
                self.notify("revoked" if client not in members else "replaced", client=client)

    def _greet(self, strangers: list[int]) -> None:
        now = time.monotonic()
        for node in strangers:
            if self._again.get(node, now) <= now:
                self._again[node] = now + PROBE_SECONDS
                if message_id := self._try_hello(node):
                    self._hellos[message_id] = node

    def _hello(self, node: int) -> Message:
        hello = records.content({"version": records.VERSION, "package": __version__})
        return Message(hello, node, records.HELLO, ttl=HELLO_SECONDS, group_id="hello")

    def _push(self, message: Message) -> str:
        """The id of a message on its way, or "" where Flower refuses it. One at a time: a refusal is then
        plainly that of one client."""
        ids = list(self.grid.push_messages([message]))
        return ids[0] or "" if ids else ""

    def _try_hello(self, node: int) -> str:
        with contextlib.suppress(NotPushed):  # it is sent again in time
            return self._push(self._hello(node))
        return ""

    def _hear(self, nodes: dict[int, bytes]) -> None:
        for message in self.grid.pull_messages(list(self._hellos)) if self._hellos else []:
            node = self._hellos.pop(message.metadata.reply_to_message_id, None)
            if node is None:
                continue
            if message.has_error():  # gone, or its process died over it: greeted again if it is there
                self._again.pop(node, None)
                continue
            try:
                client = self._identify(message, nodes.get(node, b""))
            except FedpurinError as error:
                self._done_with.add(node)
                self.notify("refused", reason=str(error))
                continue
            if self.node_of.get(client) == node:  # the second answer of one that was greeted twice
                continue
            if client in self.node_of:
                self._done_with.add(self.node_of[client])
            self.node_of[client], self._key_of[client] = node, nodes.get(node, b"")
            self.notify("joined", client=client)

    def _identify(self, message: Message, public_key: bytes) -> int:
        record = _record(message)
        if "error" in record:
            raise MismatchError(one_line(records.get(record, "error", str)))
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
        if self.roster and (owner := self.roster.clients().get(public_key)) != client:
            raise MismatchError(f"a node calls itself client {client}, but its key is that of {owner}")
        return client

    def run(self, op: str, t: int, clients: Iterable[int], reply: Reply) -> Iterator[Outcome]:
        """Send one message to each of these clients and yield one outcome for each, by the deadline."""
        waiting = [Asked(client, records.content({"round": t, "reply": reply(client)})) for client in clients]
        here = {asked.client for asked in waiting}
        due = list(self._send(op, t, waiting, here, self.deadline))
        looked = time.monotonic()
        end = looked + self.deadline  # from when all have been asked
        wait = SHORTEST_WAIT
        while waiting:
            for outcome in [*due, *self._collect(op, t, waiting)]:
                waiting = [asked for asked in waiting if asked.client != outcome.client]
                wait = SHORTEST_WAIT
                yield outcome
            now = time.monotonic()
            if not waiting or now > end:
                break
            if now - looked >= LOOK_SECONDS:
                here, looked = set(self.present()), now  # a client that restarted meanwhile is known again
            due = list(self._send(op, t, waiting, here, end - now))
            if not due:
                time.sleep(wait)
                wait = min(1.2 * wait, LONGEST_WAIT)
        for asked in waiting:
            reason = asked.problem or f"no answer within {self.deadline:g} s"
            yield failed(asked.client, reason)

    def _send(self, op: str, t: int, waiting: list[Asked], here: set[int], ttl: float) -> Iterator[Outcome]:
        """Everything that is due: first orders, repeated ones, and questions to nodes that are silent."""
        for asked in waiting:
            now = time.monotonic()
            node = self.node_of.get(asked.client)
            if node is None:
                yield failed(asked.client, REVOKED)
                continue
            if asked.message and asked.node != node:
                self._lose(asked, "it was restarted")
            if asked.message and not asked.probe and now - asked.since > PROBE_SECONDS:
                asked.probe = self._try_hello(node)
            if asked.message:
                continue
            gone = asked.tries and asked.client not in here and now - asked.since > self.patience
            if asked.tries >= MAX_TRIES or gone:
                yield failed(asked.client, asked.problem)
            elif asked.client in here:
                message = Message(asked.content, node, KINDS[op], ttl=ttl, group_id=str(t))
                asked.tries += 1
                try:
                    asked.message, asked.node, asked.since = self._push(message), node, now
                except NotPushed:
                    self._lose(asked, "the message did not get on its way")
                    continue
                if not asked.message:
                    yield failed(asked.client, "Flower refused the message to it")

    def _collect(self, op: str, t: int, waiting: list[Asked]) -> Iterator[Outcome]:
        """Answers that are there."""
        orders = {asked.message: asked for asked in waiting if asked.message}
        probes = {asked.probe: asked for asked in waiting if asked.probe}
        answered = set()
        for message in self.grid.pull_messages([*orders, *probes]) if orders else []:
            answered.add(message.metadata.reply_to_message_id)
            asked = orders.get(message.metadata.reply_to_message_id)
            if asked is None:
                continue
            if asked.client not in self.node_of:
                yield failed(asked.client, REVOKED)
            elif message.has_error() and message.error.code in LOST_ON_THE_WAY and asked.tries < MAX_TRIES:
                self._lose(asked, FLOWER_ERRORS[message.error.code])
            else:
                yield self._outcome(op, t, asked.client, message)
        for probe, asked in probes.items():
            if probe in answered and asked.message and asked.message not in answered:
                asked.probe = ""
                self._lose(asked, "it no longer has the message")

    @staticmethod
    def _lose(asked: Asked, problem: str) -> None:
        asked.message, asked.probe, asked.problem, asked.since = "", "", problem, time.monotonic()

    def _outcome(self, op: str, t: int, client: int, message: Message) -> Outcome:
        """A reply from another machine, checked. Whatever is wrong with it concerns this client alone."""
        try:
            record = _record(message)
            sender = records.get(record, "client", int)
            if sender != client:
                raise MismatchError(f"the node of client {client} answered as client {sender}")
            if "error" in record:
                reason = one_line(records.get(record, "error", str))
                return failed(client, reason, lost=record.get("lost") is True)
            if records.get(record, "round", int) != t:
                raise MismatchError(f"answered for round {record['round']} instead of {t}")
            meta = records.get(record, "meta", bytes)
            if op == "finish":
                return Outcome(client, meta, digest=_digest(record))
            return Outcome(client, meta, records.get_or_none(record, "upload", bytes))
        except FedpurinError as error:
            return failed(client, str(error))


def failed(client: int, reason: str, *, lost: bool = False) -> Outcome:
    """`lost`: the client no longer has the state that the server counts on."""
    return Outcome(client, failure=Failure(reason, "state" if lost else "client"))


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
