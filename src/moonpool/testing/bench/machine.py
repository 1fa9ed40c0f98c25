"""The machine's own limits, measured in the same run as the pool."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from moonpool import _native
from moonpool.errors import PeerUnavailable
from moonpool.testing.bench.peer import MESSAGE_BYTES, next_message

MIB = 1024 * 1024
CACHE_BYTES_ASSUMED = 32 * MIB
WORKING_SETS = 4  # times the last level of cache


class Machine:
    """A peer process with populated memory, and as much private memory here."""

    def __init__(self, byte_count: int) -> None:
        """byte_count: of each; at least four times the last level of cache, so that every copy meets cold memory."""
        self.byte_count = byte_count
        ours, theirs = socket.socketpair()
        self._socket = ours
        command = [sys.executable, "-m", "moonpool.testing.bench.peer", str(theirs.fileno()), str(byte_count)]
        self._peer = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()
        _, descriptors, _, _ = socket.recv_fds(ours, 64, 1)
        ours.setblocking(False)
        if not descriptors:
            raise PeerUnavailable("the benchmark's peer process ended at its start")
        self._shared = mmap.mmap(descriptors[0], byte_count)
        os.close(descriptors[0])
        self.memory = private_memory(byte_count)
        self.address, _ = _native.address_of(self.memory, True)
        self._shared_address, _ = _native.address_of(self._shared, True)
        self._message = bytes(MESSAGE_BYTES)

    def copy_out(self, piece_bytes: int) -> None:
        """The whole set once, from the peer's memory into ours."""
        for offset in range(0, self.byte_count - piece_bytes + 1, piece_bytes):
            ctypes.memmove(self.address + offset, self._shared_address + offset, piece_bytes)

    def copy_in(self, piece_bytes: int) -> None:
        """The whole set once, from our memory into the peer's."""
        for offset in range(0, self.byte_count - piece_bytes + 1, piece_bytes):
            ctypes.memmove(self._shared_address + offset, self.address + offset, piece_bytes)

    def ping_pong(self, _number: int = 0) -> None:
        """64 bytes to the peer and back over a unix socket; neither side sleeps."""
        number = self._socket.fileno()
        os.write(number, self._message)
        next_message(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._socket.close()
        self._peer.wait()
        self._shared.close()


def private_memory(byte_count: int) -> mmap.mmap:
    """Anonymous memory of this process, populated."""
    memory = mmap.mmap(-1, byte_count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    noise = os.urandom(MIB)
    for offset in range(0, byte_count, MIB):
        memory[offset : offset + MIB] = noise[: min(MIB, byte_count - offset)]
    return memory


def working_set_bytes() -> int:
    """Four times the last level of cache, in whole MiB and at least 128 MiB."""
    sizes = [size.read_text() for size in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    matches = [match for size in sizes if (match := re.match(r"(\d+)([KM])", size))]
    found = [CACHE_BYTES_ASSUMED, *(int(match[1]) * (1024 if match[2] == "K" else MIB) for match in matches)]
    return -(-max(found) * WORKING_SETS // MIB) * MIB
