"""Scaling plans converge, never flap, and are never wedged."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonpool.errors import UsageError
from moonpool.scheduling.costs import mooncake_costs
from moonpool.scheduling.demand import Demand, Forecast, Need, Observed, need_of, split, worth_switching
from moonpool.scheduling.scaling import Replicas, ScalingPlanner, ScalingSettings, Step, Why

INTERVAL_S = 30.0
SETTINGS = ScalingSettings(count_max=40)


@dataclass
class Fleet:
    """Workers that start and drain after a while; while `blocked`, none starts."""

    start_s: float = 120.0
    drain_s: float = 90.0
    ready: int = 1
    blocked: bool = False
    pending: list[float] = field(default_factory=list)
    draining: list[float] = field(default_factory=list)

    def advance(self, now: float) -> Replicas:
        if not self.blocked:
            started = [since for since in self.pending if now - since >= self.start_s]
            self.ready += len(started)
            self.pending = [since for since in self.pending if now - since < self.start_s]
        self.draining = [since for since in self.draining if now - since < self.drain_s]
        oldest = now - min(self.pending) if self.pending else 0.0
        return Replicas(self.ready, len(self.pending), len(self.draining), oldest)

    def obey(self, step: Step, now: float) -> None:
        assert step.cancel <= len(self.pending)
        assert step.drain <= self.ready
        assert step.undrain <= len(self.draining)
        del self.pending[: step.cancel], self.draining[: step.undrain]
        self.ready += step.undrain - step.drain
        self.pending += [now] * step.add
        self.draining += [now] * step.drain


def played(planner: ScalingPlanner, fleet: Fleet, needs: list[float | None], start_s: float = 0.0) -> list[Step]:
    steps = []
    for number, need in enumerate(needs):
        now = start_s + number * INTERVAL_S
        step = planner.step(now, need, fleet.advance(now))
        fleet.obey(step, now)
        steps.append(step)
    return steps


NEEDS = st.floats(0, 30, allow_nan=False)
HISTORY = st.lists(st.one_of(st.none(), NEEDS), max_size=60)


@given(HISTORY, NEEDS, st.integers(0, 20), st.floats(0, 400))
def test_constant_load_is_met_and_then_nothing_changes(
    history: list[float | None], need: float, ready: int, start_s: float
) -> None:
    planner, fleet = ScalingPlanner(SETTINGS), Fleet(start_s=start_s, ready=ready)
    played(planner, fleet, history)
    steps = played(planner, fleet, [need] * 240, start_s=len(history) * INTERVAL_S)
    settled = steps[-100:]
    assert {step.target for step in settled} == {settled[0].target}
    assert all(step.add == step.cancel == step.drain == step.undrain == 0 for step in settled[20:])
    least = max(SETTINGS.count_min, math.ceil(need / SETTINGS.utilisation))
    ample = max(SETTINGS.count_min, math.ceil(need * (1 + SETTINGS.margin) / SETTINGS.utilisation))
    assert min(least, SETTINGS.count_max) <= settled[0].target <= min(ample, SETTINGS.count_max)
    assert fleet.ready == settled[0].target


@given(st.floats(0.5, 25), st.lists(st.floats(-0.04, 0.04), min_size=300, max_size=300))
def test_small_swings_never_make_it_shrink_and_grow_again(need: float, swings: list[float]) -> None:
    planner = ScalingPlanner(ScalingSettings(count_max=40, start_seconds=0.0))
    steps = played(planner, Fleet(ready=30), [need * (1 + swing) for swing in swings])
    targets = [step.target for step in steps]
    changes = [later - earlier for earlier, later in pairwise(targets) if later != earlier]
    shrunk = next((place for place, change in enumerate(changes) if change < 0), len(changes))
    assert all(change < 0 for change in changes[shrunk:]), targets


def test_no_traffic_shrinks_to_the_least_and_traffic_wakes_it() -> None:
    planner, fleet = ScalingPlanner(SETTINGS), Fleet(ready=8)
    quiet = played(planner, fleet, [0.0] * 60)
    assert quiet[-1].target == fleet.ready == 1
    busy = played(planner, fleet, [6.0] * 20, start_s=60 * INTERVAL_S)
    assert busy[0].why is Why.GROW
    assert fleet.ready >= 8


def test_missing_metrics_keep_what_there_is() -> None:
    planner, fleet = ScalingPlanner(SETTINGS), Fleet(ready=5)
    steps = played(planner, fleet, [None, math.nan, -1.0, math.inf] * 20)
    assert {(step.target, step.why) for step in steps} == {(5, Why.NO_METRICS)}
    assert fleet.ready == 5


def test_workers_that_cannot_be_placed_are_given_up_and_tried_again() -> None:
    planner, fleet = ScalingPlanner(SETTINGS), Fleet(ready=2, blocked=True)
    stuck = played(planner, fleet, [6.0] * 60)
    gave_up = [step for step in stuck if step.why is Why.UNSCHEDULABLE]
    assert gave_up
    assert all(step.target >= 8 for step in stuck[1:]), "what the load asks for is still said"
    assert fleet.ready == 2
    assert any(step.add for step in stuck[stuck.index(gave_up[0]) + 1 :]), "it is tried again"
    fleet.blocked = False
    played(planner, fleet, [6.0] * 200, start_s=60 * INTERVAL_S)
    assert fleet.ready >= 8


def test_workers_that_cannot_be_placed_do_not_stop_shrinking() -> None:
    planner, fleet = ScalingPlanner(SETTINGS), Fleet(ready=6, blocked=True)
    played(planner, fleet, [8.0] * 10)
    played(planner, fleet, [0.5] * 60, start_s=10 * INTERVAL_S)
    assert (fleet.ready, fleet.pending) == (1, [])


def test_a_draining_worker_is_taken_back_before_a_new_one_is_started() -> None:
    planner = ScalingPlanner(SETTINGS)
    step = planner.step(0.0, 3.0, Replicas(ready=2, draining=1))
    assert (step.target, step.undrain, step.add) == (4, 1, 1)


def test_a_rising_load_is_met_before_it_is_there() -> None:
    planner, fleet = ScalingPlanner(SETTINGS), Fleet(ready=2)
    steps = played(planner, fleet, [1.0 + 0.2 * number for number in range(30)])
    late = [
        number for number, step in enumerate(steps) if step.target * SETTINGS.utilisation < 1.0 + 0.2 * (number + 2)
    ]
    assert not [number for number in late if number > 8]


def test_settings_that_make_no_sense_are_refused() -> None:
    for settings in (ScalingSettings(count_min=5, count_max=2), ScalingSettings(utilisation=0.0)):
        with pytest.raises(UsageError, match=r"expected|no range"):
            ScalingPlanner(settings)


COSTS = mooncake_costs()
DEMAND = Demand(3.4, input_tokens=12_035, cached_tokens=4_000, output_tokens=342)


def test_need_follows_the_work() -> None:
    need = need_of(DEMAND, COSTS, tbt_seconds=0.1)
    assert need.prefill == pytest.approx(3.4 * COSTS.prefill.seconds(12_035, 4_000))
    twice = need_of(Demand(6.8, 12_035, 4_000, 342), COSTS, tbt_seconds=0.1)
    assert twice.decode == pytest.approx(2 * need.decode)
    strict = need_of(DEMAND, COSTS, tbt_seconds=0.05)
    assert strict.decode > need.decode
    slow = need_of(DEMAND, COSTS, tbt_seconds=0.1, observed=Observed(ttft_ratio=1.5, tbt_ratio=1.5))
    assert slow.prefill == pytest.approx(1.5 * need.prefill)
    assert slow.decode > need.decode


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_no_demand_needs_nothing(rate: float) -> None:
    assert need_of(Demand(rate), COSTS, tbt_seconds=0.1) == Need(0.0, 0.0)


@given(st.integers(2, 60), st.floats(0, 100), st.floats(0, 100))
def test_the_split_is_the_best_there_is(worker_count: int, prefill: float, decode: float) -> None:
    chosen = split(worker_count, Need(prefill, decode))
    assert sum(chosen) == worker_count
    assert min(chosen) >= 1
    busiest = max(prefill / chosen[0], decode / chosen[1])
    assert all(busiest <= max(prefill / count, decode / (worker_count - count)) for count in range(1, worker_count))


def test_roles_change_only_on_large_shifts() -> None:
    assert not worth_switching((8, 8), Need(6.5, 6.0))
    assert worth_switching((12, 4), Need(4.0, 8.0))
    assert not worth_switching((8, 8), Need(0.0, 0.0))


@given(st.floats(0, 1e6), st.lists(st.floats(0.1, 100), min_size=1, max_size=30), st.floats(0, 1e4))
def test_a_constant_is_forecast_as_it_is(value: float, pauses: list[float], ahead: float) -> None:
    forecast, now = Forecast(), 0.0
    for pause in pauses:
        forecast.observe(value, now)
        now += pause
    assert forecast.ahead(ahead) == pytest.approx(value)


@given(st.lists(st.tuples(st.floats(allow_nan=True, allow_infinity=True), st.floats(-10, 100)), max_size=30))
def test_a_forecast_is_never_negative_nor_absurd(measured: list[tuple[float, float]]) -> None:
    forecast = Forecast()
    for value, now in measured:
        forecast.observe(max(value, 0.0), now)
    ahead = forecast.ahead(600.0)
    assert ahead is None or 0.0 <= ahead < math.inf


def test_two_measurements_in_one_instant_make_no_trend() -> None:
    forecast = Forecast()
    for value, now in ((0.0, -2.2e-311), (1.0, 0.0), (0.0, 1.0)):
        forecast.observe(value, now)
    assert forecast.ahead(600.0) == 0.0
