"""Shows that a server's control interface is closed: python knock.py HOST PORT CA.pem"""

from __future__ import annotations

import http.client
import ssl
import sys

PATHS = ("/health", "/v1/control/list-runs", "/v1/control/start-run", "/v1/runtime/pull-messages", "/docs")


def main(host: str, port: int, ca: str) -> int:
    context = ssl.create_default_context(cafile=ca)
    answers = {}
    for path in PATHS:
        connection = http.client.HTTPSConnection(host, port, context=context, timeout=10)
        connection.request("POST", path)
        answers[path] = connection.getresponse().status
        connection.close()
    for path, status in answers.items():
        print(f"{status} {path}")
    return 0 if set(answers.values()) == {404} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
