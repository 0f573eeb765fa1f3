"""A Flower grid without Flower's processes: messages go straight to the site's `Client`, in this process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flwr.app import Error, Message
from flwr.supercore.task_identity import TaskIdentity

from fedpurin.config import Config
from fedpurin.engines.flower import peers, records
from fedpurin.engines.flower.client_app import Client
from fedpurin.engines.flower.roster import Roster
from fedpurin.engines.flower.server_app import serve
from fedpurin.engines.flower.settings import Limits, SiteSettings, Terms
from fedpurin.engines.simulate import run_job
from fedpurin.job import Job
from fedpurin.runs.directory import RunDirectory

# Flower sets this in the process of every task, and messages cannot be made without it.
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

peers.LOOK_SECONDS = 0.0  # asking a fake costs nothing, and deadlines are short here

SEATS = 1000  # more than any federation here has; a node's number is its client's, and how often it restarted

Tamper = Callable[[Message, Message], Message | None]  # (asked, answer) -> what arrives, None: nothing


def small(method: str = "fedpurin", clients: int = 3, rounds: int = 2, **wire: Any) -> Config:
    """A run that takes a second: one epoch over 40 samples of the bundled set, beta 1."""
    return (
        Config()
        .updated({"method": {"beta": 1}})
        .updated(
            {
                "run": {"method": method, "clients": clients, "rounds": rounds, "seed": 3, "workers": 1},
                "data": {"train_samples": 40, "test_samples": 20},
                "model": {"name": "mlp"},
                "train": {"epochs": 1},
                "wire": wire,
            }
        )
    )


def simulated(config: Config, path: Path) -> dict[str, Any]:
    """The result of the same run in this process, which every engine must reach."""
    return run_job(Job.build(config.updated({"run": {"engine": "inline"}})), path)


@dataclass
class FakeGrid:
    """`clients` nodes, each with a state folder. `tamper` stands for all that can go wrong on the way."""

    folder: Path
    config: Config
    tamper: Tamper = lambda asked, answer: answer
    run_name: str = "r1"
    data: list[str] = field(
        default_factory=list
    )  # own data of each client; empty: shares of the configured set
    allow: tuple[str, ...] = ()
    limits: dict[int, Limits] = field(default_factory=dict)  # by client
    absent: set[int] = field(default_factory=set)
    asked: list[tuple[str, int, str]] = field(default_factory=list)  # (kind, client, round)
    _sites: dict[int, Client] = field(default_factory=dict)  # by node
    _replies: dict[str, Message] = field(default_factory=dict)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    keys: dict[int, bytes] = field(default_factory=dict)  # of nodes that have another than "key CLIENT"
    restarts: dict[int, int] = field(default_factory=dict)  # client -> how often it got a new node id

    def node(self, client: int) -> int:
        return SEATS * (1 + self.restarts.get(client, 0)) + client

    def get_nodes(self) -> list[Any]:
        clients = range(self.config.run.clients)
        here = [(self.node(c), c) for c in clients if c not in self.absent]
        dead = [(SEATS * (1 + k) + c, c) for c, times in self.restarts.items() for k in range(times)]
        return [
            SimpleNamespace(node_id=n, public_key=self.keys.get(n, f"key {c}".encode()))
            for n, c in dead + here
        ]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            name = f"m{next(self._numbers)}"
            message.metadata.__dict__["_message_id"] = name
            ids.append(name)
            client = client_of(message)
            # the node is gone, or dead, though Flower may list it still
            if client in self.absent or message.metadata.dst_node_id != self.node(client):
                self._replies[name] = Message(Error(5, "Node Unavailable"), reply_to=message)
                continue
            self.asked.append((message.metadata.message_type, client, message.metadata.group_id))
            arrived = self.tamper(message, self.answer(client, message))
            if arrived is not None:
                self._replies[name] = arrived
        return ids

    def reply_with(self, message: Message) -> None:
        """An answer that comes late."""
        self._replies[message.metadata.reply_to_message_id] = message

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._replies.pop(name) for name in message_ids if name in self._replies]

    def answer(self, client: int, message: Message) -> Message:
        """As the site's process does it; a restarted site has a new one."""
        node = self.node(client)
        if node not in self._sites:
            data = self.data[client] if self.data else ""
            self._sites[node] = Client(
                SiteSettings(
                    client,
                    str(self.state(client)),
                    data,
                    self.allow,
                    local_paths=True,
                    limits=self.limits.get(client, Limits()),
                    keep_messages=True,
                )
            )
        reply, line = self._sites[node].answer(
            message, {"config": self.config.to_toml(), "run": self.run_name}
        )
        if line:
            self._sites[node].note(line)
        return reply

    def state(self, client: int) -> Path:
        return self.folder / f"site-{client}"


def client_of(message: Message) -> int:
    return message.metadata.dst_node_id % SEATS


def answer_with(asked: Message, **values: Any) -> Message:
    """A reply with other contents than the client gave."""
    return Message(records.content(**values), reply_to=asked)


def is_work(asked: Message, client: int, t: int) -> bool:
    about = asked.metadata
    return (about.message_type, client_of(asked), about.group_id) == (records.WORK, client, str(t))


class Members(Roster):
    """A roster without files."""

    def __init__(self, *clients: int) -> None:
        super().__init__(Path())
        self.keys = {f"key {client}".encode(): client for client in clients}

    def clients(self) -> dict[bytes, int]:
        return self.keys


class Federation:
    """A server on a fake grid, with what it told the user."""

    def __init__(
        self,
        folder: Path,
        config: Config,
        tamper: Tamper = lambda asked, answer: answer,
        roster: Roster | None = None,
    ) -> None:
        self.path = folder / "run"
        self.grid = FakeGrid(folder, config, tamper)
        self.events: list[dict[str, Any]] = []
        self.roster = roster
        self.terms = Terms.of(config.run.clients, deadline=1.0, join=0.5, patience=0.0)
        RunDirectory.create(self.path, Job.build(config)).close()

    def run(self) -> dict[str, Any]:
        def notify(event: str, **details: Any) -> None:
            self.events.append({"event": event, **details})

        return serve(self.grid, self.path, self.terms, notify, self.roster)  # type: ignore[arg-type]

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]
