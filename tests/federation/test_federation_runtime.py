"""What we use of Flower beyond its public interface is there in the installed version, and does its part."""

from __future__ import annotations

import contextlib
import inspect
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from federation_fakes import Message, records
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.cli import flower_supernode as supernode_command
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

from fedpurin.engines.flower import APP, node
from fedpurin.engines.flower.runtime import Bundle, Order, bundle_hash
from fedpurin.engines.flower.worker import APP_NAME, APP_VERSION, bundle_problem


def test_the_supernode_sleeps_and_connects_where_we_mend_it() -> None:
    loop = inspect.getsource(start_client_internal.start_client_internal)
    assert "time.sleep(3)" in loop
    assert "run_id = _pull_and_store_message(" in loop
    assert "if run_id is None:" in loop
    assert "with http_request_response(" in inspect.getsource(start_client_internal._init_connection)
    assert "flwr_exit(" in inspect.getsource(fleet_http_connection.http_request_response)
    assert callable(supernode_command)


def test_the_node_asks_soon_after_work_and_ever_less_often_without(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(node.time, "sleep", slept.append)
    clock = node.Clock()
    for _ in range(30):
        clock.sleep(3)
    assert slept[0] == 0.2
    assert slept == sorted(slept)
    assert slept[-1] == 3.0
    clock.sleep(0.5)  # it waits for an answer of ours
    clock.sleep(3)
    assert slept[-2:] == [0.05, 0.2]


def test_a_reply_left_over_is_sent_without_waiting_for_the_next_message() -> None:
    """An order that was answered twice: Flower waits for one reply per message, and would stay one behind."""
    state = InMemoryNodeState(ObjectStoreFactory().store())
    asked = Message(records.content(round=1), 5, records.WORK, ttl=60)
    asked.metadata.__dict__["_message_id"] = "asked"
    reply = Message(records.content(round=1), reply_to=asked)
    reply.metadata.__dict__["_message_id"] = "reply"
    messages: list[int | None] = [7, None, None, None]
    pull = node.with_replies_left_over(lambda *, state: messages.pop(0))
    assert [pull(state=state), pull(state=state)] == [7, None]
    state.store_message(asked)
    assert pull(state=state) is None
    state.store_message(reply)
    assert pull(state=state) == 0  # not None: Flower goes on to send
    assert [message.metadata.message_id for message in state.get_messages_legacy(is_reply=True)] == ["reply"]
    assert not node.has_reply(state)


def test_a_node_signs_off_the_one_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signed_off: list[int] = []
    monkeypatch.setattr(node, "sign_off", lambda node_id, *rest: signed_off.append(node_id))

    @contextlib.contextmanager
    def connect(*arguments: object):  # type: ignore[no-untyped-def]  # stands for Flower's own
        yield (77,)

    connection = node.returning(connect, tmp_path / "node-id")
    for _ in range(2):
        with connection("host:1", False, None, ("private", "public")) as made:
            assert made == (77,)
    assert signed_off == [77]  # the first time there was nothing to sign off


@pytest.mark.parametrize("left", ["", "garbage", "\0\0\0\0"])
def test_a_node_id_that_a_power_cut_left_empty_is_made_anew(
    left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed_off: list[int] = []
    monkeypatch.setattr(node, "sign_off", lambda node_id, *rest: signed_off.append(node_id))
    memory = tmp_path / "node-id"
    memory.write_text(left)
    connection = node.returning(lambda *rest: contextlib.nullcontext((123,)), memory)
    with connection("fed:8443", False, None, ("private", "public")):
        assert memory.read_text() == "123"
    assert signed_off == []
    assert list(tmp_path.iterdir()) == [memory]


@pytest.mark.parametrize("last", [None, 404])
def test_a_node_signs_off_as_soon_as_the_server_is_back(
    monkeypatch: pytest.MonkeyPatch, last: int | None
) -> None:
    """Both were killed: nothing answers, then nginx alone does, then the server."""
    request = httpx.Request("POST", "https://fed/v1/fleet/deactivate-node")

    def status(code: int) -> httpx.HTTPStatusError:
        return httpx.HTTPStatusError("", request=request, response=httpx.Response(code, request=request))

    answers = [httpx.ConnectError("refused"), status(502), status(last) if last else None, status(500)]

    class Client:
        def DeactivateNode(self, request: object) -> None:
            if (answer := answers.pop(0)) is not None:
                raise answer

    client = SimpleNamespace(from_server_address=lambda *arguments: contextlib.nullcontext(Client()))
    monkeypatch.setattr(node, "FleetHttpClient", client)
    monkeypatch.setattr(node, "NodeAuthHttpInterceptor", lambda *keys: None)
    monkeypatch.setattr(node.time, "sleep", lambda seconds: None)
    node.sign_off(77, "fed:8443", None, ("private", "public"))
    assert len(answers) == 1  # it was not asked again after its answer


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern")  # Flower's own way of choosing files
def test_the_bundle_is_built_to_the_same_hash_and_bears_the_version_of_the_protocol() -> None:
    about = tomllib.loads((APP / "pyproject.toml").read_text())
    assert bundle_hash(APP) == bundle_hash(APP)
    assert f"{about['tool']['flwr']['app']['publisher']}/{about['project']['name']}" == APP_NAME
    assert about["project"]["version"] == APP_VERSION == f"{records.VERSION}.0.0"


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [
        (Bundle("x/evil", APP_VERSION, "h"), "wants to run the app x/evil"),
        (Bundle(APP_NAME, "9.0.0", "h"), "of version 9.0.0"),
        (Bundle(APP_NAME, APP_VERSION, "other"), "it was changed"),
        (Bundle(APP_NAME, APP_VERSION, "h"), None),
    ],
)
def test_only_the_installed_app_is_answered(theirs: Bundle, reason: str | None) -> None:
    said = bundle_problem(theirs, Bundle(APP_NAME, APP_VERSION, "h"))
    assert said is None if reason is None else reason in str(said)


def an_order() -> Order:
    message = Message(records.content(round=3, reply=b"\0\1" * 500), 5, records.WORK, ttl=60)
    return Order("token", 1, 5, {"run": "r", "rounds": 3}, Bundle("a", "b", "c"), message)


def test_an_order_survives_the_process_that_took_it(tmp_path: Path) -> None:
    replace(an_order(), tries=2).save(tmp_path / "order")
    order = Order.load(tmp_path / "order")
    assert order is not None
    assert (order.token, order.run_config, order.bundle, order.tries) == (
        "token",
        {"run": "r", "rounds": 3},
        Bundle("a", "b", "c"),
        2,
    )
    assert records.read(order.message) == records.read(an_order().message)
    assert order.message.metadata.message_type == records.WORK
    Order.forget(tmp_path / "order")
    assert Order.load(tmp_path / "order") is None


def test_half_an_order_is_none(tmp_path: Path) -> None:
    an_order().save(tmp_path)
    (tmp_path / "message").unlink()
    assert Order.load(tmp_path) is None


def test_an_order_whose_message_is_damaged_counts_as_none(tmp_path: Path) -> None:
    an_order().save(tmp_path)
    file = tmp_path / "message"
    file.write_bytes(file.read_bytes()[:-3])
    assert Order.load(tmp_path) is None


def test_a_process_killed_while_an_order_is_saved_again_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    an_order().save(tmp_path)
    before = sorted((path.name, path.read_bytes()) for path in tmp_path.iterdir())

    def killed(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise SystemExit

    monkeypatch.setattr(Path, "write_bytes", killed)
    with pytest.raises(SystemExit):
        an_order().save(tmp_path)
    monkeypatch.undo()
    assert sorted((p.name, p.read_bytes()) for p in tmp_path.iterdir() if p.suffix != ".tmp") == before
    assert Order.load(tmp_path) is not None
