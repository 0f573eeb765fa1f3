"""Flower's SuperNode with four habits of its own mended. Uses what Flower does not promise to keep.

    python -m fedpurin.engines.flower.node FOLDER ARGUMENTS-OF-flower-supernode...

- It asks for work soon after it had some, and ever less often while there is none (Flower: every 3 s).
- A node that was killed is taken for alive for another minute, and may not come back before. Its id is kept
  in FOLDER/node-id, and the next process signs it off first.
- It sends one reply per message. Where a process of ours is killed right after its answer, the next answers
  again, and from then on each reply would wait for the next message. What is left over is sent, too.
- Why it gave up is written to FOLDER/node.json.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.cli import flower_supernode
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedpurin.files import write_atomic

FLOWERS_SLEEP = 3.0  # when there was no message
SHORTEST_SLEEP = 0.2
SIGN_OFF_SECONDS = 300.0  # in which the server may be away, too
AWAY = (502, 503, 504)  # what nginx says while it is


class Clock:
    """Stands in for `time` in the SuperNode's loop."""

    def __init__(self) -> None:
        self.idle = SHORTEST_SLEEP

    def sleep(self, seconds: float) -> None:
        if seconds < FLOWERS_SLEEP:  # it waits for our answer to a message
            self.idle = SHORTEST_SLEEP
            time.sleep(min(seconds, 0.05))
            return
        time.sleep(self.idle)
        self.idle = min(1.2 * self.idle, FLOWERS_SLEEP)


def with_replies_left_over(pull: Callable[..., int | None]) -> Callable[..., int | None]:
    """Flower's way to fetch a message. It sends replies only after one: a reply without one counts as one."""

    def pull_or_send(*, state: Any, **rest: Any) -> int | None:
        run_id = pull(state=state, **rest)
        return 0 if run_id is None and has_reply(state) else run_id

    return pull_or_send


def has_reply(state: Any) -> bool:
    """Whether there is a reply to send. Flower's own question would mark it as sent."""
    return any(
        entry.message.metadata.reply_to_message_id and not entry.is_retrieved
        for entry in list(state.msg_store.values())
    )


def sign_off(node_id: int, address: str, root_certificates: Any, keys: Any) -> None:
    """Also where the server is away at the moment: the node may have died with it."""
    interceptors: list[Any] = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(*keys),
    ]
    end = time.monotonic() + SIGN_OFF_SECONDS
    with FleetHttpClient.from_server_address(address, False, root_certificates, interceptors) as client:
        while time.monotonic() < end:
            try:
                client.DeactivateNode(DeactivateNodeRequest(node_id=node_id))
                return
            except httpx.HTTPStatusError as error:
                if error.response.status_code not in AWAY:
                    return  # it is not known there, or not any more
            except httpx.TransportError:
                pass
            except (OSError, RuntimeError):
                return
            time.sleep(SHORTEST_SLEEP)


def remembered(memory: Path) -> int | None:
    """The id of the process before. Without it a node that was killed waits until it counts as gone."""
    try:
        return int(memory.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        sys.stderr.write(f"{memory} holds no node id; it is made anew\n")
        return None


def returning(connect: Callable[..., Any], memory: Path) -> Callable[..., Any]:
    """Flower's way to connect, for a node that may have been killed before."""

    @contextlib.contextmanager
    def connection(
        address: str, insecure: bool, root_certificates: Any, keys: Any, *rest: Any
    ) -> Iterator[Any]:
        if keys is not None and (node_id := remembered(memory)) is not None:
            sign_off(node_id, address, root_certificates, keys)
        with connect(address, insecure, root_certificates, keys, *rest) as made:
            if keys is not None:
                write_atomic(memory, str(made[0]))
            yield made

    return connection


def main(folder: Path) -> None:
    status = folder / "node.json"
    connection: Any = fleet_http_connection
    give_up = connection.flwr_exit

    def told(code: int, message: str | None = None, *rest: Any, **more: Any) -> None:
        write_atomic(status, json.dumps({"code": int(code), "message": message or ""}))
        give_up(code, message, *rest, **more)

    status.unlink(missing_ok=True)
    loop: Any = start_client_internal
    loop.time = SimpleNamespace(sleep=Clock().sleep)
    loop._pull_and_store_message = with_replies_left_over(loop._pull_and_store_message)
    loop.http_request_response = returning(loop.http_request_response, folder / "node-id")
    connection.flwr_exit = told
    sys.argv[0] = "flower-supernode"
    flower_supernode()


if __name__ == "__main__":
    main(Path(sys.argv.pop(1)))
