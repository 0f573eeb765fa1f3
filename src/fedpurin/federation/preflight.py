"""Checks before a site's SuperNode starts: a wrong address or certificate shows in seconds, in one line."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from pathlib import Path

from fedpurin.errors import ConfigError, EngineError

TIMEOUT_SECONDS = 8.0


def split_address(address: str) -> tuple[str, int]:
    """ "host:port" or "[v6]:port" -> (host, port)."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536 or "/" in host:
        raise ConfigError(
            f"server address {address!r} is not of the form host:port, as in fed.example.org:8443"
        )
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ConfigError(f"write the IPv6 address in brackets: [{host}]:{port}")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_port_free(listen: str) -> None:
    """Raise unless this machine can listen at address:port."""
    host, port = split_address(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as nginx does
        try:
            sock.bind((host, port))
        except OSError as error:
            raise EngineError(
                f"cannot listen on {listen} ({error.strerror}): stop what uses that port, or choose another "
                "with --listen and tell the sites"
            ) from None


def check_server(address: str, ca: Path | None) -> None:
    """Raise unless a SuperNode could talk to `address`: over TLS when `ca` is given, else in clear."""
    host, port = split_address(address)
    if ca is None:
        _check_plain(host, port)
    else:
        _check_tls(host, port, ca)


def _connect(host: str, port: int) -> socket.socket:
    try:
        return socket.create_connection((host, port), timeout=TIMEOUT_SECONDS)
    except socket.gaierror:
        raise EngineError(
            f"the server name {host} is unknown: check the spelling or use its IP address"
        ) from None
    except OSError as error:
        raise EngineError(
            f"nothing answers at {host}:{port} ({error}): is `fedpurin federation server` running there, "
            "and does the firewall let this port in?"
        ) from None


def _check_plain(host: str, port: int) -> None:
    with _connect(host, port) as sock:
        try:
            sock.settimeout(TIMEOUT_SECONDS)
            sock.sendall(f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            answer = sock.recv(4096)
        except OSError:
            answer = b""
    if not answer.startswith(b"HTTP/1.1 200"):
        raise EngineError(
            f"{host}:{port} does not speak plain HTTP; it most likely expects TLS: "
            "pass the site folder that its operator gave you with --keys FOLDER"
        )


def _check_tls(host: str, port: int, ca: Path) -> None:
    try:
        context = ssl.create_default_context(cafile=str(ca))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{ca} is not a readable certificate ({error}): ask for the site folder again"
        ) from None
    with _connect(host, port) as sock:
        try:
            with context.wrap_socket(sock, server_hostname=host):
                return
        except ssl.SSLCertVerificationError as error:
            raise EngineError(
                f"{ca} does not vouch for the certificate of {host}:{port} ({error.verify_message}): check "
                "that the address is spelt as in site.toml and that the folder is of this federation"
            ) from None
        except (ssl.SSLError, OSError) as error:
            raise EngineError(
                f"{host}:{port} answers, but not with TLS ({error}): check the port with its operator"
            ) from None
