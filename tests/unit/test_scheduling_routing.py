"""Algorithm 1 and its guard cases, fetch or recompute, and our own policy on small fleets."""

from __future__ import annotations

import pytest

from moonpool.scheduling.algorithm1 import Algorithm1, fetch_is_worth_it
from moonpool.scheduling.costs import Costs
from moonpool.scheduling.decode_cost import FittedDecode
from moonpool.scheduling.estimate import Estimator
from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.policy import CostPolicy, CostPolicySettings
from moonpool.scheduling.prefill_cost import FittedPrefill
from moonpool.scheduling.routing import Grounds, Hit, KnownPrefixes, Placement, Refusal, Rejection, Request
from moonpool.scheduling.transfer_cost import SharedLink
from moonpool.scheduling.workers import Limits, Role, WorkerState

# One second per thousand tokens computed; a transfer moves ten thousand tokens a second, the disk five thousand.
COSTS = Costs(
    FittedPrefill(1e-3, 0.0, 0.0, 0.0),
    FittedDecode(),
    SharedLink(kv_token_bytes=1.0, bandwidth_bytes_per_second=1e4, disk_bytes_per_second=5e3),
)


def fleet_of(*queue_seconds: float, limits: Limits | None = None) -> Fleet:
    fleet = Fleet(limits)
    for index, seconds in enumerate(queue_seconds):
        fleet.add(f"p{index}", Role.PREFILL)
        if seconds:
            fleet.prefill_queued(index, start_seconds=0.0, seconds=seconds, tokens=int(seconds * 1000))
    return fleet


def asked(tokens: int, *hits: Hit) -> Request:
    return Request(tokens, 0.0, KnownPrefixes({hit.worker_id: hit for hit in hits}))


def placed(answer: Placement | Rejection) -> Placement:
    assert isinstance(answer, Placement)
    return answer


@pytest.mark.parametrize(
    ("own", "best", "threshold", "fetch"),
    [
        (0, 0, 1.0, False),
        (0, 512, 1.0, True),
        (0, 512, 1e9, True),
        (512, 512, 1.0, False),
        (512, 1024, 1.0, True),
        (512, 1024, 2.0, False),
        (512, 1025, 2.0, True),
        (1024, 512, 0.1, False),
    ],
)
def test_a_prefix_is_fetched_only_if_it_is_so_much_longer(own: int, best: int, threshold: float, fetch: bool) -> None:
    assert fetch_is_worth_it(own, best, threshold) is fetch


def test_algorithm1_with_nothing_cached_anywhere_takes_the_shortest_queue() -> None:
    answer = placed(Algorithm1(COSTS).place(asked(4000), fleet_of(3.0, 1.0, 2.0), 0.0))
    assert (answer.worker_id, answer.source_id, answer.cached_tokens) == (1, None, 0)
    assert answer.ttft_seconds == pytest.approx(5.0)


def test_algorithm1_fetches_to_the_idle_worker_what_the_busy_one_holds() -> None:
    answer = placed(Algorithm1(COSTS).place(asked(4000, Hit(0, 3000)), fleet_of(9.0, 0.0), 0.0))
    assert (answer.worker_id, answer.source_id, answer.fetched_tokens) == (1, 0, 3000)
    assert answer.ttft_seconds == pytest.approx(0.3 + 1.0)
    assert answer.grounds is Grounds.FETCHED_PREFIX


def test_algorithm1_never_fetches_from_itself() -> None:
    answer = placed(Algorithm1(COSTS).place(asked(4000, Hit(0, 3000)), fleet_of(0.0), 0.0))
    assert (answer.worker_id, answer.source_id, answer.cached_tokens) == (0, None, 3000)


def test_algorithm1_computes_what_would_miss_the_deadline_of_a_fetch() -> None:
    policy = Algorithm1(COSTS, fetch_deadline_seconds=0.1)
    answer = placed(policy.place(asked(4000, Hit(0, 3000)), fleet_of(9.0, 0.0), 0.0))
    assert (answer.worker_id, answer.source_id, answer.cached_tokens) == (1, None, 0)


def test_a_whole_prompt_in_the_cache_still_computes_its_last_token() -> None:
    answer = placed(CostPolicy(COSTS).place(asked(4096, Hit(0, 4096)), fleet_of(0.0), 0.0))
    assert answer.cached_tokens == 4095
    assert answer.prefill_seconds > 0.0


def test_a_prefix_too_short_to_be_worth_its_load_is_not_used() -> None:
    fixed = Costs(FittedPrefill(1e-3, 0.0, 0.6, 0.0), COSTS.decode, COSTS.transfer)
    for policy in (CostPolicy(fixed), Algorithm1(fixed)):
        held = placed(policy.place(asked(4000, Hit(0, 512)), fleet_of(0.0, 9.0), 0.0))
        assert (held.worker_id, held.cached_tokens, held.prefill_seconds) == (0, 0, pytest.approx(4.0))
        remote = placed(policy.place(asked(4000, Hit(0, 512)), fleet_of(9.0, 0.0), 0.0))
        assert (remote.worker_id, remote.cached_tokens, remote.source_id) == (1, 0, None)


def test_a_fetch_is_hidden_by_the_queue() -> None:
    fleet = fleet_of(9.0, 2.0)
    answer = Estimator(COSTS).fetched(asked(4000), fleet, 0.0, worker=fleet.workers[1], held=(Hit(1, 0), Hit(0, 3000)))
    assert answer is not None
    assert answer.load_seconds == pytest.approx(0.3)
    assert answer.ttft_seconds == pytest.approx(2.0 + 1.0)


def test_recomputing_wins_where_it_is_faster_than_fetching() -> None:
    slow = Costs(COSTS.prefill, COSTS.decode, SharedLink(1.0, 500.0))
    fleet = fleet_of(20.0, 0.0)
    for policy in (CostPolicy(slow), Algorithm1(slow, fetch_deadline_seconds=1.0)):
        answer = placed(policy.place(asked(4000, Hit(0, 3000)), fleet, 0.0))
        assert (answer.worker_id, answer.source_id) == (1, None)


def test_a_prefix_on_disk_is_loaded_only_if_that_is_faster() -> None:
    estimator, fleet = Estimator(COSTS), fleet_of(0.0)
    hit = Hit(0, 3000, disk_tokens=2000)
    loaded = estimator.local(asked(4000), fleet.workers[0], hit, now_seconds=0.0)
    assert (loaded.cached_tokens, loaded.load_seconds) == (3000, pytest.approx(0.4))
    crawling = Estimator(Costs(COSTS.prefill, COSTS.decode, SharedLink(1.0, 1e4, disk_bytes_per_second=100.0)))
    computed = crawling.local(asked(4000), fleet.workers[0], hit, now_seconds=0.0)
    assert (computed.cached_tokens, computed.load_seconds) == (1000, 0.0)


@pytest.mark.parametrize("state", [WorkerState.DEAD, WorkerState.PENDING])
def test_nothing_is_fetched_from_a_worker_that_cannot_serve(state: WorkerState) -> None:
    fleet = fleet_of(0.0, 0.0)
    fleet.set_state(0, state)
    for policy in (CostPolicy(COSTS), Algorithm1(COSTS)):
        answer = placed(policy.place(asked(4000, Hit(0, 3000)), fleet, 0.0))
        assert (answer.worker_id, answer.source_id) == (1, None)


def test_a_draining_worker_gets_nothing_but_still_gives() -> None:
    fleet = fleet_of(0.0, 0.0)
    fleet.set_state(0, WorkerState.DRAINING)
    answer = placed(CostPolicy(COSTS).place(asked(4000, Hit(0, 3000)), fleet, 0.0))
    assert (answer.worker_id, answer.source_id) == (1, 0)


def test_a_slow_engine_gets_fewer_prompts() -> None:
    fleet = Fleet()
    fleet.add("fast", Role.PREFILL)
    fleet.add("slow", Role.PREFILL, slowdown=3.0)
    policy, counts = CostPolicy(COSTS), [0, 0]
    for _ in range(40):
        answer = placed(policy.place(asked(1000), fleet, 0.0))
        counts[answer.worker_id] += 1
        fleet.prefill_queued(answer.worker_id, start_seconds=0.0, seconds=answer.prefill_seconds, tokens=1000)
    assert counts[0] == pytest.approx(30, abs=2)


def test_a_refusal_says_when_to_come_back() -> None:
    fleet = fleet_of(9.0, 7.0, limits=Limits(queue_seconds=2.0))
    for policy in (CostPolicy(COSTS), Algorithm1(COSTS)):
        answer = policy.place(asked(1000), fleet, 0.0)
        assert answer == Rejection(Refusal.OVERLOADED, pytest.approx(5.0))
        empty = policy.place(asked(1000), Fleet(), 0.0)
        assert isinstance(empty, Rejection)
        assert empty.refusal is Refusal.NO_WORKER


def test_a_long_prompt_leaves_the_shortest_queue_to_those_who_follow() -> None:
    """One second longer for itself, several shorter for the short ones behind it; in the tail it steps back no more."""
    settings = CostPolicySettings(regard=0.5)
    policy = CostPolicy(COSTS, settings)
    for _ in range(50):  # what is typical: one second of prefill, a tail far away
        policy.place(asked(1000), fleet_of(0.0, 30.0), 0.0)
        policy.place(asked(1000), fleet_of(60.0, 60.0), 0.0)
    fleet = fleet_of(1.0, 2.0, 50.0)
    assert placed(policy.place(asked(8000), fleet, 0.0)).worker_id == 1
    assert placed(policy.place(asked(500), fleet, 0.0)).worker_id == 0
    assert placed(policy.place(asked(70_000), fleet, 0.0)).worker_id == 0
