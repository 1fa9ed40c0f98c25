"""Wrong arguments: a `UsageError` that names them, before anything is sent; never another exception, never a guess."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import moonpool
from moonpool import GroupRule, Layout, Pool, Tags
from moonpool.errors import UsageError

MEMORY = ctypes.create_string_buffer(64)
ADDRESS = ctypes.addressof(MEMORY)
WRONG: dict[str, Callable[[Any], object]] = {
    "a key that is no text": lambda pool: pool.put({"\ud800": b"x"}),
    "values that are a number": lambda pool: pool.put(["a"], 5),
    "values without a length": lambda pool: pool.put(["a"], iter([b"x"])),
    "a lone key to get_bytes": lambda pool: pool.get_bytes("k"),
    "a negative namespace": lambda pool: pool.match(-1, [1]),
    "namespace 0": lambda pool: pool.match(0, [1]),
    "a namespace over 64 bits": lambda pool: pool.match(2**64, [1]),
    "a namespace that is text": lambda pool: pool.clear("everything"),
    "a namespace to clear below 0": lambda pool: pool.clear(-1),
    "more block hashes than one question carries": lambda pool: pool.match(1, range(1, 20_000)),
    "a group that is a number": lambda pool: pool.match(1, [1], [1]),
    "a group of text": lambda pool: pool.match(1, [1], [("a", "b", "c")]),
    "a negative group": lambda pool: pool.match(1, [1], [GroupRule(kv_group=-1)]),
    "a group of no shard": lambda pool: pool.match(1, [1], [GroupRule(shard_count=0)]),
    "no groups": lambda pool: pool.match(1, [1], None),
    "more tags than keys": lambda pool: pool.put(["a"], [b"x"], tags=Tags(1, [1, 2], [0, 1])),
    "more tags than blocks": lambda pool: pool.put_blocks(
        Layout([ADDRESS], [64], [64], 1), [0], ["a"], tags=Tags(1, [1, 2], [0, 1])
    ),
    "a description that is no JSON": lambda pool: pool.describe({"a": object()}),
    "a description that is no text": lambda pool: pool.describe("\ud800"),
    "a description of 100 kB": lambda pool: pool.describe("x" * 100_000),
    "an empty range": lambda pool: pool.register((ADDRESS, 0)),
    "an empty buffer": lambda pool: pool.register(bytearray()),
    "an address that is text": lambda pool: pool.unregister("x"),
    "a target that is a number": lambda pool: moonpool.connect(5),  # type: ignore[arg-type]
    "an empty target": lambda pool: moonpool.connect(""),
    "a size that is text": lambda pool: moonpool.connect(embedded=True, segment_bytes="4GiB"),  # type: ignore[arg-type]
}


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with moonpool.connect(embedded=True, segment_bytes=1 << 20) as embedded:
        embedded.put({"k": b"v"})
        yield embedded


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_a_usage_error_and_changes_nothing(pool: Pool, name: str) -> None:
    with pytest.raises(UsageError):
        WRONG[name](pool)
    assert [item.key for item in pool.list()] == [b"k"]
    assert pool.stat()["table"]["stored_total"] == 1
