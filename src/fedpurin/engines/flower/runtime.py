"""Flower's runtime interface, through which tasks are taken and answered.

A SuperNode or SuperLink started with `--isolation process` starts no program for its tasks. It offers them
on its runtime interface, and a process of ours takes them, reads the message, and answers it with code that
is installed here. The bundle that came with the task is never unpacked; only its name and hash are read.

    Tasks.next() -> Task | None       take the oldest task
    Task.order                        what was asked; Task.answer(order, message) sends the reply
    Tasks.serve_run(name)             at the server: the grid of our own run

Here and in node.py is all that we use of Flower beyond its public interface, as of flwr 1.41;
tests/federation/test_federation_runtime.py runs it against the installed version.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
from flwr.app import Context, Message, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.common.constant import SubStatus
from flwr.common.serde import message_from_proto, message_to_proto, run_from_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import PullObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PullTaskInputResponse,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message
from google.protobuf.message import DecodeError

from fedpurin.errors import EngineError
from fedpurin.files import write_atomic

SITE_TASKS = ("flwr-clientapp", "flwr-agentapp")  # the second kind is taken only to be refused
SERVER_TASKS = ("flwr-serverapp",)
PROTECTED_CALLS = frozenset({"/flwr.proto.Runtime/AcquireTask"})
HEARTBEAT_SECONDS = 10.0  # a task is given up after 30 s without one at first, 60 s later
SENT_SECONDS = 60.0

NotPushed = ObjectPushError  # a message that took Flower too long to take; another try is fine
Unavailable = (httpx.HTTPError, OSError)  # the node is starting, restarting, or has forgotten this task
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds, before a SuperLink that fails is asked again
T = TypeVar("T")


def patiently(ask: Callable[[], T]) -> T:
    """What the SuperLink answers. One with many nodes fails now and then (status 500; why, we do not know),
    and does well a moment later; asking twice does no harm, since sites repeat a round to the same bytes."""
    for pause in PAUSES:
        try:
            return ask()
        except httpx.HTTPStatusError as error:
            if error.response.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                raise
        time.sleep(pause)
    return ask()


@dataclass(frozen=True)
class Door:
    """Where a runtime interface is, and what it takes to be served there."""

    address: str  # host:port
    ca: str = ""  # file; empty: in clear
    secret: str = ""  # file; empty: none asked for

    def client(self, name: str, token: str = "") -> RuntimeHttpClient:
        interceptors: list[Any] = [RuntimeVersionHttpInterceptor(component_name=name)]
        if token:
            interceptors.append(RuntimeTokenHttpInterceptor(token))
        elif self.secret:
            secret = Path(self.secret).read_bytes()
            interceptors.append(
                SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=PROTECTED_CALLS)
            )
        return RuntimeHttpClient.from_server_address(
            self.address, not self.ca, self.authority(), interceptors
        )

    def authority(self) -> bytes | None:
        return Path(self.ca).read_bytes() if self.ca else None


@dataclass(frozen=True)
class Bundle:
    """The app that the server named for a task. Its content stays unread."""

    name: str
    version: str
    hash: str


@dataclass(frozen=True)
class Order:
    """What a task asks for, in a form that outlives the process which took it."""

    token: str
    task_id: int
    node_id: int
    run_config: dict[str, Any]
    bundle: Bundle
    message: Message
    tries: int = 1  # of processes that have begun it

    def save(self, folder: Path) -> None:
        about = {name: value for name, value in vars(self).items() if name != "message"}
        about["bundle"] = asdict(self.bundle)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(folder / "message", message_to_proto(self.message).SerializeToString())
        write_atomic(folder / "order.json", json.dumps(about))

    @classmethod
    def load(cls, folder: Path) -> Order | None:
        """What an earlier process had begun; None if there is nothing (whole)."""
        try:
            about = json.loads((folder / "order.json").read_text())
            message = message_from_proto(ProtoMessage.FromString((folder / "message").read_bytes()))
            return cls(**about | {"bundle": Bundle(**about["bundle"]), "message": message})
        except (OSError, ValueError, KeyError, TypeError, DecodeError):
            return None

    @staticmethod
    def forget(folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def adopt(self) -> None:
        """Messages are made in the name of a task: of this one, from now on."""
        _speak_for(self.task_id, self.message.metadata.run_id, self.node_id)


class Task:
    """One task that is ours until it is answered or closed: it keeps the claim alive."""

    def __init__(self, door: Door, token: str) -> None:
        self.token = token
        self.client = door.client("flwr-clientapp", token)
        self.order: Future[Order] = Future()
        self._over = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while not self._over.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(*Unavailable):
                self.client.SendTaskHeartbeat(SendTaskHeartbeatRequest())

    def start_reading(self) -> None:
        """Fetch the order, in a thread of its own.

        The node offers a task before it has all of its message. If the server goes away meanwhile, the rest
        never comes and Flower waits for hours: that must not keep the site from its next task.
        """

        def read() -> None:
            try:
                self.order.set_result(self._read())
            except BaseException as problem:  # raised again where the order is wanted
                self.order.set_exception(problem)

        threading.Thread(target=read, daemon=True).start()

    def _read(self) -> Order:
        ask, ids = self.client.PullTaskInput, []

        def ask_and_note(request: PullTaskInputRequest) -> PullTaskInputResponse:
            response = ask(request)
            ids.append(response.task_id)  # Flower has one place for it in the process; others may read too
            return response

        self.client.PullTaskInput = ask_and_note  # type: ignore[method-assign]  # the client of this task alone
        message, context, run, fab = pull_task_input(self.client)
        bundle = Bundle(run.fab_id, run.fab_version, fab.hash_str)
        return Order(self.token, ids[0], context.node_id, dict(context.run_config), bundle, message)

    def answer(self, order: Order, reply: Message) -> bool:
        """Hand the reply to the node and wait until it has left. False: it is not known whether it did."""
        context = Context(order.message.metadata.run_id, order.node_id, {}, RecordDict(), {})
        push_message(self.client, reply, context)
        sent = self._wait_until_sent(order, reply)
        self.client.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.COMPLETED, details=""))
        return sent

    def _wait_until_sent(self, order: Order, reply: Message) -> bool:
        """The node drops a reply's objects once it has sent them."""
        request = PullObjectRequest(
            node=Node(node_id=order.node_id),
            run_id=order.message.metadata.run_id,
            object_id=reply.metadata.message_id,
        )
        end = time.monotonic() + SENT_SECONDS
        while time.monotonic() < end:
            if not self.client.PullObject(request).object_found:
                return True
            time.sleep(0.05)
        return False

    def finish(self, status: str, details: str = "") -> None:
        """At the server, where a task is not answered."""
        with contextlib.suppress(*Unavailable):
            self.client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))

    def close(self) -> None:
        self._over.set()
        self.client.close()


class Tasks:
    """The tasks that a runtime interface offers."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self._client = door.client("SuperExec")

    def close(self) -> None:
        self._client.close()

    def next(self, kinds: tuple[str, ...] = SITE_TASKS) -> Task | None:
        answer = self._client.AcquireTask(AcquireTaskRequest(supported_task_types=kinds))
        if not (answer.HasField("task") and answer.token):
            return None
        return Task(self.door, answer.token)

    @contextlib.contextmanager
    def serve_run(self, name: str, patience: float) -> Iterator[Grid]:
        """At the server: take the task of our run, known by its name, and offer its grid."""
        task, answer = self._task_of(name, patience)
        _speak_for(answer.task_id, answer.run.run_id, answer.context.node_id)
        grid = HttpGrid(self.door.address, not self.door.ca, self.door.authority(), token=task.token)
        grid.set_run(run_from_proto(answer.run))
        with contextlib.closing(task), contextlib.closing(grid):
            try:
                yield grid
            except BaseException as error:
                task.finish(SubStatus.FAILED, str(error)[:200])
                raise
            task.finish(SubStatus.COMPLETED)

    def _task_of(self, name: str, patience: float) -> tuple[Task, PullTaskInputResponse]:
        """Tasks of other runs are refused: whoever reaches the control interface can start some."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            with contextlib.suppress(*Unavailable):
                if task := self.next(SERVER_TASKS):
                    answer = task.client.PullTaskInput(PullTaskInputRequest())
                    if run_from_proto(answer.run).override_config.get("run") == name:
                        return task, answer
                    task.finish(SubStatus.FAILED, "this server runs one federation only")
                    task.close()
            time.sleep(0.1)
        raise EngineError(f"Flower offered no task for the run {name} within {patience:.0f} s")


def _speak_for(task_id: int, run_id: int, node_id: int) -> None:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = task_id, run_id, node_id


def bundle_hash(app: Path) -> str:
    """The hash under which `flwr run` would send this app."""
    return hashlib.sha256(build_fab_from_disk(app)).hexdigest()
