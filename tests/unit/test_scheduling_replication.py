"""Hot-spot replication: when a copy is made, and its bounds."""

from __future__ import annotations

import pytest

from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.replication import HotSpots, Replication, ReplicationSettings
from moonpool.scheduling.routing import Hit, KnownPrefixes
from moonpool.scheduling.workers import Role, WorkerState

SETTINGS = ReplicationSettings(half_life_seconds=60.0, busy_share=0.5, copies_max=3, interval_seconds=5.0)


def fleet_of(count: int) -> Fleet:
    fleet = Fleet()
    for index in range(count):
        fleet.add(f"p{index}", Role.PREFILL)
    return fleet


def held_by(*worker_ids: int, tokens: int = 4096) -> KnownPrefixes:
    return KnownPrefixes({worker_id: Hit(worker_id, tokens) for worker_id in worker_ids})


def heated(settings: ReplicationSettings = SETTINGS, *, engines: float = 2.0) -> HotSpots:
    """A prefix that asks for so many engines, all the time, over many half-lives; it is now 600 s."""
    spots = HotSpots(settings)
    for second in range(601):
        spots.requested(1, prefill_seconds=engines, now_seconds=float(second))
    return spots


def test_demand_is_measured_in_engines() -> None:
    assert heated().demand(1, 600.0) == pytest.approx(2.0, rel=0.02)
    assert heated().demand(1, 660.0) == pytest.approx(1.0, rel=0.02)
    assert HotSpots().demand(7, 0.0) == 0.0


def test_a_hot_prefix_is_copied_to_the_least_loaded_worker_without_it() -> None:
    spots, fleet = heated(), fleet_of(4)
    fleet.prefill_queued(1, start_seconds=600.0, seconds=9.0, tokens=1)
    assert spots.plan(1, held_by(0), fleet, now_seconds=600.0) == Replication(1, 0, 2, 4096)
    assert spots.replication_count == 1


def test_copies_come_one_at_a_time_and_end_at_the_bound() -> None:
    spots, fleet = heated(), fleet_of(8)
    assert spots.plan(1, held_by(0), fleet, now_seconds=600.0) is not None
    assert spots.plan(1, held_by(0, 1), fleet, now_seconds=602.0) is None
    assert spots.plan(1, held_by(0, 1), fleet, now_seconds=605.0) is not None
    assert spots.plan(1, held_by(0, 1, 2), fleet, now_seconds=610.0) is None


@pytest.mark.parametrize("engines", [0.0, 0.4])
def test_what_its_holder_can_serve_is_not_copied(engines: float) -> None:
    assert heated(engines=engines).plan(1, held_by(0), fleet_of(4), now_seconds=600.0) is None


def test_short_prefixes_and_unheld_ones_are_not_copied() -> None:
    spots, fleet = heated(), fleet_of(4)
    assert spots.plan(1, held_by(0, tokens=512), fleet, now_seconds=600.0) is None
    assert spots.plan(1, held_by(), fleet, now_seconds=600.0) is None
    assert spots.plan(2, held_by(0), fleet, now_seconds=600.0) is None


def test_a_copy_comes_from_one_that_serves_and_goes_to_one_that_is_ready() -> None:
    spots, fleet = heated(), fleet_of(4)
    fleet.set_state(0, WorkerState.DEAD)
    fleet.set_state(1, WorkerState.DRAINING)
    fleet.set_state(2, WorkerState.PENDING)
    plan = spots.plan(1, held_by(0, 1), fleet, now_seconds=600.0)
    assert plan == Replication(1, 1, 3, 4096)
    fleet.set_state(1, WorkerState.DEAD)
    assert spots.plan(1, held_by(0, 1), fleet, now_seconds=700.0) is None


def test_the_watched_prefixes_are_bounded_and_the_hot_ones_stay() -> None:
    spots = heated(ReplicationSettings(prefix_count_max=16))
    for prefix in range(100, 1100):
        spots.requested(prefix, prefill_seconds=0.01, now_seconds=600.0)
    assert spots.demand(1, 600.0) > 1.0
    assert spots.forgotten_count >= 980
