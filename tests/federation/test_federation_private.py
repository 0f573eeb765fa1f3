"""A network of its own: what is inside is reached through the socket file, and in no other way."""

from __future__ import annotations

import contextlib
import socket
import stat
import sys
from pathlib import Path

import pytest

from fedpurin.errors import EngineError
from fedpurin.federation import private
from fedpurin.federation.private import PrivateNetwork, short_folder, why_not
from fedpurin.federation.service import Service, free_port

PORT_SERVER = """
import http.server
http.server.HTTPServer(("127.0.0.1", {port}), http.server.SimpleHTTPRequestHandler).serve_forever()
"""

needs_namespaces = pytest.mark.skipif(why_not() is not None, reason=f"no private network here: {why_not()}")


def ask(path: Path) -> bytes:
    """What is answered; nothing while there is no server behind the door yet."""
    with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        sock.settimeout(30)
        sock.connect(str(path))
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return sock.recv(100)
    return b""


@needs_namespaces
def test_a_server_inside_is_reached_through_the_socket_only(tmp_path: Path) -> None:
    port = free_port()
    network = PrivateNetwork(tmp_path, port)
    command = [sys.executable, "-c", PORT_SERVER.format(port=port)]
    try:
        with Service("inside", command, log=tmp_path / "log", prefix=network.prefix) as inside:
            answer = b""
            while not answer:
                assert inside.alive(), inside.last_words()
                answer = ask(network.socket)
            assert answer.startswith(b"HTTP/1.0 200")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=10)
            assert stat.S_IMODE(network.socket.stat().st_mode) == 0o600
    finally:
        network.stop()
    assert not network.socket.exists()


def test_a_long_path_gets_a_short_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = short_folder(Path("/a/very/long/path"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert short_folder(Path("/a/very/long/path")) == folder
    folder.chmod(0o755)
    with pytest.raises(EngineError, match="is not a private folder of this account"):
        short_folder(Path("/a/very/long/path"))


def test_a_machine_without_namespaces_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private.shutil, "which", lambda name: None)
    assert "not installed" in str(why_not())
