"""Does a worker hash as we were told? Compares what it publishes with what we compute. Pure.

Checked of every worker: block size, kv_groups and rank of each event; the hash of the first blocks of prompts, for the
first few and then of one in 64; and, where the engine's API is known, a prompt of ours that must show up in its events.
A worker that fails one is degraded: it is still given requests by its load, and none for what it claims to hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moonpool.conductor.events import Stored
from moonpool.conductor.hashes import (
    ALGORITHMS,
    VLLM_SEED_DEFAULT,
    Extras,
    HashRules,
    block_hashes,
    hints,
)
from moonpool.conductor.registration import Registration
from moonpool.errors import ConfigError, UsageError
from moonpool.identity import Media
from moonpool.types import GroupRule

GROUP_COUNT_MAX = 64  # of one look-up
CHECKED_FIRST = 8
CHECKED_EVERY = 64
_COMMON_SEEDS = (VLLM_SEED_DEFAULT, "0", "42", "1")
_WINDOW_KINDS = ("sliding_window", "window")


class Parity:
    """The checks of one worker. ``failure`` is empty while nothing is wrong."""

    def __init__(self, registration: Registration) -> None:
        self._registration = registration
        self._rules = registration.rules
        self.failure = ""
        self.remarks: list[str] = []
        self.proven = False  # a hash was compared
        self.groups: dict[int, GroupRule] = {group.kv_group: group for group in registration.groups}
        self._known_groups = frozenset(self.groups)
        self._seen_groups: set[int] = set()
        self._root_count = 0
        self._expected: tuple[int, ...] = ()  # tokens of our own prompt
        self.probe_seen = False
        if registration.unmatched_groups:
            listed = ", ".join(map(str, registration.unmatched_groups))
            self.remarks.append(f"kv_groups {listed} follow rules that no look-up knows: hits may be shorter than told")
        self._check_sample()

    def expect(self, tokens: Sequence[int]) -> None:
        """A prompt of ours is on its way; its blocks must come."""
        self._expected = tuple(tokens)
        self.probe_seen = False

    def counts(self, kv_group: int) -> bool:
        """Whether blocks of this group are matched."""
        return kv_group in self.groups

    def observe(self, event: Stored, rank: int | None) -> None:
        """Look at an event before it is taken in."""
        if self.failure:
            return
        group = event.kv_group or 0
        self.failure = (
            self._rank_failure(rank)
            or self._group_failure(event, group)
            or (self._hash_failure(event) if event.parent is None and self.counts(group) else "")
        )
        if not self.failure:
            self._seen_groups.add(group)

    def missing_groups(self) -> list[int]:
        """Registered groups from which nothing came yet."""
        return sorted(self._known_groups - self._seen_groups)

    def _check_sample(self) -> None:
        sample = self._registration.sample_hash
        if not sample:
            return
        try:
            mine = block_hashes(self._rules, range(1, self._rules.block_size_tokens + 1))[0].hex()
        except (UsageError, ConfigError) as error:
            self.failure = str(error)
            return
        if mine != sample:
            self.failure = f"hash: the engine computes {sample[:16]}… for a prompt for which we compute {mine[:16]}…"
        else:
            self.proven = True

    def _rank_failure(self, rank: int | None) -> str:
        if rank is None or rank == self._registration.data_rank:
            return ""
        return f"dp_rank: events of rank {rank} come from where rank {self._registration.data_rank} was registered"

    def _group_failure(self, event: Stored, group: int) -> str:
        size, expected = event.block_size_tokens, self._rules.block_size_tokens
        if group in self._registration.unmatched_groups:
            return ""
        if self._known_groups and group not in self._known_groups:
            return f"kv_groups: the engine publishes group {group}, registered are {sorted(self._known_groups)}"
        if size is not None and size != expected:
            if group == 0 or group in self._known_groups:
                return f"block size: the engine publishes blocks of {size} tokens, registered are {expected}"
            remark = f"kv_group {group} has blocks of {size} tokens and is not matched"
            if remark not in self.remarks:
                self.remarks.append(remark)
            return ""
        if group not in self.groups and len(self.groups) >= GROUP_COUNT_MAX:
            return f"kv_groups: more than {GROUP_COUNT_MAX} were published"
        if group not in self.groups:
            window = event.window_tokens if event.group_kind.startswith(_WINDOW_KINDS) else 0
            self.groups[group] = GroupRule(group, 1, max(1, -(-(window - 1) // expected)) if window else 0)
        return ""

    def _hash_failure(self, event: Stored) -> str:
        self._root_count += 1
        wanted = bool(self._expected)
        if not wanted and self._root_count > CHECKED_FIRST and self._root_count % CHECKED_EVERY:
            return ""
        tokens = event.token_ids()
        extras = published_extras(event, self._rules)
        if not tokens or extras is None or len(tokens) < self._rules.block_size_tokens:
            return ""
        if wanted and tuple(tokens[: len(self._expected)]) == self._expected[: len(tokens)]:
            self._expected, self.probe_seen = (), True
        first = tokens[: self._rules.block_size_tokens + (self._rules.strategy == "sglang_bigram")]
        try:
            mine = hints(self._rules, block_hashes(self._rules, first, extras))
        except (UsageError, ConfigError) as error:
            return f"hash: {error}"
        if not mine:
            return ""
        if mine[0] != event.hashes[0]:
            return _explained(self._rules, first, extras, published=event.hashes[0])
        self.proven = True
        return ""


def published_extras(event: Stored, rules: HashRules) -> Extras | None:
    """What the first block's hash covers besides its tokens; None where the event does not tell all of it."""
    if event.lora_name and rules.extra_keys == "tagged":
        return None  # the path of the adapter is hashed and not published
    if rules.strategy != "vllm" and event.lora_name:
        return None
    keys = event.published_keys()
    first: list[Any] = list((keys or [None])[0] or ())
    if event.lora_name and event.lora_name in first:
        first.remove(event.lora_name)
    media: list[Media] = []
    salt, digests = "", []
    for key in first:
        if isinstance(key, list | tuple) and len(key) == 2:
            # Where it ends is not published: far beyond the block has the same hash, unless another one follows it.
            media.append(Media(str(key[0]), int(key[1]), 1 if len(media) + 1 < len(first) else 2**31))
        elif isinstance(key, str):
            salt = key
        elif isinstance(key, bytes):
            digests.append(key)
        else:
            return None
    if len(media) > 1 or (media and (salt or digests)):
        return None
    return Extras(lora_name=event.lora_name, cache_salt=salt, media=tuple(media), embedding_digests=tuple(digests))


def _explained(rules: HashRules, tokens: Sequence[int], extras: Extras, *, published: int) -> str:
    """What the engine does instead, where a guess fits."""
    for algorithm in ALGORITHMS if rules.strategy == "vllm" else ():
        for seed in (rules.seed, *_COMMON_SEEDS):
            guess = HashRules(algorithm=algorithm, seed=seed, block_size_tokens=rules.block_size_tokens)
            try:
                fits = seed is not None and hints(guess, block_hashes(guess, tokens, extras))[0] == published
            except ConfigError:  # xxhash is not installed here
                continue
            if fits:
                found = f"its blocks fit {algorithm} with seed {seed!r}"
                return f"hash: {found}, registered are {rules.algorithm} with seed {rules.seed!r}"
    return (
        f"hash: the engine publishes {published:016x} for a prompt for which {rules.strategy} {rules.algorithm} with "
        f"seed {rules.seed!r} gives another; compare algorithm, PYTHONHASHSEED and release"
    )
