"""Which network device is near which memory, read from a tree that looks like sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonpool.errors import ConfigError
from moonpool.transfer.topology import Device, Topology, discover, local_address_towards

DISTANCES = {0: {0: 10, 1: 21}, 1: {0: 21, 1: 10}}


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Two NUMA nodes, a fast device on each, and one of which the kernel knows nothing."""
    root = tmp_path / "sys"
    write(root / "devices/system/node", node0__distance="10 21\n", node1__distance="21 10\n", online="0-1\n")
    write(root / "class/net/port0", speed="100000\n", device__numa_node="0\n")
    write(root / "class/net/port1", speed="200000\n", device__numa_node="1\n")
    write(root / "class/net/virtual", speed="-1\n", device__numa_node="-1\n")
    return root


def test_devices_have_their_node_and_their_speed(sysfs: Path) -> None:
    assert discover(sysfs=sysfs).devices == (
        Device("port0", 0, 12_500_000_000),
        Device("port1", 1, 25_000_000_000),
        Device("virtual", None, 0),
    )
    assert discover(sysfs=sysfs).distances == DISTANCES


def test_a_machine_without_sysfs_has_an_empty_topology_and_every_rail_is_near(tmp_path: Path) -> None:
    found = discover(sysfs=tmp_path / "none")
    assert found.devices == ()
    assert found.permille("198.18.0.1", "cpu:3") == 1000
    assert found.bytes_per_second("198.18.0.1") == 0


def rails() -> Topology:
    devices = (
        Device("port0", 0, 1, ("198.18.0.1", "2001:db8::1")),
        Device("port1", 1, 2, ("198.18.0.5",)),
        Device("virtual", None, 0, ("198.18.0.9",)),
    )
    return Topology(devices, DISTANCES)


@pytest.mark.parametrize(
    ("local", "location", "permille"),
    [
        ("198.18.0.1", "cpu:0", 1000),
        ("198.18.0.5", "cpu:0", 1449),  # the square root of 2.1
        ("198.18.0.5", "cpu:1", 1000),
        ("2001:0db8:0:0::1", "cpu:1", 1449),  # the same address, spelt out
        ("198.18.0.9", "cpu:1", 1000),  # nobody knows where it is
        ("198.18.0.77", "cpu:1", 1000),  # nobody has it
        ("198.18.0.5", "cuda:0", 1000),  # nobody knows where that memory is
        ("198.18.0.5", "cpu:9", 1000),  # there is no such node
        ("", "cpu:0", 1000),
    ],
)
def test_a_rail_is_as_far_as_its_device_is_from_the_memory(local: str, location: str, permille: int) -> None:
    assert rails().permille(local, location) == permille


def test_the_file_overrides_what_sysfs_says(sysfs: Path, tmp_path: Path) -> None:
    file = tmp_path / "topology.toml"
    file.write_text(
        """
        [device.virtual]
        numa_node = 1
        megabits_per_second = 25_000
        [device.port0]
        permille = 3000
        [location]
        "cuda:0" = 1
        """
    )
    found = discover(overrides=file, sysfs=sysfs)
    assert found.devices[2] == Device("virtual", 1, 3_125_000_000)
    assert found.numa_node_of("cuda:0") == 1
    placed = Topology((Device("port0", 0, 1, ("198.18.0.1",)),), DISTANCES, found.overrides)
    assert placed.permille("198.18.0.1", "cpu:0") == 3000


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[device.port7]\nnuma_node = 0", "port7"),
        ("[device.port0]\nnuma = 0", "numa"),
        ("[device.port0]\nnuma_node = -1", "numa_node"),
        ("device = 3", "device"),
        ("[", "topology.toml"),
    ],
)
def test_a_file_that_is_wrong_is_an_error_that_names_it(sysfs: Path, tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "topology.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=named) as refused:
        discover(overrides=file, sysfs=sysfs)
    assert str(file) in str(refused.value)


def test_a_file_that_is_not_there_is_an_error(sysfs: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        discover(overrides=tmp_path / "absent.toml", sysfs=sysfs)


def test_this_machine_has_a_loopback_device_with_its_address() -> None:
    found = discover()
    device = found.device_of("127.0.0.1")
    assert device is not None
    assert device.name == "lo"
    assert local_address_towards("127.0.0.1:1") == "127.0.0.1"
    assert local_address_towards("no such host:1") == ""
