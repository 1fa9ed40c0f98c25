"""What a conductor says of its workers, as findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from moonpool.pool.finding import Finding, figure, problem, remark, text_at


def conductor_findings(status: Mapping[str, Any]) -> Iterator[Finding]:
    """Workers whose cache does not count, engines that did not register, an index that is full."""
    for worker in status.get("workers") or ():
        if not isinstance(worker, Mapping):
            continue
        rank = worker.get("dp_rank") or 0
        name = f"worker {text_at(worker, 'instance_id')}" + (f"/{rank}" if rank else "")
        if text_at(worker, "state") == "degraded":
            yield problem(
                "worker_degraded",
                name,
                what=f"the conductor does not trust what it holds: {text_at(worker, 'reason')}",
                advice="register it with the values that the engine has, or start the engine with those registered",
            )
        for said in worker.get("advice") or ():
            yield remark("worker_advice", name, what=str(said), advice="see the guide of the conductor")
    refused = status.get("not_announced")
    for engine, why in refused.items() if isinstance(refused, Mapping) else ():
        yield remark(
            "not_announced",
            f"engine {engine}",
            what=f"the conductor does not listen to it: {why}",
            advice="intended? else change what it names, or register it by hand",
        )
    if figure(status, "index.refused_full_total"):
        yield problem(
            "conductor_full",
            "conductor",
            what="the index is full and refuses new blocks",
            advice="raise conductor.entry_count_max",
        )
