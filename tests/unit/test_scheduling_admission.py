"""Decode selection and the three kinds of admission."""

from __future__ import annotations

import pytest

from moonpool.scheduling.admission import AdmitAll, EarlyRejection, PredictedLoad, TtftObjective
from moonpool.scheduling.decode import LeastTbt
from moonpool.scheduling.decode_cost import FittedDecode
from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.routing import DecodePlacement, Grounds, Placement, Refusal, Rejection, Request
from moonpool.scheduling.workers import Limits, Role

# Ten milliseconds a request in the batch: a TBT of 0.1 s holds up to ten.
COST = FittedDecode(0.0, 0.0, 10e-3, 0.0)


def fleet_of(*batches: int) -> Fleet:
    fleet = Fleet(Limits(ttft_seconds=30.0, tbt_seconds=0.1), decode_load=COST.tbt_seconds)
    for index, batch in enumerate(batches):
        fleet.add(f"d{index}", Role.DECODE)
        fleet.decode_changed(index, request_count=batch, kv_tokens=batch * 1000)
    return fleet


def placement(ttft_seconds: float) -> Placement:
    return Placement(0, 0, None, 0, 0.0, 0.0, ttft_seconds, ttft_seconds, Grounds.LEAST_LOADED)


REQUEST = Request(1000, 0.0)


def test_the_lightest_decode_worker_is_joined() -> None:
    answer = LeastTbt(COST).place(REQUEST, fleet_of(5, 3, 4), 0.0)
    assert answer == DecodePlacement(1, pytest.approx(0.04))


def test_a_full_pool_is_joined_unless_told_to_refuse() -> None:
    fleet = fleet_of(10, 11)
    assert LeastTbt(COST).place(REQUEST, fleet, 0.0) == DecodePlacement(0, pytest.approx(0.11))
    answer = LeastTbt(COST, refuse=True).place(REQUEST, fleet, 0.0)
    assert isinstance(answer, Rejection)
    assert answer.refusal is Refusal.TBT


def test_no_worker_and_no_room_are_told_apart() -> None:
    answer = LeastTbt(COST).place(REQUEST, Fleet(), 0.0)
    assert isinstance(answer, Rejection)
    assert answer.refusal is Refusal.NO_WORKER
    fleet = Fleet()
    fleet.add("d", Role.DECODE, kv_capacity_tokens=999)
    full = LeastTbt(COST).place(REQUEST, fleet, 0.0)
    assert isinstance(full, Rejection)
    assert full.refusal is Refusal.KV_FULL


def test_only_early_rejection_looks_at_decoding() -> None:
    fleet = fleet_of(10, 10)
    assert AdmitAll().admit(REQUEST, placement(99.0), fleet, now_seconds=0.0) is None
    assert TtftObjective().admit(REQUEST, placement(9.0), fleet, now_seconds=0.0) is None
    late = TtftObjective().admit(REQUEST, placement(40.0), fleet, now_seconds=0.0)
    assert late == Rejection(Refusal.TTFT, pytest.approx(10.0))
    full = EarlyRejection(COST).admit(REQUEST, placement(9.0), fleet, now_seconds=0.0)
    assert full is not None
    assert full.refusal is Refusal.TBT
    assert EarlyRejection(COST).admit(REQUEST, placement(9.0), fleet_of(9, 9), now_seconds=0.0) is None


def test_early_rejection_without_decode_workers_refuses() -> None:
    answer = EarlyRejection(COST).admit(REQUEST, placement(1.0), Fleet(), now_seconds=0.0)
    assert answer is not None
    assert answer.refusal is Refusal.NO_WORKER


def test_prediction_counts_those_who_will_have_joined() -> None:
    """The pool is empty today, but twenty prompts are on their way to two workers."""
    policy, fleet = PredictedLoad(COST, decode_seconds=10.0), fleet_of(0, 0)
    for _ in range(20):
        policy.prefill_planned(5.0)
    assert policy.decoding_at(6.0) == 20
    assert EarlyRejection(COST).admit(REQUEST, placement(6.0), fleet, now_seconds=0.0) is None
    assert policy.admit(REQUEST, placement(6.0), fleet, now_seconds=0.0) is not None
    # Before they get there, and after they will have gone, there is room.
    assert policy.admit(REQUEST, placement(4.0), fleet, now_seconds=0.0) is None
    assert policy.admit(REQUEST, placement(16.0), fleet, now_seconds=0.0) is None


def test_prediction_takes_away_those_who_will_have_left() -> None:
    policy, fleet = PredictedLoad(COST, decode_seconds=10.0), fleet_of(10, 10)
    for _ in range(20):
        policy.prefill_planned(0.0)
        policy.decode_joined(0.0, 1.0)
    assert policy.decoding_at(5.0) == 20
    assert policy.decoding_at(11.5) == 0
    assert policy.admit(REQUEST, placement(3.0), fleet, now_seconds=2.0) is not None
    assert policy.admit(REQUEST, placement(10.0), fleet, now_seconds=2.0) is None


def test_prediction_learns_how_long_decoding_takes() -> None:
    policy = PredictedLoad(COST, decode_seconds=10.0)
    for index in range(400):
        at = float(index * 10)
        policy.prefill_planned(at)
        policy.decode_joined(at, at)
        policy.admit(REQUEST, placement(1.0), fleet_of(0), now_seconds=at + 3.0)
        policy.decode_left(at)
    assert policy.decode_seconds == pytest.approx(3.0, rel=0.01)
    assert policy.decoding_at(4000.0) == 0


def test_a_request_lost_before_decoding_leaves_nothing_behind() -> None:
    policy = PredictedLoad(COST)
    policy.prefill_planned(5.0)
    policy.decode_joined(5.0, 2.0)
    policy.decode_left(2.0)
    assert policy.decoding_at(5.0) == 0
    assert policy.decode_seconds == 10.0
