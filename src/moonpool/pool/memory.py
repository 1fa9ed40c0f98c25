"""Whether the memory that a node is to offer is there: better a clear word at the start than the kernel's killer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moonpool.errors import ConfigError

if TYPE_CHECKING:
    from moonpool.config import MachineMemory

_MIB = 1024 * 1024


def require_memory(segment_bytes: int, memory: MachineMemory, *, name: str = "node.segment_bytes") -> None:
    """ConfigError (start_failed) when the segment is larger than what the machine or the cgroup has free."""
    if segment_bytes <= memory.usable_bytes:
        return
    limited = memory.cgroup_free_bytes is not None and memory.cgroup_free_bytes < memory.available_bytes
    where = "this process's memory cgroup has" if limited else "this machine has"
    raise ConfigError(
        f"{name} = {segment_bytes // _MIB} MiB is more than the {memory.usable_bytes // _MIB} MiB that {where} free; "
        f"lower {name}" + (", or raise the container's memory limit" if limited else ", or free memory"),
        kind="start_failed",
    )
