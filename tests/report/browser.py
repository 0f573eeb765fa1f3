"""A headless Chromium driven over its DevTools pipe: no driver program, no port, no extra package."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find_chromium() -> str | None:
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def _high_pipe() -> list[int]:
    low = os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in low]
    for fd in low:
        os.close(fd)
    return high


class Browser:
    """One page. Collects console errors, exceptions and every request."""

    def __init__(self, program: str, patience: float = 120.0) -> None:
        self.patience = patience
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._folder = tempfile.mkdtemp(prefix="chromium-")
        self._count = 0
        self._buffer = b""
        self._session = ""
        self._loaded = False
        # Chromium reads commands from descriptor 3 and answers on 4; high numbers are out of their way.
        command_in, command_out = _high_pipe()
        answer_in, answer_out = _high_pipe()

        def connect() -> None:
            os.dup2(command_in, 3)
            os.dup2(answer_out, 4)

        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={self._folder}", "about:blank"],
            preexec_fn=connect,
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(command_in)
        os.close(answer_out)
        self._write, self._read = command_out, answer_in
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._session = ""
            self.call("Browser.close")
        except (OSError, TimeoutError):
            self._process.kill()
        self._process.wait(self.patience)
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._folder, ignore_errors=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        payload = json.dumps(message).encode() + b"\0"
        while payload:
            payload = payload[os.write(self._write, payload) :]
        deadline = time.monotonic() + self.patience
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("Chromium did not answer in time")
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise OSError("Chromium has gone")
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        name, params = event.get("method"), event.get("params", {})
        if name == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif name == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(
                " ".join(str(arg.get("value", arg.get("description"))) for arg in params["args"])
            )
        elif name == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif name == "Page.loadEventFired":
            self._loaded = True
        elif name == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def size(self, width: int, height: int, phone: bool = False, scale: float = 1.0) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=phone,
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)

    def scheme(self, name: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def open(self, page: Path) -> None:
        self.errors.clear()
        self.requests.clear()
        self._loaded = False
        self.call("Page.navigate", url=page.resolve().as_uri())
        deadline = time.monotonic() + self.patience
        while not self._loaded:  # a script that waits inside a page about to go would never answer
            self._note(self._next(deadline))
        self.until("document.documentElement?.dataset.ready === 'true'")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(
                answer["exceptionDetails"].get("exception", {}).get("description", "script failed")
            )
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait, frame by frame of the page itself, until the condition holds."""
        deadline = time.monotonic() + self.patience
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true: {condition}; errors: {self.errors}")
            self.run("new Promise((done) => setTimeout(done, 20))")

    def picture(self, file: Path, whole: bool = True) -> None:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, file: Path) -> None:
        made = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        file.write_bytes(base64.b64decode(made["data"]))
