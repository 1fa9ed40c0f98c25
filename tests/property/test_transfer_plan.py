"""The native plan of transfers against the model: whatever rails do, every byte is in one place."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from models.transfer_plan import PAUSED, UP, PlanModel, RailModel
from moonpool._native import TransferPlan

MIB = 1 << 20
REASONS = st.sampled_from([25, 26, 27])  # unknown_region, out_of_range, read_only
LENGTHS = st.one_of(st.integers(0, 5000), st.integers(0, 3 * MIB), st.sampled_from([MIB, 256 << 10, 64 << 10]))
COMPARED = (
    "state",
    "connection",
    "bytes_per_second",
    "latency_us",
    "inflight_bytes",
    "inflight_count",
    "pause_us",
    "failure_count",
)


class TransferPlanMachine(RuleBasedStateMachine):
    @initialize(
        rails=st.lists(
            st.tuples(st.sampled_from([0, 1_000_000, 125_000_000, 25_000_000_000]), st.sampled_from([1000, 1414])),
            min_size=1,
            max_size=3,
        )
    )
    def start(self, rails: list[tuple[int, int]]) -> None:
        self.native, self.model, self.now_us, self.connection = TransferPlan(), PlanModel(), 1_000_000, 0
        for nominal, permille in rails:
            self.native.add_rail(nominal, permille)
            self.model.rails.append(RailModel(nominal, permille))

    @rule(passed_us=st.one_of(st.integers(0, 2_000), st.integers(0, 1_000_000)))
    def time_passes(self, passed_us: int) -> None:
        self.now_us += passed_us

    @rule(
        operations=st.lists(st.tuples(LENGTHS, st.booleans()), max_size=5),
        priority=st.integers(0, 2),
        patience_us=st.integers(0, 5_000_000),
    )
    def add(self, operations: list[tuple[int, bool]], priority: int, patience_us: int) -> None:
        name = self.native.add(operations, priority, self.now_us + patience_us, self.now_us)
        assert name is not None
        self.model.add(name, operations, self.now_us + patience_us, self.now_us)

    @rule(data=st.data())
    def connect(self, data: st.DataObject) -> None:
        due = self.native.rails_to_connect(self.now_us)
        wanted = [index for index, rail in enumerate(self.model.rails) if self.model.connect_at_us(rail) <= self.now_us]
        assert due == (wanted if self.model.transfers or self.model.owed else [])
        for rail in due:
            self.native.connecting(rail)
            self.model.rails[rail].state = PAUSED + 1
            if data.draw(st.integers(0, 3)) == 0:
                self._fail(rail)
                continue
            self.connection += 1
            self.native.connected(rail, self.connection, self.now_us)
            self.model.rails[rail].connect(self.connection, self.now_us)

    @rule(count=st.integers(1, 40))
    def send(self, count: int) -> None:
        for _ in range(count):
            slice_ = self.native.next(self.now_us)
            if slice_ is None:
                self.model.nothing_to_send(self.now_us)
                return
            self.model.take(slice_, self.now_us)

    @precondition(lambda self: self.model.slices)
    @rule(count=st.integers(1, 20), passed_us=st.integers(0, 3_000))
    def finish_the_oldest(self, count: int, passed_us: int) -> None:
        for name in sorted(self.model.slices)[:count]:
            self.now_us += passed_us
            self.native.finished(name, self.now_us)
            self.model.finish(name, self.now_us)

    @precondition(lambda self: self.model.slices)
    @rule(data=st.data(), reason=REASONS)
    def refuse(self, data: st.DataObject, reason: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.slices)))
        self.native.refused(name, reason, self.now_us)
        self.model.refuse(name, reason, self.now_us)

    @precondition(lambda self: self.model.slices)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.slices)))
        self.native.withdrawn(name)
        self.model.withdraw(name)
        self.native.withdrawn(name)  # a slice that has ended is ignored
        self.native.finished(name, self.now_us)

    @precondition(lambda self: any(rail.usable for rail in self.model.rails))
    @rule(data=st.data())
    def lose_a_rail(self, data: st.DataObject) -> None:
        usable = [index for index, rail in enumerate(self.model.rails) if rail.usable]
        self._fail(data.draw(st.sampled_from(usable)))

    @rule()
    def give_stalled_rails_up(self) -> None:
        for rail in self.native.stalled(self.now_us):
            assert self.model.rails[rail].inflight_count > 0, "an idle rail cannot stall"
            self._fail(rail)

    @precondition(lambda self: self.model.owed)
    @rule(data=st.data())
    def the_peer_drops_a_lost_connection(self, data: st.DataObject) -> None:
        connection = data.draw(st.sampled_from(sorted(self.model.owed)))
        self.native.dropped(connection)
        self.model.drop(connection)

    @precondition(lambda self: self.model.transfers)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.transfers)))
        assert {slice_["slice"] for slice_ in self.native.give_up(name, 28)} == self.model.end(name, 28)

    @rule()
    def expire(self) -> None:
        assert {slice_["slice"] for slice_ in self.native.expire(self.now_us)} == self.model.expire(self.now_us)

    def _fail(self, rail: int) -> None:
        self.native.failed(rail, self.now_us)
        self.model.fail_rail(rail, self.now_us)

    @invariant()
    def agree(self) -> None:
        assert self.native.check_integrity() == ""
        assert set(self.native.drops_owed()) == self.model.owed
        done = {result["transfer"]: result["operations"] for result in self.native.take_done()}
        assert done == self.model.done
        self.model.done.clear()
        for index, rail in enumerate(self.model.rails):
            native = self.native.rail(index)
            assert {name: native[name] for name in COMPARED} == {name: getattr(rail, name) for name in COMPARED}
            assert self.native.predicted_us(index, MIB) == rail.predicted_us(MIB)
            assert self.native.connect_at_us(index) == self.model.connect_at_us(rail)


TestTransferPlan = TransferPlanMachine.TestCase
TestTransferPlan.settings = settings(stateful_step_count=60, deadline=None)


@given(
    speeds=st.lists(st.integers(1_000_000, 10_000_000_000), min_size=2, max_size=4),
    inflight=st.integers(0, 4),
)
def test_a_lone_slice_goes_where_it_is_predicted_to_be_applied_first(speeds: list[int], inflight: int) -> None:
    plan = TransferPlan()
    for index, speed in enumerate(speeds):
        plan.add_rail(speed)
        plan.connecting(index)
        plan.connected(index, index + 1, 1)
    for _ in range(inflight):
        plan.add([(100_000, True)], 1, 10_000_000, 1)
        assert plan.next(1) is not None
    predicted = [plan.predicted_us(index, 100_000) for index in range(len(speeds))]
    plan.add([(100_000, True)], 1, 10_000_000, 1)
    slice_ = plan.next(1)
    assert slice_ is not None
    assert plan.rail(slice_["rail"])["state"] == UP
    assert predicted[slice_["rail"]] == min(predicted)


@given(priority=st.integers(1, 2), low_bytes=st.integers(1, 4 * MIB), urgent_count=st.integers(100, 400))
def test_a_lower_priority_is_served_under_urgent_work_without_end(
    priority: int, low_bytes: int, urgent_count: int
) -> None:
    """At least a thirtieth and at most a tenth of the bytes, one slice at the ends aside."""
    plan = TransferPlan()
    plan.add_rail(125_000_000)
    plan.connecting(0)
    plan.connected(0, 1, 1)
    low = plan.add([(low_bytes, True)], priority, 2**60, 1)
    now_us, bytes_of = 1, {True: 0, False: 0}
    for _ in range(urgent_count):
        plan.add([(MIB, True)], 0, 2**60, now_us)
        while slice_ := plan.next(now_us):
            bytes_of[slice_["transfer"] == low] += slice_["length"]
            now_us += slice_["length"] // 125
            plan.finished(slice_["slice"], now_us)
            if bytes_of[False] > 90 * MIB or bytes_of[True] == low_bytes:
                break
        if bytes_of[False] > 90 * MIB or bytes_of[True] == low_bytes:
            break
        plan.add([(4 * MIB, True)], 0, 2**60, now_us)
    assert bytes_of[True] == low_bytes or bytes_of[True] >= bytes_of[False] // 30 - MIB
