"""What an allocator may say, with nothing but a dict: which ranges are used, hence which gaps there are."""

from __future__ import annotations

GRANULE_BYTES = 64


def rounded(size_bytes: int) -> int:
    """What a request really takes: whole granules, at least one."""
    return max(1, -(-size_bytes // GRANULE_BYTES)) * GRANULE_BYTES


class AllocatorModel:
    """Takes over the native allocator's choice of place and says whether it was a legal one."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes // GRANULE_BYTES * GRANULE_BYTES
        self.used: dict[int, int] = {}  # offset -> bytes

    def gaps(self) -> list[tuple[int, int]]:
        """(offset, bytes) of every maximal free range."""
        found, position = [], 0
        for offset, size_bytes in sorted(self.used.items()):
            if offset > position:
                found.append((position, offset - position))
            position = offset + size_bytes
        if position < self.capacity_bytes:
            found.append((position, self.capacity_bytes - position))
        return found

    @property
    def largest_free_bytes(self) -> int:
        return max((size_bytes for _, size_bytes in self.gaps()), default=0)

    @property
    def used_bytes(self) -> int:
        return sum(self.used.values())

    def take(self, offset: int | None, size_bytes: int) -> None:
        """The native allocator answered a request with this offset (None: no room)."""
        wanted_bytes = rounded(size_bytes)
        if offset is None:
            assert self.largest_free_bytes < wanted_bytes, f"{wanted_bytes} bytes fit into {self.gaps()}"
            return
        assert any(
            start <= offset and offset + wanted_bytes <= start + free_bytes for start, free_bytes in self.gaps()
        ), f"{offset}+{wanted_bytes} is not free in {self.gaps()}"
        self.used[offset] = wanted_bytes

    def free(self, offset: int) -> None:
        del self.used[offset]
