"""Decisions of the connector with plain values: groups, pieces, look-ups, saves, health."""

from __future__ import annotations

import math
from concurrent.futures import Future
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from moonpool.connectors import saving
from moonpool.connectors.groups import CacheGroup, blocks_to_load, find_obstacle, match_rules
from moonpool.connectors.health import Health
from moonpool.connectors.lookup import (
    GAVE_UP,
    NODE_AWAY,
    OUT_OF_BUDGET,
    Ask,
    LookupDesk,
    LookupLimits,
    MatchAnswer,
    Matcher,
)
from moonpool.connectors.pieces import TensorFacts, check_cover, derive_pieces, join_adjacent, layer_pieces
from moonpool.errors import UsageError

FULL = CacheGroup(kv_group=0, kind="full_attention", block_size=32, layer_names=("a",))
WINDOW = CacheGroup(kv_group=1, kind="window", block_size=32, layer_names=("b",), window_token_count=64)


def hashes(count: int) -> list[bytes]:
    return [index.to_bytes(32, "big") for index in range(1, count + 1)]


# Groups -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("window", "blocks"), [(1, 1), (2, 1), (32, 1), (33, 1), (34, 2), (64, 2), (65, 2), (66, 3)])
def test_a_window_needs_the_blocks_of_its_last_tokens(window: int, blocks: int) -> None:
    group = CacheGroup(kv_group=0, kind="window", block_size=32, layer_names=("a",), window_token_count=window)
    assert group.window_block_count == blocks


def test_a_window_group_gets_only_what_its_window_needs_and_the_engine_lacks() -> None:
    assert blocks_to_load(WINDOW, first=0, end=10) == range(8, 10)
    assert blocks_to_load(WINDOW, first=9, end=10) == range(9, 10)
    assert blocks_to_load(FULL, first=3, end=10) == range(3, 10)


def test_groups_that_cannot_be_stored_are_named() -> None:
    state = CacheGroup(kv_group=2, kind="MambaSpec", block_size=32, layer_names=("c",))
    coarse = CacheGroup(kv_group=3, kind="full_attention", block_size=64, layer_names=("d",))
    assert find_obstacle([FULL, WINDOW], hash_block_size=32) == ""
    assert "kv_group 2" in find_obstacle([FULL, state], hash_block_size=32)
    assert "MambaSpec" in find_obstacle([FULL, state], hash_block_size=32)
    assert "different block sizes" in find_obstacle([FULL, coarse], hash_block_size=32)
    assert "hashed every 16" in find_obstacle([FULL], hash_block_size=16)
    assert find_obstacle([], hash_block_size=32)


def test_a_group_that_is_the_same_on_every_shard_is_looked_up_once() -> None:
    latent = CacheGroup(kv_group=0, kind="full_attention", block_size=32, layer_names=("a",), same_on_every_shard=True)
    assert [rule.shard_count for rule in match_rules([latent, WINDOW], shard_count=4)] == [1, 4]
    assert [rule.window_block_count for rule in match_rules([FULL, WINDOW], shard_count=4)] == [0, 2]


# Pieces -----------------------------------------------------------------------------------------------------


def strided(order: tuple[int, ...], shape: tuple[int, ...], *, pad: int = 0, address: int = 4096) -> TensorFacts:
    """A tensor of this shape whose axes lie in memory in this order, outermost first; rows padded by ``pad``."""
    strides = [0] * len(shape)
    step = 4
    for depth, axis in enumerate(reversed(order)):
        strides[axis] = step
        step *= shape[axis]
        if depth == 0:
            step += pad * 4
    return TensorFacts(address, shape, tuple(strides), 4)


@pytest.mark.parametrize("order", list(permutations(range(4))))
@pytest.mark.parametrize("pad", [0, 3])
def test_pieces_cover_a_block_in_every_order_of_axes(order: tuple[int, ...], pad: int) -> None:
    tensor = strided(order, (5, 2, 3, 4), pad=pad)
    pieces = derive_pieces(tensor, block_count=5)
    check_cover(tensor, pieces, block_count=5)
    assert sum(piece.length_bytes for piece in pieces) == 2 * 3 * 4 * 4


def test_a_contiguous_block_is_one_piece() -> None:
    pieces = derive_pieces(strided((0, 1, 2, 3), (5, 2, 3, 4)), block_count=5)
    assert [(piece.stride_bytes, piece.length_bytes) for piece in pieces] == [(96, 96)]


def test_keys_and_values_before_blocks_give_two_pieces() -> None:
    tensor = strided((0, 1, 2, 3), (2, 7, 3, 4))
    pieces = derive_pieces(tensor, block_count=7)
    assert [(piece.base - 4096, piece.stride_bytes, piece.length_bytes) for piece in pieces] == [
        (0, 48, 48),
        (7 * 48, 48, 48),
    ]


def test_kernel_blocks_of_one_block_are_taken_together() -> None:
    tensor = strided((0, 1, 2, 3), (10, 2, 3, 4))
    pieces = derive_pieces(tensor, block_count=5)
    check_cover(tensor, pieces, block_count=5)
    assert [(piece.stride_bytes, piece.length_bytes) for piece in pieces] == [(192, 192)]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_pieces_cover_exactly_the_block_of_any_layout(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(2, 5), min_size=2, max_size=5)))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    tensor = strided(order, shape, pad=data.draw(st.integers(0, 2)))
    note(f"{tensor}")
    block_count = shape[0]
    pieces = derive_pieces(tensor, block_count=block_count)
    check_cover(tensor, pieces, block_count=block_count)
    whole = {
        piece.base + block * piece.stride_bytes + offset
        for block in range(block_count)
        for piece in pieces
        for offset in range(piece.length_bytes)
    }
    assert len(whole) == math.prod(shape) * 4  # no byte belongs to two blocks, none is left out


def test_a_piece_too_many_is_noticed() -> None:
    tensor = strided((0, 1, 2, 3), (5, 2, 3, 4))
    (piece,) = derive_pieces(tensor, block_count=5)
    for wrong in (
        [piece, piece],
        [piece._replace(length_bytes=92)],
        [piece._replace(base=piece.base + 4)],
        [piece._replace(length_bytes=100)],
        [piece._replace(stride_bytes=92)],
    ):
        with pytest.raises(UsageError):
            check_cover(tensor, wrong, block_count=5)


def test_layouts_that_share_bytes_between_blocks_are_refused() -> None:
    with pytest.raises(UsageError, match="share bytes"):
        derive_pieces(TensorFacts(0, (5, 4), (0, 4), 4), block_count=5)
    with pytest.raises(UsageError, match="share bytes"):
        layer_pieces([TensorFacts(0, (5, 4), (8, 4), 4)], block_count=5)
    with pytest.raises(UsageError, match="no single dimension"):
        derive_pieces(TensorFacts(0, (4, 4, 9), (144, 36, 4), 4), block_count=3)


def test_layers_side_by_side_in_one_block_become_one_piece() -> None:
    layers = [TensorFacts(4096 + layer * 64, (5, 16), (128, 4), 4) for layer in range(2)]
    pieces = layer_pieces(layers, block_count=5)
    assert [(piece.base, piece.stride_bytes, piece.length_bytes) for piece in pieces] == [(4096, 128, 128)]
    assert (
        join_adjacent(reversed(derive_pieces(layers[0], block_count=5) + derive_pieces(layers[1], block_count=5)))[
            0
        ].length_bytes
        == 64
    ), "the order of the bytes is never changed"


# Health -----------------------------------------------------------------------------------------------------


def test_a_node_is_away_until_a_probe_was_answered() -> None:
    health = Health(failure_count_max=2)
    assert not health.up
    assert health.probe_in_ms(0) == 0
    health.probed(True, 1)
    assert health.up
    assert health.probe_in_ms(1) is None


def test_failures_in_a_row_send_a_node_away_and_an_answer_between_does_not() -> None:
    health = Health(failure_count_max=2)
    health.probed(True, 0)
    health.unanswered(1)
    health.answered()
    health.unanswered(2)
    assert health.up
    health.unanswered(3)
    assert not health.up
    assert health.away_count == 1


def test_probes_of_a_silent_node_become_seldom_up_to_a_limit_and_one_answer_ends_it() -> None:
    health = Health(failure_count_max=1, probe_ms_min=50, probe_ms_max=400)
    now = 0.0
    waits = []
    for _ in range(6):
        health.probed(False, now)
        wait = health.probe_in_ms(now)
        assert wait is not None
        waits.append(wait)
        now += wait
    assert waits == [50, 100, 200, 400, 400, 400]
    health.probed(True, now)
    assert health.up


# Look-ups ---------------------------------------------------------------------------------------------------


class Pool:
    """A matcher that answers from a script, at once or late, and counts."""

    def __init__(self, *answers: MatchAnswer, cost_ms: float = 1.0) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []
        self.late: Future[MatchAnswer] = Future()
        self.late_count = 0
        self.now_ms = 0.0
        self.cost_ms = cost_ms

    def now(self, namespace_id: int, block_hashes: Any, budget_ms: int) -> MatchAnswer:
        self.asked.append(len(block_hashes))
        self.now_ms += min(self.cost_ms, budget_ms)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def later(self, namespace_id: int, block_hashes: Any, timeout_ms: int) -> Future[MatchAnswer]:
        self.late_count += 1
        return self.late

    def clock(self) -> float:
        return self.now_ms

    @property
    def matcher(self) -> Matcher:
        return Matcher(now=self.now, late=self.later)


def make_desk(pool: Pool, *, failure_count_max: int = 100, up: bool = True) -> tuple[LookupDesk, Health]:
    health = Health(failure_count_max=failure_count_max)
    if up:
        health.probed(True, 0)
    return LookupDesk(pool.matcher, health=health, limits=LookupLimits(), clock_ms=pool.clock), health


def ask(count: int = 10, tokens: int = 321, local: int = 0, **changes: Any) -> Ask:
    return Ask("r", 77, hashes(count), tokens, 32, local, **changes)


def test_one_answer_serves_every_later_question() -> None:
    pool = Pool(MatchAnswer(10, True))
    desk, _ = make_desk(pool)
    assert [desk.decide(ask()).token_count for _ in range(5)] == [320] * 5
    assert desk.decide(ask(local=96)).token_count == 224
    assert len(pool.asked) == 1


def test_a_hit_leaves_at_least_one_token_to_compute() -> None:
    pool = Pool(MatchAnswer(10, True))
    desk, _ = make_desk(pool)
    assert desk.decide(ask(tokens=320)).token_count == 288
    assert pool.asked == [9], "a window must hold at the shorter hit: so only that is asked for"


def test_a_local_hit_as_long_as_the_pool_s_is_kept() -> None:
    desk, _ = make_desk(Pool(MatchAnswer(3, True)))
    assert desk.decide(ask(local=96)).token_count == 0
    assert desk.known_block_count("r") == 3


def test_a_late_answer_is_waited_for_outside_of_the_steps() -> None:
    pool = Pool(MatchAnswer(0, False), cost_ms=2)
    desk, health = make_desk(pool, failure_count_max=1)
    assert desk.decide(ask()).pending
    assert desk.decide(ask()).pending
    pool.late.set_result(MatchAnswer(4, True))
    assert desk.decide(ask()).token_count == 128
    assert health.up, "late is not away"
    assert (len(pool.asked), pool.late_count) == (1, 1)


def test_a_late_answer_is_not_waited_for_for_ever() -> None:
    pool = Pool(MatchAnswer(0, False), cost_ms=2)
    desk, health = make_desk(pool, failure_count_max=1)
    while desk.decide(ask()).pending:
        pool.now_ms += 1
    assert pool.now_ms == 20
    assert desk.decide(ask()).reason == OUT_OF_BUDGET
    assert not health.up
    assert (len(pool.asked), pool.late_count) == (1, 1)


def test_a_late_look_up_that_fails_ends_the_wait() -> None:
    pool = Pool(MatchAnswer(0, False))
    desk, _ = make_desk(pool)
    assert desk.decide(ask()).pending
    pool.late.set_result(MatchAnswer(0, False))
    assert desk.decide(ask()).reason == OUT_OF_BUDGET


def test_nobody_waits_for_a_node_that_became_away_meanwhile() -> None:
    pool = Pool(MatchAnswer(0, False))
    desk, health = make_desk(pool, failure_count_max=2)
    assert desk.decide(ask()).pending
    assert desk.decide(ask()._replace(request_id="other")).pending
    health.lost(pool.now_ms)
    assert not desk.decide(ask()).pending
    assert not desk.decide(ask()._replace(request_id="other")).pending
    third = desk.decide(ask()._replace(request_id="third"))
    assert (third.token_count, third.reason) == (0, NODE_AWAY)
    assert len(pool.asked) == 2


def test_a_node_that_is_gone_is_not_waited_for() -> None:
    pool = Pool(MatchAnswer(0, False, lost=True))
    desk, health = make_desk(pool)
    assert desk.decide(ask()).reason == NODE_AWAY
    assert not health.up
    assert len(pool.asked) == 1


def test_a_node_that_is_away_costs_no_call() -> None:
    pool = Pool(MatchAnswer(10, True))
    desk, _ = make_desk(pool, up=False)
    assert desk.decide(ask()).reason == NODE_AWAY
    assert pool.asked == []


def test_after_a_failed_load_a_request_gets_nothing_more() -> None:
    pool = Pool(MatchAnswer(10, True))
    desk, _ = make_desk(pool)
    assert desk.decide(ask()).token_count == 320
    desk.give_up("r")
    assert desk.decide(ask()).reason == GAVE_UP
    assert desk.decide(ask(attempt=1)).token_count == 0
    assert desk.known_block_count("r") == 0
    assert len(pool.asked) == 1


def test_a_request_that_starts_anew_is_looked_up_anew() -> None:
    pool = Pool(MatchAnswer(2, True), MatchAnswer(5, True))
    desk, _ = make_desk(pool)
    assert desk.decide(ask()).token_count == 64
    assert desk.decide(ask(attempt=1)).token_count == 160


def test_what_must_not_be_shared_is_not_asked_for() -> None:
    pool = Pool(MatchAnswer(10, True))
    desk, _ = make_desk(pool)
    assert desk.decide(ask(obstacle="media")).reason == "media"
    assert desk.decide(ask(tokens=20, count=0)._replace(request_id="short")).reason == "shorter_than_a_block"
    assert pool.asked == []


def test_more_requests_than_may_be_tracked_are_computed() -> None:
    health = Health(failure_count_max=1)
    health.probed(True, 0)
    pool = Pool(MatchAnswer(10, True))
    desk = LookupDesk(pool.matcher, health=health, limits=LookupLimits(request_count_max=2), clock_ms=pool.clock)
    tokens = [desk.decide(ask()._replace(request_id=name)).token_count for name in ("a", "b", "c", "a")]
    assert tokens == [320, 320, 0, 320]


def test_nothing_is_remembered_of_requests_that_are_gone() -> None:
    desk, _ = make_desk(Pool(MatchAnswer(10, True)))
    for index in range(100):
        desk.decide(ask()._replace(request_id=str(index)))
        desk.forget(str(index))
    assert len(desk) == 0


# Saves ------------------------------------------------------------------------------------------------------

LIMITS = saving.SaveLimits(block_count_max=4, retry_ms_min=100, retry_ms_max=400)


def due(progress: saving.SaveProgress, complete: int, *, now: float = 0, chain: list[bytes] | None = None) -> range:
    return saving.due_range(progress, block_hashes=chain or hashes(10), complete=complete, now_ms=now, limits=LIMITS)


def test_blocks_are_offered_once_in_order_and_in_bounded_portions() -> None:
    progress = saving.SaveProgress()
    seen: list[int] = []
    for complete in (0, 1, 1, 6, 6, 9):
        positions = due(progress, complete)
        seen.extend(positions)
        if positions:
            saving.offered(progress, end=positions.stop, block_hashes=hashes(10))
    assert seen == list(range(9))


def test_a_block_without_a_hash_is_not_offered() -> None:
    assert due(saving.SaveProgress(), 10, chain=hashes(3)) == range(3)


def test_what_could_not_be_stored_is_offered_again_after_a_growing_while() -> None:
    progress = saving.SaveProgress()
    now = 0.0
    waits = []
    for _ in range(5):
        positions = due(progress, 3, now=now)
        assert positions == range(3)
        saving.offered(progress, end=3, block_hashes=hashes(10))
        saving.fell_short(progress, end=0, block_hashes=hashes(10), now_ms=now, limits=LIMITS)
        assert not due(progress, 3, now=now)
        waits.append(progress.retry_at_ms - now)
        now = progress.retry_at_ms
    assert waits == [100, 200, 400, 400, 400]
    saving.offered(progress, end=3, block_hashes=hashes(10))
    saving.stored(progress)
    assert progress.retry_ms == 0


def test_a_chain_whose_tokens_were_changed_is_offered_from_the_start() -> None:
    progress = saving.SaveProgress()
    saving.offered(progress, end=3, block_hashes=hashes(3))
    changed = [*hashes(2), b"x" * 32, b"y" * 32]
    assert due(progress, 4, chain=changed) == range(4)


def test_a_window_group_offers_only_blocks_that_it_still_has() -> None:
    chain = hashes(6)
    rows = [[11, 12, 13, 14, 15, 16], [0, 0, 0, 24, 25, 26]]
    runs = saving.make_runs([FULL, WINDOW], block_hashes=chain, block_numbers=rows, positions=range(1, 6))
    assert [(run.kv_group, run.first, run.block_numbers) for run in runs] == [
        (0, 1, (12, 13, 14, 15, 16)),
        (1, 3, (24, 25, 26)),
    ]
    assert [run.parent_hash for run in runs] == [chain[0], chain[2]]
    assert [run.block_hashes for run in runs] == [tuple(chain[1:]), tuple(chain[3:])]


def test_the_first_block_of_a_chain_has_no_parent_and_short_rows_end_a_run() -> None:
    (run,) = saving.make_runs([FULL], block_hashes=hashes(6), block_numbers=[[11, 12]], positions=range(6))
    assert (run.parent_hash, run.block_numbers) == (b"", (11, 12))
