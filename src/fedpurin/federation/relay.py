"""The door of a private network: passes connections from a socket in the file system to a local port.

    unshare --user --map-root-user --net python -I relay.py SOCKET PORT

Executed as a script inside a network namespace of its own, where it also brings the loopback device up. Only
the standard library, and no import of fedpurin.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import sys

CHUNK = 1 << 16
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1


def bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()


async def serve(path: str, port: int) -> None:
    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:  # it is starting, or has ended
            writer.close()
            return
        await asyncio.gather(pass_on(reader, inner_writer), pass_on(inner_reader, writer))

    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    server = await asyncio.start_unix_server(connect, path)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    os.umask(0o177)  # the socket is for this account alone
    bring_loopback_up()
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
