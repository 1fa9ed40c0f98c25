"""Links share their bandwidth, and no byte is lost or made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonpool.sim.fabric import Fabric, Link
from moonpool.sim.loop import EventLoop


def test_a_lone_flow_runs_at_the_speed_of_its_slowest_link() -> None:
    loop = EventLoop()
    ends: list[float] = []
    Fabric(loop).start([Link(100.0), Link(40.0)], 80, lambda: ends.append(loop.now))
    loop.run()
    assert ends == [pytest.approx(2.0)]


def test_flows_share_a_link_and_speed_up_when_one_ends() -> None:
    loop, link = EventLoop(), Link(10.0)
    fabric = Fabric(loop)
    ends: dict[str, float] = {}
    fabric.start([link], 10, lambda: ends.setdefault("short", loop.now))
    fabric.start([link], 30, lambda: ends.setdefault("long", loop.now))
    loop.run()
    assert ends == {"short": pytest.approx(2.0), "long": pytest.approx(4.0)}


def test_a_cancelled_flow_says_nothing_and_frees_its_share() -> None:
    loop, link = EventLoop(), Link(10.0)
    fabric = Fabric(loop)
    ends: list[str] = []
    doomed = fabric.start([link], 100, lambda: ends.append("doomed"))
    fabric.start([link], 10, lambda: ends.append(f"kept at {loop.now:.1f}"))
    loop.at(1.0, lambda _: fabric.cancel(doomed))
    loop.run()
    assert ends == ["kept at 1.5"]
    assert fabric.bytes_moved == pytest.approx(15.0)
    fabric.cancel(doomed)
    assert not link.flows


@given(
    st.lists(
        st.tuples(st.floats(0, 5), st.integers(1, 1000), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30
    )
)
def test_all_bytes_arrive_and_no_link_carries_more_than_it_can(flows: list[tuple[float, int, int, int]]) -> None:
    loop = EventLoop()
    fabric = Fabric(loop)
    outward = [Link(100.0 * (1 + node)) for node in range(4)]
    inward = [Link(150.0) for _ in range(4)]
    arrived: list[int] = []

    def start(flow: tuple[float, int, int, int]) -> None:
        _, byte_count, source, target = flow
        fabric.start([outward[source], inward[target]], byte_count, lambda: arrived.append(byte_count))
        for link in (*outward, *inward):
            total = sum(other.rate for other in link.flows)
            assert total <= link.bytes_per_second * (1 + 1e-9)

    for flow in flows:
        loop.at(flow[0], start, flow)
    loop.run()
    assert sorted(arrived) == sorted(flow[1] for flow in flows)
    assert fabric.bytes_moved == pytest.approx(sum(arrived))
    assert not any(link.flows for link in (*outward, *inward))
    for node, link in enumerate(outward):
        carried = sum(flow[1] for flow in flows if flow[2] == node)
        assert carried <= link.bytes_per_second * loop.now * (1 + 1e-9)


def test_events_of_the_same_time_run_in_the_order_they_were_asked_for() -> None:
    loop = EventLoop()
    seen: list[int] = []
    for number in range(50):
        loop.at(1.0, seen.append, number)
    loop.run()
    assert seen == list(range(50))
