"""The clients as the server sees them: who is connected, and what comes back from each.

Flower numbers nodes anew when they restart without a key, so clients are known by their id: by the
registered key where there are keys, else by what the node answers to a hello. Messages get the round's
deadline as their time to live: a client that is too slow is dropped, and never trains for a round that
is over.

A site repeats a round to the same bytes, so what is lost on the way is simply asked for again: when Flower
reports a dead node or process, when a client comes back under another node id, and when a node answers a
later message although it owes the answer to an earlier one (nodes work through their messages in order).
A lost client is asked again only after it was seen to be connected since: one that is just coming back would
otherwise use up its tries within a moment.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedpurin.engines.flower import records
from fedpurin.engines.flower.roster import Roster
from fedpurin.engines.flower.runtime import NotPushed, patiently
from fedpurin.engines.flower.settings import Terms
from fedpurin.engines.transport import Outcome, Reply, Transport
from fedpurin.errors import EngineError, FedpurinError, MismatchError
from fedpurin.version import __version__

SHORTEST_WAIT, LONGEST_WAIT = 0.1, 0.5  # between questions for answers
WAIT_POLL_SECONDS = 0.3  # between looks for the clients of a round
LOOK_SECONDS = 0.5  # between questions for who is connected
HELLO_SECONDS = 120.0
PROBE_SECONDS = 20.0  # without an answer, after which a node is greeted again: it may have lost the message
MAX_TRIES = 4  # per client and round

Notify = Callable[..., None]
REVOKED = "its key was revoked or replaced"
LOST_ON_THE_WAY = (4, 5, 8)  # worth another try


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
class Peers(Transport):
    """`clients` nodes behind a Flower grid, which keep their own states and final models."""

    grid: Grid
    clients: int
    terms: Terms
    notify: Notify
    roster: Roster = field(default_factory=Roster)  # whose keys are accepted, and for which client
    node_of: dict[int, int] = field(default_factory=dict)  # client -> node
    _key_of: dict[int, bytes] = field(default_factory=dict)  # client -> the key it came with
    _hellos: dict[str, int] = field(default_factory=dict)  # message -> node, as long as there is no answer
    _again: dict[int, float] = field(default_factory=dict)  # node -> when to greet it again
    _done_with: set[int] = field(default_factory=set)  # refused, or its client has come back anew
    _here: set[int] = field(default_factory=set)  # clients, when we last looked

    def gather(self, asked: list[int], *, first: bool) -> list[int]:
        """Wait for the clients of a round: for all of them at first, later rather for enough of them, and not
        for one that has a key and never came."""
        seats, began, told = asked, time.monotonic(), -1
        while True:
            asked = self.members(seats)
            need = min(self.terms.minimum, len(asked))
            here = [client for client in self.present() if client in asked]
            expected = asked if first else [client for client in asked if client in self.node_of]
            waited = time.monotonic() - began
            if set(expected) <= set(here) and len(here) >= need:
                return here
            if len(here) != told:
                told = len(here)
                self.notify("waiting", have=told, want=max(need, len(expected)))
            if len(here) >= need and waited > (self.terms.join if first else self.terms.patience):
                return here
            if waited > self.terms.join:
                raise EngineError(
                    f"{len(here)} of {len(asked)} clients are connected after {waited:.0f} s, and a round "
                    f"needs {need}: start the missing clients and resume"
                )
            time.sleep(WAIT_POLL_SECONDS)

    def present(self) -> list[int]:
        """The clients that are connected now, ascending. Greets nodes that are new."""
        nodes = {node.node_id: node.public_key for node in patiently(self.grid.get_nodes)}
        self._dismiss()
        known = set(self.node_of.values()) | self._done_with
        self._greet([node for node in nodes if node not in known])
        self._hear(nodes)
        here = sorted(client for client, node in self.node_of.items() if node in nodes)
        for client in sorted(self._here - set(here)):
            self.notify("left", client=client)
        self._here = set(here)
        return here

    def members(self, clients: list[int]) -> list[int]:
        """Those with a key; others have none yet, or had theirs revoked. All, where keys are not in use."""
        keys = set(self.roster.clients().values())
        return [client for client in clients if not self.roster or client in keys]

    def _dismiss(self) -> None:
        """Clients whose key is no longer theirs: revoked, or replaced by a new one. Flower may have forgotten
        their nodes already."""
        if not self.roster:
            return
        keys = self.roster.clients()
        for client, node in list(self.node_of.items()):
            if keys.get(self._key_of[client]) != client:
                del self.node_of[client]
                self._done_with.add(node)
                self._here.discard(client)  # it did not leave, it was told to
                self.notify("replaced" if client in keys.values() else "revoked", client=client)

    def _greet(self, strangers: list[int]) -> None:
        now = time.monotonic()
        for node in strangers:
            if self._again.get(node, now) <= now:
                self._again[node] = now + PROBE_SECONDS
                if message_id := self._try_hello(node):
                    self._hellos[message_id] = node

    def _hello(self, node: int) -> Message:
        hello = records.content(version=records.VERSION, package=__version__)
        return Message(hello, node, records.HELLO, ttl=HELLO_SECONDS, group_id="hello")

    def _push(self, message: Message) -> str:
        """The id of a message on its way, or "" where Flower refuses it. One at a time: a refusal is then
        plainly that of one client."""
        ids = patiently(lambda: list(self.grid.push_messages([message])))
        return ids[0] or "" if ids else ""

    def _pull(self, ids: list[str]) -> list[Message]:
        return patiently(lambda: list(self.grid.pull_messages(ids))) if ids else []

    def _try_hello(self, node: int) -> str:
        with contextlib.suppress(NotPushed):  # it is sent again in time
            return self._push(self._hello(node))
        return ""

    def _hear(self, nodes: dict[int, bytes]) -> None:
        for message in self._pull(list(self._hellos)):
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
        record = records.read_reply(message)
        if "error" in record:
            raise MismatchError(records.one_line(records.get(record, "error", str)))
        client, version = records.get(record, "client", int), records.get(record, "version", int)
        if version != records.VERSION:
            raise MismatchError(
                f"client {client} runs fedpurin {record.get('package')!s}, which speaks another version of "
                "the protocol: install the server's version there"
            )
        if not 0 <= client < self.clients:
            raise MismatchError(
                f"a node calls itself client {client}; there are clients 0 to {self.clients - 1}"
            )
        if self.roster and (owner := self.roster.clients().get(public_key)) != client:
            raise MismatchError(f"a node calls itself client {client}, but its key is that of {owner}")
        return client

    def run(self, op: str, t: int, clients: list[int], reply: Reply) -> Iterator[Outcome]:
        """Send one message to each of these clients and yield one outcome for each, by the deadline."""
        waiting = [Asked(client, records.content(round=t, reply=reply(client))) for client in clients]
        here = {asked.client for asked in waiting}
        looked = time.monotonic()
        due = list(self._send(op, t, waiting, here, looked, self.terms.deadline))
        end = time.monotonic() + self.terms.deadline  # from when all have been asked
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
            due = list(self._send(op, t, waiting, here, looked, end - now))
            if not due:
                time.sleep(wait)
                wait = min(1.2 * wait, LONGEST_WAIT)
        for asked in waiting:
            reason = asked.problem or f"no answer within {self.terms.deadline:g} s"
            yield records.failed(asked.client, reason)

    def _send(
        self, op: str, t: int, waiting: list[Asked], here: set[int], looked: float, ttl: float
    ) -> Iterator[Outcome]:
        """Everything that is due: first orders, repeated ones, and questions to nodes that are silent.
        `here` is who was connected when we `looked`: of one that was lost after that it says nothing."""
        for asked in waiting:
            now = time.monotonic()
            node = self.node_of.get(asked.client)
            if node is None:
                yield records.failed(asked.client, REVOKED)
                continue
            if asked.message and asked.node != node:
                self._lose(asked, "it was restarted")
            if asked.message and not asked.probe and now - asked.since > PROBE_SECONDS:
                asked.probe = self._try_hello(node)
            if asked.message:
                continue
            gone = asked.tries and asked.client not in here and now - asked.since > self.terms.patience
            if asked.tries >= MAX_TRIES or gone:
                yield records.failed(asked.client, asked.problem)
            elif asked.client in here and asked.since <= looked:
                message = Message(asked.content, node, records.KINDS[op], ttl=ttl, group_id=str(t))
                asked.tries += 1
                try:
                    asked.message, asked.node, asked.since = self._push(message), node, now
                except NotPushed:
                    self._lose(asked, "the message did not get on its way")
                    continue
                if not asked.message:
                    yield records.failed(asked.client, "Flower refused the message to it")

    def _collect(self, op: str, t: int, waiting: list[Asked]) -> Iterator[Outcome]:
        """Answers that are there."""
        orders = {asked.message: asked for asked in waiting if asked.message}
        probes = {asked.probe: asked for asked in waiting if asked.probe}
        answered = set()
        for message in self._pull([*orders, *probes]) if orders else []:
            answered.add(message.metadata.reply_to_message_id)
            asked = orders.get(message.metadata.reply_to_message_id)
            if asked is None:
                continue
            if asked.client not in self.node_of:
                yield records.failed(asked.client, REVOKED)
            elif message.has_error() and message.error.code in LOST_ON_THE_WAY and asked.tries < MAX_TRIES:
                self._lose(asked, records.FLOWER_ERRORS[message.error.code])
            else:
                if warning := records.warning(asked.client, message):
                    self.notify("warning", text=warning)
                yield records.outcome(op, t, asked.client, message)
        for probe, asked in probes.items():
            if probe in answered and asked.message and asked.message not in answered:
                asked.probe = ""
                self._lose(asked, "it no longer has the message")

    @staticmethod
    def _lose(asked: Asked, problem: str) -> None:
        asked.message, asked.probe, asked.problem, asked.since = "", "", problem, time.monotonic()
