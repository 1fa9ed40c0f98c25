"""The other process of the machine's own limits: python -m moonpool.testing.bench.peer SOCKET BYTES.

Populates a memfd of that size, hands it over through the socket (an inherited descriptor), then sends back every
message of 64 bytes until the socket ends.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import socket
import sys
import time

MESSAGE_BYTES = 64
LOOK_S = 0.001
PAGE_BYTES = 4096


def serve(connection: socket.socket, byte_count: int) -> None:
    """Everything this process does."""
    descriptor = os.memfd_create("moonpool-bench-peer")
    os.ftruncate(descriptor, byte_count)
    with mmap.mmap(descriptor, byte_count) as memory:
        page = os.urandom(PAGE_BYTES)
        for offset in range(0, byte_count, PAGE_BYTES):
            memory[offset : offset + PAGE_BYTES] = page
        socket.send_fds(connection, [b"populated"], [descriptor])
        connection.setblocking(False)
        number = connection.fileno()
        while message := next_message(number):
            os.write(number, message)


def next_message(number: int) -> bytes:
    """What comes next on a socket that does not block; empty at its end. Looks for a while before it sleeps: waking
    a sleeper on another core costs a virtual machine more than the message.
    """
    look_until = time.perf_counter() + LOOK_S
    while time.perf_counter() < look_until:
        with contextlib.suppress(BlockingIOError):
            return os.read(number, MESSAGE_BYTES)
    select.select([number], [], [])
    return os.read(number, MESSAGE_BYTES)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
