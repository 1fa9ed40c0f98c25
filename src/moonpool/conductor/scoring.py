"""Which of the candidate workers should get a prompt: predicted hit by tier, time to the first token, and why. Pure.

The predictions are those of `moonpool.scheduling.estimate`; the router and the simulator use the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moonpool.scheduling.estimate import Estimator
from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.routing import Grounds, Hit, Placement, Request
from moonpool.scheduling.workers import Role


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker has to do already, as the caller sees it. All zero: not known, or idle."""

    queue_ms: float = 0.0  # predicted wait; 0: from the tokens below
    queued_tokens: int = 0  # of prompts given to it and not computed yet


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One worker with what it holds of the prompt, in tokens."""

    name: str
    data_rank: int = 0
    engine_tokens: int = 0
    dram_tokens: int = 0  # beyond the engine's, in memory of its host
    disk_tokens: int = 0  # beyond those, on its disk
    source: str = ""  # another host that holds more
    source_tokens: int = 0
    load: Load = Load()
    reason: str = ""  # why it holds nothing

    @property
    def held_tokens(self) -> int:
        """Without any other host."""
        return self.engine_tokens + self.dram_tokens + self.disk_tokens


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate's prediction. ``score`` is the best candidate's TTFT divided by this one's: 1 is the best."""

    instance_id: str
    dp_rank: int
    score: float
    ttft_ms: float
    queue_ms: float
    load_ms: float
    prefill_ms: float
    cached_tokens: int
    hit: dict[str, int]
    grounds: str
    reason: str


def rank(candidates: Sequence[Candidate], *, token_count: int, estimator: Estimator, turn: int = 0) -> list[Scored]:
    """The best first. Candidates that are equal take turns: ``turn`` is a number that grows with each question."""
    placements = _placements(candidates, token_count=token_count, estimator=estimator)
    if not placements:
        return []
    best_seconds = min(placed.ttft_seconds for placed in placements)
    count = len(candidates)

    def order_of(index: int) -> tuple[float, int, int]:
        """Of equal times the one whose prefix needs no load; of equal ones by turns."""
        return round(placements[index].ttft_seconds, 6), -candidates[index].engine_tokens, (index - turn) % count

    order = sorted(range(count), key=order_of)
    return [_scored(candidates[index], placements[index], best_seconds) for index in order]


def _placements(candidates: Sequence[Candidate], *, token_count: int, estimator: Estimator) -> list[Placement]:
    fleet = Fleet()
    for candidate in candidates:
        worker = fleet.add(candidate.name, Role.BOTH)
        queue_seconds = candidate.load.queue_ms / 1000 or estimator.costs.prefill.seconds(
            candidate.load.queued_tokens, 0
        )
        fleet.prefill_queued(
            worker.worker_id, start_seconds=0.0, seconds=queue_seconds, tokens=candidate.load.queued_tokens
        )
    sources = {name: fleet.add(name, Role.STORE) for name in {candidate.source for candidate in candidates} if name}
    request = Request(tokens=max(1, token_count), arrival_seconds=0.0)
    placements = []
    for worker, candidate in zip(fleet.workers, candidates, strict=False):
        own = Hit(worker.worker_id, candidate.held_tokens, candidate.dram_tokens, candidate.disk_tokens)
        if candidate.source:
            best = Hit(sources[candidate.source].worker_id, candidate.source_tokens, candidate.source_tokens)
            placements.append(estimator.faster(request, fleet, 0.0, worker=worker, held=(own, best)))
        else:
            placements.append(estimator.local(request, worker, own, now_seconds=0.0))
    return placements


def _scored(candidate: Candidate, placed: Placement, best_seconds: float) -> Scored:
    engine = min(candidate.engine_tokens, placed.cached_tokens)
    dram = min(candidate.dram_tokens, placed.cached_tokens - engine)
    disk = min(candidate.disk_tokens, placed.cached_tokens - engine - dram)
    hit = {"engine": engine, "dram": dram, "disk": disk, "remote": placed.cached_tokens - engine - dram - disk}
    return Scored(
        instance_id=candidate.name,
        dp_rank=candidate.data_rank,
        score=round(best_seconds / placed.ttft_seconds, 6) if placed.ttft_seconds else 1.0,
        ttft_ms=round(1000 * placed.ttft_seconds, 3),
        queue_ms=round(1000 * placed.queue_seconds, 3),
        load_ms=round(1000 * placed.load_seconds, 3),
        prefill_ms=round(1000 * placed.prefill_seconds, 3),
        cached_tokens=placed.cached_tokens,
        hit=hit,
        grounds=placed.grounds.value,
        reason=_reason(candidate, placed, hit),
    )


def _reason(candidate: Candidate, placed: Placement, hit: dict[str, int]) -> str:
    if not placed.cached_tokens:
        return candidate.reason or "what it holds is not worth loading"
    parts = [f"{tokens} tokens in {place}" for place, tokens in hit.items() if tokens]
    text = ", ".join(parts)
    if placed.grounds is Grounds.FETCHED_PREFIX:
        text += f"; fetched from {candidate.source}"
    return text
