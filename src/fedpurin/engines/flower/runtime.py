"""Flower's runtime interface, through which tasks are taken and answered.

A SuperNode or SuperLink started with `--isolation process` starts no program for its tasks. It offers them
on its runtime interface, and a process of ours takes them, reads the message, and answers it with code that
is installed here. The bundle that came with the task is never unpacked; only its name and hash are read.

    Tasks.next() -> Task | None       take the oldest task
    Task.read()                       what was asked (once per task); Task.answer(message) sends the reply
    Tasks.serve_run(name)             at the server: the grid of our own run

Here and in node.py is all that we use of Flower beyond its public interface, as of flwr 1.41;
tests/federation/test_federation_runtime.py runs it against the installed version.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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

from fedpurin.errors import EngineError

SITE_TASKS = ("flwr-clientapp", "flwr-agentapp")  # the second kind is taken only to be refused
SERVER_TASKS = ("flwr-serverapp",)
PROTECTED_CALLS = frozenset({"/flwr.proto.Runtime/AcquireTask"})
HEARTBEAT_SECONDS = 10.0  # a task is given up after 30 s without one at first, 60 s later
SENT_SECONDS = 60.0

NotPushed = ObjectPushError  # a message that took Flower too long to take; another try is fine
Unavailable = (httpx.HTTPError, OSError)  # the node is starting, restarting, or has forgotten this task


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
            interceptors.append(
                SuperExecAuthHttpInterceptor(
                    master_secret=Path(self.secret).read_bytes(), protected_methods=PROTECTED_CALLS
                )
            )
        return RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=not self.ca,
            root_certificates=Path(self.ca).read_bytes() if self.ca else None,
            interceptors=interceptors,
        )


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

    def save(self, folder: Path, tries: int) -> None:
        about = {
            "token": self.token,
            "task_id": self.task_id,
            "node_id": self.node_id,
            "run_config": self.run_config,
            "bundle": asdict(self.bundle),
            "tries": tries,
        }
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "message").write_bytes(message_to_proto(self.message).SerializeToString())
        (folder / "order.new").write_text(json.dumps(about))
        (folder / "order.new").replace(folder / "order.json")

    @classmethod
    def load(cls, folder: Path) -> tuple[Order, int] | None:
        """What an earlier process had begun, and how often; None if there is nothing (whole)."""
        try:
            about = json.loads((folder / "order.json").read_text())
            message = message_from_proto(ProtoMessage.FromString((folder / "message").read_bytes()))
            order = cls(
                about["token"],
                about["task_id"],
                about["node_id"],
                about["run_config"],
                Bundle(**about["bundle"]),
                message,
            )
            return order, int(about["tries"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @staticmethod
    def forget(folder: Path) -> None:
        for name in ("order.json", "order.new", "message"):
            (folder / name).unlink(missing_ok=True)


class Task:
    """One task that is ours until it is answered. A context manager: it keeps the claim alive."""

    def __init__(self, door: Door, token: str) -> None:
        self.token = token
        self.client = door.client("flwr-clientapp", token)
        self._over = threading.Event()

    def __enter__(self) -> Task:
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def _beat(self) -> None:
        while not self._over.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(*Unavailable):
                self.client.SendTaskHeartbeat(SendTaskHeartbeatRequest())

    def read(self) -> Order:
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

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.client.close()


class Reading:
    """A task being read, in a thread of its own.

    The node offers a task before it has all of its message. If the server goes away meanwhile, the rest never
    comes and Flower waits for hours: that must not keep the site from its next task.
    """

    def __init__(self, task: Task) -> None:
        self.task = task.__enter__()  # claimed from now on, and until this is left
        self.order: Order | None = None
        self.problem: BaseException | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            self.order = self.task.read()
        except BaseException as problem:  # raised again where the order is wanted
            self.problem = problem

    def done(self, patience: float = 0.0) -> bool:
        self._thread.join(patience)
        return not self._thread.is_alive()

    def __enter__(self) -> Order:
        if self.problem is not None:
            self.task.__exit__()
            raise self.problem
        assert self.order is not None
        return self.order

    def __exit__(self, *_: object) -> None:
        self.task.__exit__()


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
        TaskIdentity.task_id, TaskIdentity.run_id = answer.task_id, answer.run.run_id
        TaskIdentity.node_id = answer.context.node_id
        grid = HttpGrid(
            self.door.address,
            insecure=not self.door.ca,
            root_certificates=Path(self.door.ca).read_bytes() if self.door.ca else None,
            token=task.token,
        )
        grid.set_run(run_from_proto(answer.run))
        with task:
            try:
                yield grid
            except BaseException as error:
                _finish(task, SubStatus.FAILED, str(error)[:200])
                raise
            else:
                _finish(task, SubStatus.COMPLETED, "")
            finally:
                grid.close()

    def _task_of(self, name: str, patience: float) -> tuple[Task, PullTaskInputResponse]:
        """Tasks of other runs are refused: whoever reaches the control interface can start some."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            with contextlib.suppress(*Unavailable):
                if task := self.next(SERVER_TASKS):
                    answer = task.client.PullTaskInput(PullTaskInputRequest())
                    if run_from_proto(answer.run).override_config.get("run") == name:
                        return task, answer
                    _finish(task, SubStatus.FAILED, "this server runs one federation only")
            time.sleep(0.1)
        raise EngineError(f"Flower offered no task for the run {name} within {patience:.0f} s")


def adopt(order: Order) -> None:
    """Messages are made in the name of a task: of this one, from now on."""
    TaskIdentity.task_id, TaskIdentity.node_id = order.task_id, order.node_id
    TaskIdentity.run_id = order.message.metadata.run_id


def _finish(task: Task, status: str, details: str) -> None:
    with contextlib.suppress(*Unavailable):
        task.client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))


def bundle_hash(app: Path) -> str:
    """The hash under which `flwr run` would send this app."""
    return hashlib.sha256(build_fab_from_disk(app)).hexdigest()
