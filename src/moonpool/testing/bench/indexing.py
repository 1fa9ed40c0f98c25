"""Rows of the block index alone: 1 M blocks in prefixes of 1,000, each with 2 holders of 64."""

from __future__ import annotations

import os
import random
import time
from array import array
from collections.abc import Iterator

from moonpool import _native
from moonpool.testing.bench.measure import Row, row
from moonpool.testing.bench.stage import Stage
from moonpool.testing.bench.topics import Topic, value_at_least, value_at_most

HOLDER_COUNT = 64
PREFIX_COUNT = 1_000
PREFIX_BLOCK_COUNT = 1_000
EVENTS_PER_MESSAGE = 100
MATCH_COUNT = 5_000
NAMESPACE_ID = 7
DIGEST_BYTES = 16

Message = tuple[int, list[bytes], _native.Tags]  # holder, digests, tags


def index_rows(_stage: Stage) -> Iterator[Row]:
    """Events in, memory, look-ups, by this thread's CPU time; the calls are those of Python, a message or a prefix
    at a time.
    """
    chooser = random.Random(1)
    index = _native.BlockIndex(4 * PREFIX_COUNT * PREFIX_BLOCK_COUNT)
    holders = [index.add_holder() for _ in range(HOLDER_COUNT)]
    prefixes = [array("Q", os.urandom(8 * PREFIX_BLOCK_COUNT)) for _ in range(PREFIX_COUNT)]
    messages = [message for prefix in prefixes for message in messages(prefix, chooser.sample(holders, 2))]
    chooser.shuffle(messages)
    began = time.thread_time()
    for holder, digests, tags in messages:
        index.stored(holder, digests, tags)
    yield row("index.events", len(messages) * EVENTS_PER_MESSAGE / (time.thread_time() - began) / 1e6, "M/s")
    stats = index.stats()
    yield row("index.bytes_per_entry", stats["bytes"] / stats["entry_count"], "B")
    asked = chooser.choices(prefixes, k=MATCH_COUNT)
    groups = [(0, 1, 0)]
    began = time.thread_time()
    found = sum(index.match(NAMESPACE_ID, prefix, groups)[0] for prefix in asked)
    seconds = time.thread_time() - began
    if found != MATCH_COUNT * PREFIX_BLOCK_COUNT:
        raise RuntimeError(f"the index found {found} blocks of {MATCH_COUNT * PREFIX_BLOCK_COUNT}")
    yield row("index.match", found / seconds / 1e6, "M blocks/s")


def messages(prefix: array[int], holders: list[int]) -> Iterator[Message]:
    """A prefix's blocks as each holder announces them."""
    noise = os.urandom(DIGEST_BYTES * len(prefix))
    digests = [noise[at : at + DIGEST_BYTES] for at in range(0, len(noise), DIGEST_BYTES)]
    parents = array("Q", [0, *prefix[:-1]])
    for at in range(0, len(prefix), EVENTS_PER_MESSAGE):
        part = slice(at, at + EVENTS_PER_MESSAGE)
        tags = _native.Tags(NAMESPACE_ID, prefix[part], parents[part])
        for holder in holders:
            yield holder, digests[part], tags


TOPICS = (
    Topic(
        "the block index",
        {
            "index.events": value_at_least(3),
            "index.bytes_per_entry": value_at_most(64),
            "index.match": value_at_least(10),
        },
        index_rows,
    ),
)
