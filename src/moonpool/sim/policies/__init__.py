"""How others route, for comparison: written from their published cost functions, not from their code.

All see what ours see (true caches, predicted queues), which is kinder than what some of them know in service.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from moonpool.errors import UsageError
from moonpool.scheduling.algorithm1 import Algorithm1
from moonpool.scheduling.costs import Costs
from moonpool.scheduling.policy import CostPolicy
from moonpool.scheduling.routing import PrefillPolicy
from moonpool.sim.policies.aibrix import AIBrix
from moonpool.sim.policies.dynamo import Dynamo
from moonpool.sim.policies.llm_d import LLMD
from moonpool.sim.policies.sglang import SGLang
from moonpool.sim.policies.simple import LeastLoaded, LocalPrefix, LongestPrefix, RandomChoice, RoundRobin

_MAKERS: dict[str, Callable[[Costs, Random], PrefillPolicy]] = {
    "moonpool": lambda costs, random: CostPolicy(costs),
    "mooncake": lambda costs, random: Algorithm1(costs),
    "random": RandomChoice,
    "round_robin": lambda costs, random: RoundRobin(costs),
    "least_loaded": LeastLoaded,
    "local_prefix": LocalPrefix,
    "longest_prefix": LongestPrefix,
    "dynamo": Dynamo,
    "dynamo_lmetric": lambda costs, random: Dynamo(costs, random, product=True),
    "llm_d": LLMD,
    "sglang": SGLang,
    "aibrix": AIBrix,
}

NAMES: tuple[str, ...] = tuple(_MAKERS)


def make(name: str, costs: Costs, *, seed: int = 0) -> PrefillPolicy:
    """A fresh policy by its name (one of ``NAMES``); ties and draws come from ``seed``."""
    maker = _MAKERS.get(name)
    if maker is None:
        raise UsageError(f"there is no policy {name!r}: give one of {', '.join(NAMES)}")
    return maker(costs, Random(seed))
