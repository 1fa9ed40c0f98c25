"""The block index at its full size, by hand: python -m moonpool.testing.bench.index_size [ENTRIES].

Prefixes of 1,000 blocks with 2 holders of 64 each, until there are so many (block, holder) entries (100 M); prints one
JSON object: entries, bytes that the index counts, bytes that the process grew by, seconds.
"""

from __future__ import annotations

import os
import random
import resource
import sys
import time
from array import array
from pathlib import Path

import msgspec

from moonpool import _native
from moonpool.testing.bench.indexing import HOLDER_COUNT, PREFIX_BLOCK_COUNT, messages

ENTRIES_DEFAULT = 100_000_000
HOLDERS_PER_BLOCK = 2


class IndexSize(msgspec.Struct, frozen=True):
    """What an index of that many entries takes."""

    entry_count: int
    index_bytes: int
    resident_bytes: int
    seconds: float


def measure(entry_count: int) -> IndexSize:
    """Fill an index. Needs about 64 bytes of memory an entry."""
    chooser = random.Random(1)
    index = _native.BlockIndex(entry_count)
    holders = [index.add_holder() for _ in range(HOLDER_COUNT)]
    resident_before, began = _resident_bytes(), time.monotonic()
    for _ in range(entry_count // (PREFIX_BLOCK_COUNT * HOLDERS_PER_BLOCK)):
        prefix = array("Q", os.urandom(8 * PREFIX_BLOCK_COUNT))
        for holder, digests, tags in messages(prefix, chooser.sample(holders, HOLDERS_PER_BLOCK)):
            index.stored(holder, digests, tags)
    stats = index.stats()
    return IndexSize(
        stats["entry_count"], stats["bytes"], _resident_bytes() - resident_before, time.monotonic() - began
    )


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else ENTRIES_DEFAULT
    sys.stdout.write(msgspec.json.encode(measure(wanted)).decode() + "\n")
