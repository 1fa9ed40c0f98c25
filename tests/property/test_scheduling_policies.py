"""What every routing policy must keep, whatever the fleet looks like (issue 5, acceptance 6)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonpool.scheduling.costs import mooncake_costs
from moonpool.scheduling.decode import LeastTbt
from moonpool.scheduling.estimate import Estimator
from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.policy import CostPolicy, CostPolicySettings
from moonpool.scheduling.routing import DecodePlacement, Hit, KnownPrefixes, Placement, Request
from moonpool.scheduling.workers import Limits, Role, WorkerState
from moonpool.sim.policies import NAMES, make

NOW = 100.0
COSTS = mooncake_costs()
# These draw among equals.
DRAWN = {
    "random",
    "least_loaded",
    "local_prefix",
    "longest_prefix",
    "dynamo",
    "dynamo_lmetric",
    "llm_d",
    "sglang",
    "aibrix",
}


@dataclass(frozen=True)
class Drawn:
    """One worker as drawn: its state, role, load and the blocks of the prompt that it holds."""

    role: Role
    state: WorkerState
    queue_seconds: float
    queue_count: int
    kv_tokens: int
    blocks: int
    disk_blocks: int


workers = st.builds(
    Drawn,
    role=st.sampled_from([Role.PREFILL, Role.PREFILL, Role.BOTH, Role.DECODE, Role.STORE]),
    state=st.sampled_from([WorkerState.READY, WorkerState.READY, *WorkerState]),
    queue_seconds=st.sampled_from([0.0, 0.0, 0.5, 3.0, 11.0, 500.0]),
    queue_count=st.integers(0, 6),
    kv_tokens=st.integers(0, 90_000),
    blocks=st.integers(0, 8),
    disk_blocks=st.integers(0, 8),
)
limits = st.builds(
    Limits,
    queue_seconds=st.sampled_from([0.0, 1.0, 10.0, float("inf")]),
    queue_count=st.integers(1, 8),
    decode_count=st.integers(1, 8),
    kv_fraction=st.floats(0.2, 1.0),
)


def built(drawn: list[Drawn], limit: Limits) -> tuple[Fleet, Request]:
    fleet, hits = Fleet(limit, decode_load=COSTS.decode.tbt_seconds), {}
    for index, one in enumerate(drawn):
        fleet.add(f"w{index}", one.role, kv_capacity_tokens=100_000)
        for turn in range(one.queue_count):
            seconds = one.queue_seconds if turn == 0 else 0.0
            fleet.prefill_queued(index, start_seconds=NOW, seconds=seconds, tokens=512)
        fleet.decode_changed(index, request_count=one.queue_count, kv_tokens=one.kv_tokens)
        if one.blocks and one.state is not WorkerState.DEAD:
            hits[index] = Hit(index, one.blocks * 512, disk_tokens=min(one.blocks, one.disk_blocks) * 512)
        fleet.set_state(index, one.state)
    return fleet, Request(9 * 512, NOW, KnownPrefixes(hits), root=1, output_tokens=100)


@pytest.mark.parametrize("name", NAMES)
@given(drawn=st.lists(workers, max_size=12), limit=limits, seed=st.integers(0, 1000))
def test_a_policy_picks_only_a_worker_that_may_be_given_a_prompt(
    name: str, drawn: list[Drawn], limit: Limits, seed: int
) -> None:
    fleet, request = built(drawn, limit)
    answer = make(name, COSTS, seed=seed).place(request, fleet, NOW)
    may = {worker.worker_id for worker in fleet.workers if worker.takes_prefill(NOW, limit)}
    if not isinstance(answer, Placement):
        assert not may
        assert answer.retry_after_seconds > 0.0
        return
    assert answer.worker_id in may
    assert 0 <= answer.cached_tokens < request.tokens
    assert answer.ttft_seconds >= answer.prefill_seconds > 0.0
    if answer.source_id is not None:
        assert answer.source_id != answer.worker_id
        assert fleet.workers[answer.source_id].serves_fetches
        assert 0 < answer.fetched_tokens <= answer.cached_tokens + 1


@given(drawn=st.lists(workers, max_size=12), limit=limits)
def test_decoding_goes_only_where_there_is_room(drawn: list[Drawn], limit: Limits) -> None:
    fleet, request = built(drawn, limit)
    answer = LeastTbt(COSTS.decode).place(request, fleet, NOW)
    kv_tokens = request.tokens + request.output_tokens
    may = {worker.worker_id for worker in fleet.workers if worker.takes_decode(kv_tokens, limit)}
    if isinstance(answer, DecodePlacement):
        assert answer.worker_id in may
    else:
        assert not may


@pytest.mark.parametrize("held_blocks", [0, 4])
@pytest.mark.parametrize("worker_count", [2, 5, 24])
@pytest.mark.parametrize("name", NAMES)
def test_equal_scores_are_split_evenly(name: str, worker_count: int, held_blocks: int) -> None:
    """Nothing tells the workers apart, and nothing changes: each gets its share of forty for each worker."""
    fleet = Fleet()
    for index in range(worker_count):
        fleet.add(f"w{index}", Role.PREFILL)
    hits = {index: Hit(index, held_blocks * 512) for index in range(worker_count) if held_blocks}
    policy, counts = make(name, COSTS, seed=5), Counter[int]()
    for _ in range(40 * worker_count):
        answer = policy.place(Request(8 * 512, NOW, KnownPrefixes(hits)), fleet, NOW)
        assert isinstance(answer, Placement)
        counts[answer.worker_id] += 1
    # Those that draw among equals may be five deviations off; the others not by one.
    tolerance = 5.0 * 40.0**0.5 if name in DRAWN else 1.0
    for index in range(worker_count):
        assert abs(counts[index] - 40) <= tolerance, (name, counts)


@given(
    drawn=st.lists(workers, min_size=1, max_size=40),
    limit=limits,
)
def test_our_policy_looks_at_few_workers_and_finds_the_best_of_all(drawn: list[Drawn], limit: Limits) -> None:
    """Without regard for others, the least TTFT of a scan over all, each with the better of fetch and compute."""
    fleet, request = built(drawn, limit)
    holders = request.prefixes.longest(len(drawn))
    selfish = CostPolicySettings(holder_count=max(1, len(holders)), spare_count=2, copy_price=0.0, regard=0.0)
    answer = CostPolicy(COSTS, selfish).place(request, fleet, NOW)
    estimator, best = Estimator(COSTS), holders[0] if holders else Hit(0, 0)
    scanned = [
        estimator.faster(request, fleet, NOW, worker=worker, held=(request.prefixes.of(worker.worker_id), best))
        for worker in fleet.workers
        if worker.takes_prefill(NOW, limit)
    ]
    if not scanned:
        assert not isinstance(answer, Placement)
        return
    assert isinstance(answer, Placement)
    assert answer.ttft_seconds == pytest.approx(min(placed.ttft_seconds for placed in scanned))


@given(drawn=st.lists(workers, min_size=1, max_size=20), limit=limits, count=st.integers(1, 6), turn=st.integers(0, 99))
def test_the_least_loaded_are_the_least_loaded(drawn: list[Drawn], limit: Limits, count: int, turn: int) -> None:
    fleet, _ = built(drawn, limit)
    given_back = fleet.least_loaded(NOW, count=count, turn=turn)
    may = sorted(worker.queue_seconds(NOW) for worker in fleet.workers if worker.takes_prefill(NOW, limit))
    assert len({worker.worker_id for worker in given_back}) == len(given_back)
    assert all(worker.takes_prefill(NOW, limit) for worker in given_back)
    assert sorted(worker.queue_seconds(NOW) for worker in given_back) == pytest.approx(may[:count])
