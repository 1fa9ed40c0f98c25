"""The fleet: what its events do, and that a dead worker's load goes with it."""

from __future__ import annotations

import pytest

from moonpool.errors import UsageError
from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.workers import Limits, Role, WorkerState


def fleet_of(count: int, limits: Limits | None = None) -> Fleet:
    fleet = Fleet(limits)
    for index in range(count):
        fleet.add(f"w{index}", Role.BOTH, kv_capacity_tokens=10_000)
    return fleet


def test_a_queue_begins_where_the_last_prompt_ends_and_not_before_its_fetch() -> None:
    fleet = fleet_of(1)
    assert fleet.prefill_queued(0, start_seconds=10.0, seconds=2.0, tokens=5) == 12.0
    assert fleet.prefill_queued(0, start_seconds=11.0, seconds=3.0, tokens=7) == 15.0
    assert fleet.prefill_queued(0, start_seconds=20.0, seconds=1.0, tokens=1) == 21.0
    worker = fleet.workers[0]
    assert (worker.queue_count, worker.queue_tokens, worker.queue_seconds(16.0)) == (3, 13, 5.0)
    fleet.prefill_finished(0, tokens=5, busy_until_seconds=19.0)
    assert (worker.queue_count, worker.queue_tokens, worker.queue_seconds(16.0)) == (2, 8, 3.0)


def test_a_prompt_that_was_never_given_cannot_finish() -> None:
    with pytest.raises(UsageError, match="w0"):
        fleet_of(1).prefill_finished(0, tokens=1)


def test_the_dead_lose_their_load_and_come_back_without_it() -> None:
    fleet = fleet_of(2)
    fleet.prefill_queued(0, start_seconds=0.0, seconds=9.0, tokens=100)
    fleet.decode_changed(0, request_count=3, kv_tokens=500)
    fleet.transfer_started(0, 1)
    fleet.set_state(0, WorkerState.DEAD)
    assert [worker.worker_id for worker in fleet.prefill_workers(0.0)] == [1]
    assert (fleet.decode_count, fleet.kv_tokens, fleet.prefill_count, fleet.decode_worker_count) == (0, 0, 1, 1)
    fleet.set_state(0, WorkerState.READY)
    assert fleet.workers[0].queue_seconds(0.0) == 0.0
    fleet.transfer_finished(0, 1)
    assert (fleet.workers[0].sending_count, fleet.workers[1].receiving_count) == (0, 0)


def test_a_store_gets_no_work_but_serves_fetches() -> None:
    fleet = Fleet()
    store = fleet.add("store", Role.STORE)
    assert list(fleet.prefill_workers(0.0)) == []
    assert list(fleet.decode_workers(1)) == []
    assert store.serves_fetches


def test_a_decode_worker_without_room_is_passed_over() -> None:
    fleet = fleet_of(2, Limits(kv_fraction=0.5))
    fleet.decode_changed(0, request_count=1, kv_tokens=100)
    fleet.decode_changed(1, request_count=1, kv_tokens=4000)
    assert [worker.worker_id for worker in fleet.decode_workers(900)] == [0, 1]
    assert [worker.worker_id for worker in fleet.decode_workers(1100)] == [0]
    assert [worker.worker_id for worker in fleet.decode_workers(5000)] == []


def test_the_mean_and_the_shortest_wait() -> None:
    fleet = fleet_of(2)
    fleet.prefill_queued(0, start_seconds=0.0, seconds=9.0, tokens=100)
    assert fleet.mean_queue_seconds(1.0) == 4.0
    assert fleet.shortest_queue_seconds(1.0) == 0.0
    assert Fleet().shortest_queue_seconds(0.0) is None
    assert Fleet().mean_queue_seconds(0.0) == 0.0
