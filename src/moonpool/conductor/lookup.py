"""How much of a prompt each worker holds, and why not more."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from moonpool.conductor.books import NOTHING, Books, Reach
from moonpool.conductor.hashes import NO_EXTRAS, Extras, HashRules, block_hashes, hints
from moonpool.conductor.pool_view import NodeReach
from moonpool.conductor.worker import Worker
from moonpool.errors import ConfigError, UsageError
from moonpool.types import GroupRule, Tier


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for: tokens, or the 64-bit hashes that the engines would publish for its blocks."""

    tokens: Sequence[int] = ()
    hashes: Sequence[int] = ()
    extras: Extras = NO_EXTRAS

    def token_count(self, block_size_tokens: int) -> int:
        """Its length; of hashes only that of their blocks is known."""
        return len(self.tokens) or len(self.hashes) * block_size_tokens


class Found(NamedTuple):
    """What one worker holds of a prompt, in blocks, and in words why it is not more."""

    worker: Worker
    reach: Reach
    reason: str

    @property
    def block_size_tokens(self) -> int:
        """Tokens of one of its blocks."""
        return self.worker.registration.rules.block_size_tokens


class Hashed(NamedTuple):
    """A prompt as workers with the same rules hash it; or why it cannot be."""

    hints: array[int]
    reason: str


class Lookup:
    """Answers from the index."""

    def __init__(self, books: Books, *, clock_ms: Callable[[], float]) -> None:
        self._books = books
        self._clock_ms = clock_ms

    def find(self, prompt: Prompt, workers: Iterable[Worker]) -> list[Found]:
        """One answer a worker, in their order."""
        now_ms = self._clock_ms()
        hashed: dict[HashRules, Hashed] = {}
        reaches: dict[tuple[int, tuple[GroupRule, ...]], dict[int, Reach]] = {}
        found = []
        for worker in workers:
            rules = worker.registration.rules
            if rules not in hashed:
                hashed[rules] = hash_prompt(prompt, rules)
            reason = hashed[rules].reason or unusable_reason(worker, now_ms)
            groups = tuple(worker.parity.groups.values()) or (GroupRule(),)
            place = (worker.namespace_id, groups)
            if not reason and place not in reaches:
                reaches[place] = self._books.reach(worker.namespace_id, hashed[rules].hints, groups)
            reach = NOTHING if reason else reaches[place].get(worker.holder, NOTHING)
            found.append(Found(worker, reach, reason or ("" if reach.total else "it holds nothing of this prompt")))
        return found


def home_of(found: Found) -> int:
    """The incarnation of the node on the worker's host; 0 when it is not known."""
    facts = found.worker.registration.pool
    return facts.node_incarnation if facts else 0


def with_node(found: Found, nodes: Iterable[NodeReach]) -> Reach:
    """What the worker holds together with the node on its host, which it can load from."""
    total, near, engine, dram, disk = found.reach
    home = home_of(found)
    for node in nodes:
        if not home or node.incarnation != home:
            continue
        if node.tier <= Tier.DRAM:
            near, dram = max(near, node.block_count), max(dram, node.block_count)
        else:
            disk = max(disk, node.block_count)
        total = max(total, node.block_count)
    return Reach(max(total, near), near, engine, dram, disk)


def hash_prompt(prompt: Prompt, rules: HashRules) -> Hashed:
    """The hints of its blocks, or why there are none."""
    if prompt.hashes:
        return Hashed(array("Q", prompt.hashes), "")
    if len(prompt.tokens) < rules.block_size_tokens:
        return Hashed(array("Q"), f"the prompt is shorter than a block of {rules.block_size_tokens} tokens")
    try:
        return Hashed(hints(rules, block_hashes(rules, prompt.tokens, prompt.extras)), "")
    except (UsageError, ConfigError) as error:
        return Hashed(array("Q"), str(error))


def unusable_reason(worker: Worker, now_ms: float) -> str:
    """Why what is known of it does not count now; empty when it does."""
    failure = worker.failure(now_ms)
    if failure:
        return f"degraded: {failure}"
    if not worker.stream.connected:
        return "its event stream is away"
    return "" if worker.stream.trusted else "its event stream is being replayed"
