"""A host of its own network behind one or more rails.

Each rail is a pair of virtual Ethernet devices, one end here and one in the namespace, with a network of its own and a
token bucket at both ends. Names carry the owner's process id: whoever comes next clears away what a crash has left.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from moonpool.errors import MoonpoolError

RAIL_COUNT_MAX = 8
COMMAND_TIMEOUT_S = 20
_NAME = re.compile(r"mp(\d+)-(\d+)")
_COUNT = itertools.count()
# Networks of four addresses out of a range that is set aside for tests of devices (RFC 2544).
_NETWORK_COUNT = 1 << 15


class Rail(msgspec.Struct, frozen=True):
    """One link. here and there: the IPv4 addresses of its ends."""

    host: str
    device: str
    far_device: str
    here: str
    there: str

    def cut(self) -> None:
        """Nothing comes through any more, and nobody is told: neither end gets an error."""
        _run("ip", "-n", self.host, "link", "set", self.far_device, "down")

    def heal(self) -> None:
        """Undo `cut`."""
        _run("ip", "-n", self.host, "link", "set", self.far_device, "up")

    def shape(self, rate: str) -> None:
        """Both directions carry so much from now on: a rate of ``tc``, such as ``1gbit``."""
        for place in ((), ("-n", self.host)):
            device = self.far_device if place else self.device
            bucket = ("rate", rate, "burst", "256kb", "latency", "20ms")
            _run("tc", *place, "qdisc", "replace", "dev", device, "root", "tbf", *bucket)


class EmulatedHost:
    """A network namespace reached over ``rail_count`` rails of ``rate`` each. For a `with` block.

    Raises MoonpoolError (kind "start_failed") where the kernel or our rights do not allow it; `why_not` says so before.
    """

    def __init__(self, *, rail_count: int = 2, rate: str = "1gbit") -> None:
        if not 1 <= rail_count <= RAIL_COUNT_MAX:
            raise ValueError(f"rail_count is {rail_count}: between 1 and {RAIL_COUNT_MAX}")
        self.name = f"mp{os.getpid()}-{next(_COUNT)}"
        self.rails: tuple[Rail, ...] = ()
        self._rail_count = rail_count
        self._rate = rate

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The command line that runs this one on the host."""
        return ["ip", "netns", "exec", self.name, *arguments]

    def __enter__(self) -> Self:
        clear_leftovers()
        try:
            _run("ip", "netns", "add", self.name)
            _run("ip", "-n", self.name, "link", "set", "lo", "up")
            self.rails = tuple(self._add_rail(index) for index in range(self._rail_count))
        except BaseException:
            _delete(self.name)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process_id in _run("ip", "netns", "pids", self.name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process_id), 9)
        _delete(self.name)

    def _add_rail(self, index: int) -> Rail:
        device = f"{self.name}r{index}"[:15]
        far_device = f"rail{index}"
        here, there = _free_network()
        _run("ip", "link", "add", device, "type", "veth", "peer", "name", far_device, "netns", self.name)
        _run("ip", "address", "add", f"{here}/30", "dev", device)
        _run("ip", "-n", self.name, "address", "add", f"{there}/30", "dev", far_device)
        _run("ip", "link", "set", device, "up")
        _run("ip", "-n", self.name, "link", "set", far_device, "up")
        rail = Rail(self.name, device, far_device, here, there)
        rail.shape(self._rate)
        return rail


@functools.cache
def why_not() -> str:
    """Why this machine cannot emulate a host; empty when it can. Tried once, with a real one."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} not installed (Debian: iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with EmulatedHost(rail_count=1):
            return ""
    except MoonpoolError as refused:
        return str(refused)


def clear_leftovers() -> None:
    """Delete the hosts of processes that have ended. Their devices go with them."""
    for line in _run("ip", "netns", "list").splitlines():
        found = _NAME.fullmatch(line.split()[0]) if line.strip() else None
        if found and not Path(f"/proc/{found[1]}").exists():
            _delete(found[0])


def _free_network() -> tuple[str, str]:
    """Two addresses of a network of four that no device here has."""
    taken = set(re.findall(r"inet (198\.1[89]\.\d+\.\d+)/", _run("ip", "-4", "address", "show")))
    first = os.getpid()
    for here, there in (_addresses((first + attempt) % _NETWORK_COUNT) for attempt in range(_NETWORK_COUNT)):
        if here not in taken:
            return here, there
    raise MoonpoolError("no free test network is left", kind="start_failed")


def _addresses(number: int) -> tuple[str, str]:
    first, rest = divmod(number * 4, 1 << 16)
    second, third = divmod(rest, 256)
    return f"198.{18 + first}.{second}.{third + 1}", f"198.{18 + first}.{second}.{third + 2}"


def _delete(name: str) -> None:
    """Whether or not it is there. Its devices would go with the namespace, but later: the near ends go first."""
    with contextlib.suppress(MoonpoolError):
        for device in _near_devices(name):
            _run("ip", "link", "delete", device)
    with contextlib.suppress(MoonpoolError):
        _run("ip", "netns", "delete", name)


def _near_devices(name: str) -> Iterator[str]:
    for found in re.finditer(r"^\d+: (\S+?)[@:]", _run("ip", "link", "show", "type", "veth"), re.MULTILINE):
        if found[1].startswith(f"{name}r"):
            yield found[1]


def _run(*command: str) -> str:
    """What it prints. Raises MoonpoolError with what it says when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise MoonpoolError(f"cannot emulate a host: {failed}", kind="start_failed") from failed
    if done.returncode != 0:
        what = f"cannot emulate a host: `{' '.join(command)}` says: {done.stderr.strip()}"
        raise MoonpoolError(what, kind="start_failed")
    return done.stdout
