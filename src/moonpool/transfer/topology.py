"""Which network devices are near which memory, from sysfs, and what that means for rails.

The factor of a rail is what the planner multiplies its predicted times with: 1000 for a device on the memory's own NUMA
node; farther ones by the kernel's table of distances (ACPI SLIT: 10 is local, 20 twice as far), softened to the square
root, because a copy overlaps with the wire; TENT's authors found a penalty of about 3 best and the choice forgiving
between 1 and 10 (arXiv 2604.00368).
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
import socket
import struct
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from moonpool.errors import ConfigError

NEAR_PERMILLE = 1_000
FAR_PERMILLE_MAX = 10_000
LOCAL_DISTANCE = 10  # of a NUMA node to itself, by ACPI
MEGABIT_BYTES = 125_000
_ADDRESS_OF_DEVICE = 0x8915  # SIOCGIFADDR


class Device(Struct, frozen=True):
    """A network device. numa_node: None when the kernel does not say; addresses: numeric ones that it has."""

    name: str
    numa_node: int | None = None
    bytes_per_second: int = 0  # nominal; 0: unknown
    addresses: tuple[str, ...] = ()


class DeviceOverride(Struct, frozen=True, forbid_unknown_fields=True):
    """What the file says of a device instead of sysfs."""

    numa_node: Annotated[int, Meta(ge=0)] | None = None
    megabits_per_second: Annotated[int, Meta(ge=1)] | None = None
    permille: Annotated[int, Meta(ge=1, le=FAR_PERMILLE_MAX)] | None = None  # the rail's factor, wherever memory is


class Overrides(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file.

    ```toml
    [device.eth1]
    numa_node = 1
    megabits_per_second = 200_000

    [location]
    "cuda:0" = 1     # the NUMA node that this memory is near
    ```
    """

    device: dict[str, DeviceOverride] = {}
    location: dict[str, Annotated[int, Meta(ge=0)]] = {}


class Topology(Struct, frozen=True):
    """What was found. distances: of each NUMA node to each other one."""

    devices: tuple[Device, ...] = ()
    distances: Mapping[int, Mapping[int, int]] = {}
    overrides: Overrides = Overrides()

    def permille(self, local: str, location: str = "cpu:0") -> int:
        """The factor of a rail that leaves from this local address (numeric; empty: anyone), for this memory."""
        device = self.device_of(local)
        if device is None:
            return NEAR_PERMILLE
        override = self.overrides.device.get(device.name)
        if override and override.permille is not None:
            return override.permille
        return self._permille_between(self.numa_node_of(location), device.numa_node)

    def bytes_per_second(self, local: str) -> int:
        """The nominal bandwidth of the device that has this local address; 0: unknown."""
        device = self.device_of(local)
        return 0 if device is None else device.bytes_per_second

    def device_of(self, local: str) -> Device | None:
        """The device that has this address."""
        if not local:
            return None
        wanted = _numeric(local)
        return next((device for device in self.devices if wanted in map(_numeric, device.addresses)), None)

    def numa_node_of(self, location: str) -> int | None:
        """The NUMA node of memory with this label: what the file says, else for ``cpu:N`` N itself if there is one."""
        if location in self.overrides.location:
            return self.overrides.location[location]
        kind, _, number = location.partition(":")
        known = kind == "cpu" and number.isdigit() and int(number) in self.distances
        return int(number) if known else None

    def _permille_between(self, memory: int | None, device: int | None) -> int:
        if memory is None or device is None:
            return NEAR_PERMILLE
        distance = self.distances.get(memory, {}).get(
            device, LOCAL_DISTANCE if memory == device else 2 * LOCAL_DISTANCE
        )
        factor = math.sqrt(max(distance, LOCAL_DISTANCE) / LOCAL_DISTANCE)
        return min(FAR_PERMILLE_MAX, round(NEAR_PERMILLE * factor))


def discover(*, overrides: Path | None = None, sysfs: Path = Path("/sys")) -> Topology:
    """Look at this machine. overrides: a TOML file of `Overrides`. ConfigError names the file and what is wrong in it;
    what sysfs does not say is unknown, never an error.
    """
    said = Overrides() if overrides is None else _read_overrides(overrides)
    found = [_device(folder, said) for folder in _folders(sysfs / "class/net")]
    unknown = sorted(said.device.keys() - {device.name for device in found})
    if unknown:
        raise ConfigError(f"{overrides}: this machine has no network device {', '.join(unknown)}")
    return Topology(tuple(found), _distances(sysfs / "devices/system/node"), said)


def local_address_towards(peer: str) -> str:
    """The address of ours that the system would use towards this ``host:port``; empty when it has no way there.

    Nothing is sent: a datagram socket only asks the routing table.
    """
    host, _, port = peer.rpartition(":")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), port or 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as asking:
            asking.connect(address)
            return str(asking.getsockname()[0])
    except (OSError, ValueError):
        return ""


def _read_overrides(path: Path) -> Overrides:
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), Overrides)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as wrong:
        raise ConfigError(f"{path}: {wrong}") from wrong


def _device(folder: Path, said: Overrides) -> Device:
    override = said.device.get(folder.name, DeviceOverride())
    node = override.numa_node if override.numa_node is not None else _number(folder / "device/numa_node")
    speed = override.megabits_per_second or _number(folder / "speed") or 0
    return Device(
        name=folder.name,
        numa_node=node if node is not None and node >= 0 else None,  # the kernel says -1 for "no idea"
        bytes_per_second=max(0, speed) * MEGABIT_BYTES,
        addresses=tuple(_addresses_of(folder.name)),
    )


def _distances(folder: Path) -> dict[int, dict[int, int]]:
    nodes = {int(found[1]): path for path in _folders(folder) if (found := re.fullmatch(r"node(\d+)", path.name))}
    table: dict[int, dict[int, int]] = {}
    for node, path in sorted(nodes.items()):
        row = _text(path / "distance").split()
        table[node] = {other: int(text) for other, text in zip(sorted(nodes), row, strict=False) if text.isdecimal()}
    return table


def _folders(parent: Path) -> Iterable[Path]:
    try:
        return sorted(path for path in parent.iterdir() if path.is_dir())
    except OSError:
        return ()


def _text(path: Path) -> str:
    """Empty when it cannot be read: a device that is down refuses to say its speed."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _numeric(address: str) -> str:
    """One spelling of an address; what is none is left as it is."""
    try:
        return str(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return address


def _addresses_of(device: str) -> Iterable[str]:
    """The first IPv4 address, and all IPv6 addresses, that a device has."""
    import fcntl

    request = struct.pack("256s", os.fsencode(device)[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            answer = fcntl.ioctl(asking.fileno(), _ADDRESS_OF_DEVICE, request)
            yield socket.inet_ntoa(answer[20:24])
        except OSError:
            pass  # it has none
    for line in _text(Path("/proc/net/if_inet6")).splitlines():
        digits, *_, name = line.split()
        if name == device:
            yield str(ipaddress.ip_address(bytes.fromhex(digits)))
