"""The front door, with real nginx before a server that would answer anything."""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fedpurin.errors import ConfigError, EngineError
from fedpurin.federation.frontdoor import FLEET_CALLS, FrontDoor, largest_message_mb
from fedpurin.federation.keys import load_server_keys, make_keys
from fedpurin.federation.preflight import check_port_free, check_server, is_loopback, split_address
from fedpurin.federation.service import Service, free_port

HANG_UP = 3  # seconds of patience with those who dribble


@dataclass
class Door:
    port: int
    folder: Path
    behind: list[str] = field(default_factory=list)  # the requests that came through

    @property
    def ca(self) -> Path:
        return self.folder / "keys/site-0/ca.pem"

    def connect(self, source: str = "127.0.0.1") -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=str(self.ca))
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=10, source_address=(source, 0))
        return context.wrap_socket(plain, server_hostname="127.0.0.1")

    def ask(self, request: bytes, source: str = "127.0.0.1") -> int:
        """The status of a request, sent exactly as given."""
        with self.connect(source) as sock:
            sock.sendall(request)
            return int(sock.recv(4096).split()[1])

    def post(self, path: str, method: str = "POST", body: bytes = b"") -> int:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return self.ask(head.encode("latin-1") + body)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory, nginx: str, nothing_left: None) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("door")
    door = Door(free_port(), folder)
    make_keys(folder / "keys", ["127.0.0.1"], sites=1, port=door.port)
    keys = load_server_keys(folder / "keys")

    class Behind(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            size = len(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            door.behind.append(f"{self.command} {self.path} {size}")
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = do_PUT = do_HEAD = answer

        def log_message(self, *arguments: object) -> None: ...

    behind = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Behind)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys.path("loopback.pem"), keys.path("loopback.key"))
    behind.socket = context.wrap_socket(behind.socket, server_side=True)
    threading.Thread(target=behind.serve_forever, daemon=True).start()
    front = FrontDoor(
        keys,
        f"127.0.0.1:{door.port}",
        f"127.0.0.1:{behind.server_address[1]}",
        folder / "nginx",
        max_body_mb=2,
        header_seconds=HANG_UP,
        body_seconds=HANG_UP,
    )
    try:
        with Service("nginx", front.command(), log=folder / "log") as service:
            deadline = time.monotonic() + 10
            while True:
                try:
                    check_server(f"127.0.0.1:{door.port}", door.ca)
                    break
                except EngineError:
                    assert service.alive(), service.last_words()
                    assert time.monotonic() < deadline
            yield door
    finally:
        behind.shutdown()
        behind.server_close()


@pytest.mark.parametrize("call", FLEET_CALLS)
def test_the_calls_of_registered_sites_pass(door: Door, call: str) -> None:
    assert door.post(f"/v1/fleet/{call}", body=b"x" * 10) == 200
    assert door.behind[-1] == f"POST /v1/fleet/{call} 10"


CLOSED = [
    "/",
    "/health",
    "/v1/fleet/register-node",
    "/v1/fleet/unregister-node",
    "/v1/fleet/",
    "/v1/fleet",
    "/v1/fleet/get-run/",
    "/v1/fleet/get-run/x",
    "/v1/fleet/get-run?x=1",
    "/v1/fleet/get-run;x",
    "/v1/fleet/get-run%20",
    "/v1/fleet/get-runs",
    "/V1/fleet/get-run",
    "/v1/control/start-run",
    "/v1/control/list-runs",
    "/v1/control/register-node",
    "/v1/runtime/push-messages",
    "/docs",
    "/openapi.json",
    "//v1/fleet/get-run",
    "/v1//fleet/get-run",
    "//v1//control//start-run",
    "/./v1/fleet/get-run",
    "/v1/fleet/../control/start-run",
    "/v1/fleet/get-run/../../control/start-run",
    "/v1/fleet/%2e%2e/control/start-run",
    "/v1/fleet/..%2fcontrol/start-run",
    "/v1/fleet/.%2e/control/start-run",
    "/v1/fleet%2fget-run",
    "/v1/fleet/get%2drun",
    "/%76%31/control/start-run",
    "/v1/%63ontrol/start-run",
    "/v1/fleet/get-run%2f..%2f..%2fcontrol%2fstart-run",
    "/v1/fleet/%252e%252e/control/start-run",
    "/v1/fleet/..\\control\\start-run",
    "/../v1/control/start-run",
    "/v1/fleet/%00",
    "/v1/control/start-run#/v1/fleet/get-run",
    "http://localhost/v1/control/start-run",
]


@pytest.mark.parametrize("path", CLOSED)
def test_every_other_path_is_not_found(door: Door, path: str) -> None:
    before = len(door.behind)
    assert door.post(path) == 404
    assert len(door.behind) == before, "the request came through"


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD", "DELETE", "OPTIONS", "TRACE", "post"])
def test_every_other_method_is_refused(door: Door, method: str) -> None:
    before = len(door.behind)
    assert door.post("/v1/fleet/get-run", method=method) in (404, 405)
    assert len(door.behind) == before


def test_two_requests_hidden_in_one_do_not_get_through(door: Door) -> None:
    before = len(door.behind)
    smuggled = b"POST /v1/control/start-run HTTP/1.1\r\nHost: x\r\n\r\n"
    for headers in (
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    ):
        request = b"POST /v1/fleet/get-run HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n0\r\n\r\n" + smuggled
        assert door.ask(request) in (404, 501)
    assert not any("control" in line for line in door.behind[before:])


def test_a_message_up_to_the_limit_passes_and_a_larger_one_does_not(door: Door) -> None:
    assert door.post("/v1/fleet/push-object", body=b"x" * (2 * 1024 * 1024)) == 200
    assert door.behind[-1] == f"POST /v1/fleet/push-object {2 * 1024 * 1024}"
    assert door.post("/v1/fleet/push-object", body=b"x" * (2 * 1024 * 1024 + 1)) == 413


@pytest.mark.parametrize("exchanged", [1_000, 16_777_216, 100_000_000])
def test_the_limit_of_a_message_follows_the_model(exchanged: int) -> None:
    """A dense float32 upload with a mask, and a tenth of a MiB for what is around it, fits; not much more."""
    needed = 4 * exchanged + exchanged / 8 + 100_000
    assert needed < largest_message_mb(exchanged) * 2**20 < needed + 2 * 2**20


# What a site sees before it starts


def test_a_site_with_the_right_folder_passes_the_check(door: Door) -> None:
    check_server(f"127.0.0.1:{door.port}", door.ca)


def test_a_plain_text_client_at_the_tls_port_is_told_so_at_once(door: Door) -> None:
    began = time.monotonic()
    with pytest.raises(EngineError, match=r"most likely expects TLS: pass the site folder .* --keys"):
        check_server(f"127.0.0.1:{door.port}", None)
    assert time.monotonic() - began < 5


def test_the_authority_of_another_federation_is_refused(door: Door, tmp_path: Path) -> None:
    make_keys(tmp_path / "other", ["127.0.0.1"], sites=1)
    with pytest.raises(EngineError, match="does not vouch for the certificate"):
        check_server(f"127.0.0.1:{door.port}", tmp_path / "other/site-0/ca.pem")


def test_an_address_that_the_certificate_does_not_name_is_refused(door: Door) -> None:
    with pytest.raises(EngineError, match=r"does not vouch for the certificate .*localhost"):
        check_server(f"localhost:{door.port}", door.ca)


def test_a_server_without_tls_is_refused_by_a_site_with_keys(door: Door) -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def greet() -> None:
            connection, _ = plain.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(EngineError, match="answers, but not with TLS"):
            check_server(f"127.0.0.1:{plain.getsockname()[1]}", door.ca)


def test_a_server_that_is_not_there_is_named(door: Door) -> None:
    with pytest.raises(EngineError, match=r"nothing answers at 127\.0\.0\.1"):
        check_server(f"127.0.0.1:{free_port()}", door.ca)


@pytest.mark.parametrize(
    "address", ["fed.example.org", "https://x:1", ":80", "a:b", "a:0", "a:99999", "fd00::1:80"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError):
        split_address(address)


def test_a_server_does_not_start_on_a_port_in_use(door: Door) -> None:
    with pytest.raises(EngineError, match=rf"cannot listen on 127\.0\.0\.1:{door.port} .*in use"):
        check_port_free(f"127.0.0.1:{door.port}")
    check_port_free(f"127.0.0.1:{free_port()}")


def test_addresses_are_split_and_loopback_is_recognised() -> None:
    assert split_address("[fd00::1]:80") == ("fd00::1", 80)
    assert is_loopback("localhost")
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert not is_loopback("localhost.example.org")
    assert not is_loopback("10.0.0.1")


# Those who hold a connection and send next to nothing

HEAD = b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
WHOLE = b"POST /v1/fleet/get-run HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
ANOTHER = "127.0.0.2"  # address


@contextlib.contextmanager
def dribbling(door: Door, count: int, begin: bytes) -> Iterator[list[ssl.SSLSocket]]:
    """So many connections that have sent this, and go on with a byte now and then."""
    held = [door.connect() for _ in range(count)]
    over = threading.Event()

    def dribble() -> None:
        while not over.wait(HANG_UP / 4):
            for sock in held:
                with contextlib.suppress(OSError):
                    sock.send(b"x")

    try:
        for sock in held:
            sock.sendall(begin)
        thread = threading.Thread(target=dribble)
        thread.start()
        yield held
    finally:
        over.set()
        thread.join()
        for sock in held:
            sock.close()


def hung_up(sock: ssl.SSLSocket) -> bool:
    """Whether the door has ended the connection, or does so before the socket's own patience is over."""
    try:
        return sock.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_heads_that_come_byte_by_byte_are_hung_up_on_and_disturb_nobody(door: Door) -> None:
    with dribbling(door, 64, HEAD[:20]) as held:
        assert door.ask(WHOLE) == 200, "64 connections, and none of them counts as a request"
        assert all(hung_up(sock) for sock in held)
        assert door.ask(WHOLE) == 200


def test_bodies_that_come_byte_by_byte_hold_as_many_connections_as_one_address_may_have(door: Door) -> None:
    with dribbling(door, 16, HEAD) as held:
        until = time.monotonic() + 10
        while door.ask(WHOLE) != 503:  # until all 16 heads are read
            assert time.monotonic() < until
        assert door.ask(WHOLE, ANOTHER) == 200, "other sites are served meanwhile"
        assert len(held) == 16
    assert door.ask(WHOLE) == 200, "and so is this one, once it lets go"


def test_a_body_that_stops_coming_is_hung_up_on(door: Door) -> None:
    with door.connect() as sock:
        sock.sendall(HEAD + b"x")
        assert hung_up(sock)
