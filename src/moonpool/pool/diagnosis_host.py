"""What the machine's and the user's limits forbid. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from moonpool.config import MachineMemory
from moonpool.config.values import format_value
from moonpool.pool.finding import Finding, problem, remark

_SMALL_SHARED_MEMORY_BYTES = 256 * 2**20
_FILES_BESIDE_CONNECTIONS = 64
_AVAILABLE_SHARE_MIN = 0.03


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of this user's processes; None: unlimited or unknown."""

    address_space_bytes: int | None = None
    open_file_count: int | None = None
    shared_memory_bytes: int | None = None  # size of /dev/shm


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The machine, and what the node is to take of it."""

    memory: MachineMemory
    limits: Limits
    segment_bytes: int
    connection_count: int
    node_runs: bool


def host_findings(host: Host) -> Iterator[Finding]:
    """Of memory, then of the limits of processes."""
    yield from _memory(host)
    yield from _limits(host)


def _memory(host: Host) -> Iterator[Finding]:
    memory, wanted = host.memory, host.segment_bytes
    if not host.node_runs and wanted > memory.usable_bytes:
        limit = "the cgroup's limit" if memory.cgroup_free_bytes == memory.usable_bytes else "MemAvailable"
        yield problem(
            "memory_limit",
            "memory",
            what=f"node.segment_bytes is {_size(wanted)}, but only {_size(memory.usable_bytes)} "
            f"can be had ({limit}): the node would be refused or killed",
            advice=f"lower node.segment_bytes below {_size(memory.usable_bytes)}, or raise the limit",
        )
    elif host.node_runs and memory.usable_bytes < memory.total_bytes * _AVAILABLE_SHARE_MIN:
        yield problem(
            "memory_short",
            "memory",
            what=f"only {_size(memory.usable_bytes)} of memory are left on this host: "
            "the kernel may kill the node or an engine",
            advice="lower node.segment_bytes, or the engines' own memory",
        )


def _limits(host: Host) -> Iterator[Finding]:
    limits = host.limits
    if limits.address_space_bytes is not None and limits.address_space_bytes < 2 * host.segment_bytes:
        yield problem(
            "address_space",
            "limits",
            what=f"processes may map {_size(limits.address_space_bytes)} (RLIMIT_AS), the "
            f"segment has {_size(host.segment_bytes)} and each client maps it too",
            advice="run `ulimit -v unlimited` before",
        )
    needed = 2 * host.connection_count + _FILES_BESIDE_CONNECTIONS  # of each its socket and its process
    if limits.open_file_count is not None and limits.open_file_count < needed:
        yield remark(
            "open_files",
            "limits",
            what=f"processes may open {limits.open_file_count} files (RLIMIT_NOFILE), the node's "
            f"limit of {host.connection_count} connections needs {needed}",
            advice=f"raise the hard limit (`ulimit -Hn {needed}`) before, or lower node.limits.connection_count",
        )
    if limits.shared_memory_bytes is not None and limits.shared_memory_bytes < _SMALL_SHARED_MEMORY_BYTES:
        yield remark(
            "small_shm",
            "limits",
            what=f"/dev/shm has {_size(limits.shared_memory_bytes)}: the pool's memory does not lie "
            "there, but engines with several workers need it",
            advice="start the container with --shm-size=1g or more",
        )


def _size(value: int) -> str:
    return format_value(value, "bytes")
