"""The other process of the machine's own limits: python -m moonpool.testing.bench.peer SOCKET BYTES.

Populates a memfd of that size, hands it over through the socket (an inherited descriptor), then sends back every
message of 64 bytes until the socket ends.
"""

from __future__ import annotations

import mmap
import os
import socket
import sys

MESSAGE_BYTES = 64
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
        number = connection.fileno()
        while message := os.read(number, MESSAGE_BYTES):
            os.write(number, message)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
