"""The other process of the transfer rows: python -m moonpool.testing.bench.transfer_peer SECRET BYTES [ADDRESS].

Listens with an engine whose region has that many bytes, and beside it with a bare TCP socket that does the same without
an engine: the machine's own limit. One JSON line says where; it ends with its input.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading

from moonpool.transfer.engine import TransferEngine

REQUEST = struct.Struct("<cQQ")  # verb, offset, bytes
WRITE, READ, PING = b"w", b"r", b"p"
PING_BYTES = 64
_PAGE_BYTES = 4096


def serve(connection: socket.socket, memory: memoryview) -> None:
    """Answer one connection until it ends: bytes straight into the memory, or straight from it."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request = bytearray(REQUEST.size)
    ping = bytearray(PING_BYTES)
    while connection.recv_into(request, 0, socket.MSG_WAITALL) == REQUEST.size:
        verb, offset, byte_count = REQUEST.unpack(request)
        if verb == WRITE:
            receive_exactly(connection, memory[offset : offset + byte_count])
            connection.send(b"!")
        elif verb == READ:
            connection.sendall(memory[offset : offset + byte_count])
        else:  # the rest of a message of 64 bytes, and the whole one back
            connection.recv_into(memoryview(ping)[REQUEST.size :], 0, socket.MSG_WAITALL)
            connection.send(ping)


def receive_exactly(connection: socket.socket, target: memoryview) -> None:
    """All of it; ConnectionError when it ends before."""
    received = 0
    while received < len(target):
        count = connection.recv_into(target[received:], 0, socket.MSG_WAITALL)
        if not count:
            raise ConnectionError("the other side has ended")
        received += count


def main() -> None:
    """Everything this process does."""
    secret, byte_count = sys.argv[1].encode(), int(sys.argv[2])
    with TransferEngine(name="bench-peer", secret=secret) as engine, socket.create_server(("127.0.0.1", 0)) as bare:
        region = engine.allocate(byte_count)
        memory = region.memory
        page = os.urandom(_PAGE_BYTES)
        for offset in range(0, byte_count - _PAGE_BYTES + 1, _PAGE_BYTES):
            memory[offset : offset + _PAGE_BYTES] = page
        (address,) = engine.listen(*sys.argv[3:4])
        place = {"address": address, "bare_port": bare.getsockname()[1], "descriptor": region.descriptor.hex()}
        sys.stdout.write(json.dumps(place) + "\n")
        sys.stdout.flush()
        threading.Thread(target=_accept, args=(bare, memory), daemon=True).start()
        sys.stdin.buffer.read()
        os._exit(0)  # the accepting thread waits for ever


def _accept(bare: socket.socket, memory: memoryview) -> None:
    while True:
        connection, _ = bare.accept()
        threading.Thread(target=serve, args=(connection, memory), daemon=True).start()


if __name__ == "__main__":
    main()
