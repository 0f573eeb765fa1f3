"""A live page for the operator of a server, on loopback: members, round, accuracy, bytes, failures.

It reads the run directory and changes nothing. What sites said (reasons of failures) is escaped, and requests
that name another host are refused, so that no web page can read it through the operator's browser.
"""

from __future__ import annotations

import http.server
import threading
import time
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fedpurin.errors import EngineError, FedpurinError
from fedpurin.federation.status import Status, read_status

TEMPLATES = Path(__file__).with_name("templates")
HOSTS = ("127.0.0.1", "localhost")
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def page(status: Status, name: str) -> str:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    measured = [(t, value) for t, value in enumerate(status.accuracy) if value is not None]
    width = max(1, len(status.accuracy) - 1)
    return environment.get_template("dashboard.html").render(
        status=status,
        name=name,
        now=time.time(),
        last=measured[-1][1] if measured else None,
        points=" ".join(f"{100 * t / width:.2f},{100 - 100 * value:.2f}" for t, value in measured),
    )


class Dashboard:
    """Serves the page in a thread of its own until it is closed."""

    def __init__(self, run: Path, port: int) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                host = self.headers.get("Host", "").rpartition(":")[0]
                if self.path != "/" or host not in HOSTS:
                    self.send_error(404)
                    return
                try:
                    body = page(read_status(run), run.name).encode()
                except FedpurinError as problem:  # a damaged or removed run directory; it may come back
                    self.send_error(503, explain=str(problem))
                    return
                self.send_response(200)
                for header, value in HEADERS.items():
                    self.send_header(header, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """The terminal is for the rounds."""

        try:
            self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise EngineError(
                f"cannot serve on port {port} ({error.strerror}): choose another --dashboard PORT"
            ) from None
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
