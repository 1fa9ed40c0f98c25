"""Engines in processes of their own: a receiver that a test can stop and kill, and what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, Self

from moonpool import RemoteRegion

SECRET = b"transfer tests share this"

# Allocates a region and listens, then answers each line of its input: "read OFFSET LENGTH", "sum", "receive",
# "unregister", "status". Runs until its input ends.
RECEIVER = """
import hashlib, json, sys
import moonpool

secret, address, byte_count, settings = json.loads(sys.argv[1])
engine = moonpool.TransferEngine(name="receiver", secret=secret.encode(), **settings)
region = engine.allocate(byte_count)
print(json.dumps({"address": engine.listen(address)[0], "descriptor": region.descriptor.hex()}), flush=True)
for line in sys.stdin:
    verb, *numbers = line.split()
    if verb == "read":
        offset, length = map(int, numbers)
        answer = region.memory[offset : offset + length].hex()
    elif verb == "sum":
        answer = hashlib.sha256(region.memory).hexdigest()
    elif verb == "receive":
        message = engine.receive(timeout_ms=20_000)
        answer = None if message is None else [message.sender, message.content.hex()]
    elif verb == "unregister":
        answer = engine.unregister(region, timeout_ms=int(numbers[0]))
    else:
        answer = engine.status()
    print(json.dumps(answer), flush=True)
engine.close()
"""


class Receiver:
    """A process with one region of so many bytes, listening."""

    def __init__(
        self,
        byte_count: int,
        address: str = "127.0.0.1:0",
        *,
        wrap: Callable[[Sequence[str]], list[str]] = list,
        **settings: Any,
    ) -> None:
        """wrap: the command line that runs another one somewhere else."""
        arguments = json.dumps([SECRET.decode(), address, byte_count, settings])
        command = wrap([sys.executable, "-c", RECEIVER, arguments])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            place = self._answer()
        except BaseException:
            self.kill()
            raise
        self.address: str = place["address"]
        self.region = RemoteRegion.from_bytes(bytes.fromhex(place["descriptor"]))

    def ask(self, line: str) -> Any:
        self.say(line)
        return self._answer()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        return self._answer()

    def read(self, offset: int, length: int) -> bytes:
        return bytes.fromhex(self.ask(f"read {offset} {length}"))

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the receiver has ended"
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
