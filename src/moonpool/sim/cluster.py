"""What is simulated: how many engines of which kind, their caches and links, and what happens to them on the way."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from moonpool.errors import UsageError
from moonpool.sim.caches import BlockCache
from moonpool.sim.coupled import Mixing
from moonpool.sim.decode import BatchLimits

_SHAPE = re.compile(r"(?:(\d+)P)?(?:(\d+)D)?(?:(\d+)C)?", re.IGNORECASE)


@dataclass(frozen=True)
class Shape:
    """How many engines: prefill, decode, and coupled ones (that do both)."""

    prefill: int = 0
    decode: int = 0
    coupled: int = 0

    @classmethod
    def parse(cls, text: str) -> Shape:
        """`10P6D`, `8P` (prefill alone: every output counts as one token), `16C` (coupled engines, as without P/D).

        Raises:
            UsageError: it says something else, or names nobody who prefills, or mixes coupled engines with others.
        """
        found = _SHAPE.fullmatch(text)
        if not text or found is None:
            raise UsageError(f"workers {text!r}: say how many of each, as in 10P6D, 8P or 16C")
        shape = cls(*(int(count or 0) for count in found.groups()))
        if not shape.prefill + shape.coupled:
            raise UsageError(f"workers {text!r}: nobody prefills")
        if shape.coupled and shape.prefill + shape.decode:
            raise UsageError(f"workers {text!r}: coupled engines cannot be mixed with others")
        return shape

    def __str__(self) -> str:
        parts = ((self.prefill, "P"), (self.decode, "D"), (self.coupled, "C"))
        return "".join(f"{count}{letter}" for count, letter in parts if count)


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One node. The defaults are the papers': 8 x A800 and 4 x 200 Gbps, LLaMA3-70B (320 KiB of KV a token)."""

    kv_bytes_per_token: int = 327_680
    network_bytes_per_second: float = 87e9  # measured by the authors over 4 x 200 Gbps (FAST'25 Fig 12)
    disk_bytes_per_second: float = 6e9
    layer_count: int = 80
    limits: BatchLimits = field(default_factory=BatchLimits)
    mixing: Mixing = Mixing.PREFILL_FIRST
    chunk_tokens: int = 2048


def no_cache() -> None:
    """For workers without a tier."""


@dataclass(frozen=True, kw_only=True)
class Caches:
    """What each worker that prefills has: one cache of DRAM and one of disk, made anew for each."""

    dram: Callable[[], BlockCache]
    disk: Callable[[], BlockCache | None] = no_cache
    block_tokens: int = 512


@dataclass(frozen=True)
class Die:
    """The worker stops at once: cache and work are lost; its requests are routed again."""

    at_seconds: float
    worker_id: int


@dataclass(frozen=True)
class Drain:
    """The worker gets nothing new, finishes what it has, and then leaves; until then others may fetch from it."""

    at_seconds: float
    worker_id: int


@dataclass(frozen=True)
class Join:
    """A worker of that kind (`P`, `D` or `C`) comes up, with cold caches."""

    at_seconds: float
    kind: str


FleetEvent = Die | Drain | Join


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Everything about the simulated machines that is not a decision."""

    shape: Shape
    caches: Caches
    hardware: Hardware = field(default_factory=Hardware)
    events: tuple[FleetEvent, ...] = ()
