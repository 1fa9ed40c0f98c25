"""How much memory this process may use, and what part of it a node offers by default."""

from __future__ import annotations

from pathlib import Path

import msgspec

from moonpool.config.settings import GIB, MIB

SEGMENT_BYTES_DEFAULT_MIN = 64 * MIB
SEGMENT_BYTES_DEFAULT_MAX = 64 * GIB
ARENA_BYTES_DEFAULT_MIN = 256 * MIB
ARENA_BYTES_DEFAULT_MAX = 4 * GIB
_PAGE_BYTES = 4096
# cgroup version 1 writes "no limit" as a number near 2**63.
_CGROUP_LIMIT_BYTES_MAX = 2**60


class MachineMemory(msgspec.Struct, frozen=True):
    """Bytes. A cgroup's figures are those of the tightest one on the way to the root; None: unlimited."""

    total_bytes: int
    available_bytes: int
    cgroup_limit_bytes: int | None = None
    cgroup_free_bytes: int | None = None

    @property
    def usable_bytes(self) -> int:
        """What may still be taken before the kernel or the cgroup kills somebody."""
        if self.cgroup_free_bytes is None:
            return self.available_bytes
        return min(self.available_bytes, self.cgroup_free_bytes)


def read_machine_memory(
    process_files: Path = Path("/proc"), cgroup_root: Path = Path("/sys/fs/cgroup")
) -> MachineMemory:
    """What /proc/meminfo and this process's memory cgroup (version 1 or 2) say."""
    fields = {}
    for line in (process_files / "meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        fields[name] = int(rest.split()[0]) * 1024
    limit_bytes, free_bytes = _read_cgroup(process_files / "self" / "cgroup", cgroup_root)
    return MachineMemory(
        total_bytes=fields["MemTotal"],
        available_bytes=fields.get("MemAvailable", fields.get("MemFree", 0)),
        cgroup_limit_bytes=limit_bytes,
        cgroup_free_bytes=free_bytes,
    )


def choose_segment_bytes(usable_bytes: int) -> int:
    """A quarter of what is usable, between 64 MiB and 64 GiB, in whole MiB."""
    quarter = usable_bytes // 4 // MIB * MIB
    return max(SEGMENT_BYTES_DEFAULT_MIN, min(quarter, SEGMENT_BYTES_DEFAULT_MAX))


def choose_arena_bytes(segment_bytes: int) -> int:
    """An eighth of the segment between 256 MiB and 4 GiB, widened so that whole arenas fill the segment."""
    wanted = max(ARENA_BYTES_DEFAULT_MIN, min(segment_bytes // 8, ARENA_BYTES_DEFAULT_MAX))
    arena_count = max(1, segment_bytes // wanted)
    return max(_PAGE_BYTES, segment_bytes // arena_count // _PAGE_BYTES * _PAGE_BYTES)


def _read_cgroup(membership: Path, root: Path) -> tuple[int | None, int | None]:
    tightest: tuple[int, int] | None = None
    for folder, files in _cgroup_folders(membership, root):
        limit_bytes, used_bytes = (_read_number(folder / name) for name in files)
        if limit_bytes is None or used_bytes is None or limit_bytes >= _CGROUP_LIMIT_BYTES_MAX:
            continue
        free_bytes = max(0, limit_bytes - used_bytes + _reclaimable_bytes(folder))
        if tightest is None or free_bytes < tightest[1]:
            tightest = (limit_bytes, min(free_bytes, limit_bytes))
    return (None, None) if tightest is None else tightest


def _cgroup_folders(membership: Path, root: Path) -> list[tuple[Path, tuple[str, str]]]:
    """Every existing memory cgroup folder from this process's own up to the root, with its file names."""
    found = []
    for line in membership.read_text().splitlines() if membership.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, files = root, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            base, files = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        own = base / path.lstrip("/")
        folders = [own, *own.parents]
        found += [(folder, files) for folder in folders if folder == base or base in folder.parents]
    return found


def _read_number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:  # another cgroup version, or not visible from this container: no limit known
        return None
    return int(text) if text.isdigit() else None


def _reclaimable_bytes(folder: Path) -> int:
    """File pages that the kernel drops before it kills: they count as used but are free for us."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:  # not visible: take the usage as it is, which errs on the small side
        return 0
    fields = dict(line.split(None, 1) for line in lines if " " in line)
    return int(fields.get("total_inactive_file", fields.get("inactive_file", "0")))
