"""The continuous batch, which counts in stretches, against one that takes every step."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonpool.sim.batch import Member
from moonpool.sim.coupled import CoupledEngine, Mixing, Prompt
from moonpool.sim.decode import BatchLimits, DecodeEngine
from moonpool.sim.loop import EventLoop


def step(request_count: int, kv_tokens: int) -> float:
    return 26.2e-3 + 3.6e-8 * kv_tokens + 2.22e-3 * request_count + 0.294e-3 * request_count**2


@dataclass
class Decoded:
    """What the oracle knows of one request."""

    arrival: float
    kv_tokens: int
    intervals: int
    last_token: float = 0.0
    left: int = 0
    gaps: list[float] = field(default_factory=list)

    @property
    def tbt(self) -> float:
        worst = sorted(self.gaps, reverse=True)[: ceil(len(self.gaps) / 10)]
        return sum(worst) / len(worst)


def step_by_step(requests: list[Decoded], limit: int) -> None:
    """One step after the other: all members get a token, those who are here join before the next."""
    waiting = list(requests)
    batch: list[Decoded] = []
    kv_tokens = 0
    now = 0.0
    while waiting or batch:
        if not batch:
            now = max(now, waiting[0].arrival)
        while waiting and waiting[0].arrival <= now and len(batch) < limit:
            joined = waiting.pop(0)
            joined.left, joined.last_token = joined.intervals, joined.arrival
            kv_tokens += joined.kv_tokens
            batch.append(joined)
        now += step(len(batch), kv_tokens)
        kv_tokens += len(batch)
        for member in batch:
            member.gaps.append(now - member.last_token)
            member.last_token = now
            member.left -= 1
        kv_tokens -= sum(member.kv_tokens + member.intervals for member in batch if not member.left)
        batch = [member for member in batch if member.left]


arrivals = st.lists(
    st.tuples(
        st.floats(0, 3, allow_nan=False).map(lambda seconds: round(seconds, 4)),
        st.integers(1, 100_000),
        st.integers(1, 60),
    ),
    min_size=1,
    max_size=25,
).map(sorted)


@given(arrivals, st.integers(1, 8))
def test_a_decode_engine_agrees_with_one_that_takes_every_step(
    arrived: list[tuple[float, int, int]], limit: int
) -> None:
    expected = [Decoded(*values) for values in arrived]
    step_by_step(expected, limit)
    loop = EventLoop()
    found: dict[int, tuple[float, float]] = {}
    engine = DecodeEngine(
        loop,
        step_seconds=step,
        limits=BatchLimits(requests=limit, kv_tokens=1 << 40),
        finished=lambda member, tbt: found.__setitem__(member.index, (loop.now, tbt)),
    )
    for index, (arrival, kv_tokens, intervals) in enumerate(arrived):
        member = Member(index, kv_tokens=kv_tokens, intervals=intervals, first_token_at=arrival)
        loop.at(arrival, engine.submit, member)
    loop.run()
    assert engine.batch_size == 0
    assert engine.kv_tokens == 0
    for index, request in enumerate(expected):
        finished, tbt = found[index]
        assert finished == pytest.approx(request.last_token, abs=1e-6)
        # Within a stretch of growing KV all gaps count as its mean; the difference is a few microseconds.
        assert tbt == pytest.approx(request.tbt, rel=2e-3)


def coupled_engine(loop: EventLoop, log: list[tuple[str, int, float]], tbts: dict[int, float]) -> CoupledEngine:
    def finished(member: Member, tbt: float) -> None:
        log.append(("finished", member.index, loop.now))
        tbts[member.index] = tbt

    return CoupledEngine(
        loop,
        step_seconds=step,
        limits=BatchLimits(),
        prefilled=lambda prompt: log.append(("prefilled", prompt.index, loop.now)),
        finished=finished,
    )


def test_a_prompt_stalls_those_who_decode_on_the_same_engine() -> None:
    loop, log, tbts = EventLoop(), [], {}
    engine = coupled_engine(loop, log, tbts)
    engine.submit(Prompt(0, tokens=1000, computed_tokens=1000, seconds=1.0, intervals=20))
    loop.at(1.1, engine.submit, Prompt(1, tokens=1000, computed_tokens=1000, seconds=2.0, intervals=1))
    loop.run()
    assert [(what, index) for what, index, _ in log] == [
        ("prefilled", 0),
        ("prefilled", 1),
        ("finished", 1),
        ("finished", 0),
    ]
    assert tbts[0] == pytest.approx((2.0 + step(2, 2100) + step(1, 1000)) / 2, rel=0.02)  # worst two of twenty
    assert tbts[1] == pytest.approx(step(2, 2100), rel=0.01)


def test_chunks_spread_the_stall_over_many_steps() -> None:
    loop, log, tbts = EventLoop(), [], {}
    engine = coupled_engine(loop, log, tbts)
    engine.mixing, engine.chunk_tokens = Mixing.CHUNKED, 500
    engine.submit(Prompt(0, tokens=1000, computed_tokens=1000, seconds=1.0, intervals=40))
    loop.at(1.1, engine.submit, Prompt(1, tokens=5000, computed_tokens=5000, seconds=2.0, intervals=1))
    loop.run()
    assert tbts[0] == pytest.approx(2.0 / 10 + step(1, 1000), rel=0.05)  # ten chunks, of which the worst four count
    prefilled = next(now for what, index, now in log if (what, index) == ("prefilled", 1))
    assert prefilled == pytest.approx(1.1 + 2.0 + 11 * step(1, 1000), abs=0.06)


def test_a_dead_engine_gives_back_everybody_it_had() -> None:
    loop, log, tbts = EventLoop(), [], {}
    engine = coupled_engine(loop, log, tbts)
    for index, seconds in enumerate((0.5, 3.0, 1.0)):
        engine.submit(Prompt(index, tokens=100, computed_tokens=100, seconds=seconds, intervals=9))
    loop.run(until_seconds=2.0)
    prompts, members = engine.lose_all()
    assert [prompt.index for prompt in prompts] == [1, 2]
    assert [member.index for member in members] == [0]
    loop.run()
    assert [what for what, _, _ in log] == ["prefilled"], "the dead do nothing"
