"""Workloads made up from a seed, for where there is no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from moonpool.errors import UsageError
from moonpool.sim.trace import Request
from moonpool.sim.workloads.agentic import Agentic
from moonpool.sim.workloads.chat import MultiTurn, Poisson
from moonpool.sim.workloads.context import Spread
from moonpool.sim.workloads.toolagent import ToolAgentStandIn

__all__ = ["WORKLOADS", "Agentic", "MultiTurn", "Poisson", "Spread", "ToolAgentStandIn", "Workload", "make_workload"]


class Workload(Protocol):
    """What makes requests."""

    def requests(self, seed: int = 0) -> list[Request]:
        """In order of arrival; the same for the same seed."""


WORKLOADS: dict[str, Callable[[int], Workload]] = {
    "poisson": lambda request_count: Poisson(request_count=request_count),
    "multi-turn": lambda request_count: MultiTurn(request_count=request_count),
    "agentic": lambda request_count: Agentic(request_count=request_count),
    "toolagent-standin": lambda request_count: ToolAgentStandIn(request_count=request_count),
}


def make_workload(name: str, request_count: int, *, seed: int = 0) -> list[Request]:
    """So many requests of that kind, with its defaults for all else. Raises UsageError for an unknown name."""
    if name not in WORKLOADS:
        raise UsageError(f"no workload {name!r}: one of {', '.join(WORKLOADS)} expected")
    if request_count < 1:
        raise UsageError(f"a workload of {request_count} requests: at least 1 expected")
    return WORKLOADS[name](request_count).requests(seed)
