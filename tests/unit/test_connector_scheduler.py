"""The scheduler's side against a pool of plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from connector_fakes import GROUP, NAMESPACE, FakeLink, FakeRequest

from moonpool.connectors.adapters import Sharing, refuse
from moonpool.connectors.health import Health
from moonpool.connectors.loading import CANCELLED
from moonpool.connectors.lookup import LookupDesk, LookupLimits, MatchAnswer, Matcher
from moonpool.connectors.outcomes import Ledger
from moonpool.connectors.plans import FileStamp, LoadReport, SaveReport, StepPlan, StepReport
from moonpool.connectors.scheduler import SchedulerSide, Scope

# Scheduler --------------------------------------------------------------------------------------------------


def no_late(*_: Any) -> Any:
    raise AssertionError("every answer of this pool comes at once")


class Bench:
    """A scheduler's side whose pool holds ``known`` blocks of every chain."""

    def __init__(self, known: int = 0, *, load_obstacle: str = "", save_obstacle: str = "") -> None:
        self.known = known
        self.now_ms = 0.0
        self.link = FakeLink()
        self.ledger = Ledger(outcome_count=64)
        health = Health(failure_count_max=2)
        health.probed(True, 0)
        self.desk = desk = LookupDesk(
            Matcher(
                now=lambda _, block_hashes, __: MatchAnswer(min(self.known, len(block_hashes)), True), late=no_late
            ),
            health=health,
            limits=LookupLimits(),
            clock_ms=lambda: self.now_ms,
        )
        self.side = SchedulerSide(
            [GROUP],
            desk=desk,
            link=self.link,
            ledger=self.ledger,
            clock_ms=lambda: self.now_ms,  # type: ignore[arg-type]
        )
        self.side.scope = Scope(NAMESPACE, load_obstacle, save_obstacle)

    def admit(self, request: FakeRequest, *, local: int = 0, sharing: Sharing | None = None) -> int:
        decision = self.side.matched(request, local_token_count=local, sharing=sharing)
        rows = [list(range(100, 100 + len(request.block_hashes) + 1))]
        self.side.admitted(request, block_numbers=rows, load_token_count=decision.token_count)
        return decision.token_count

    def plan(self, **complete: int) -> StepPlan:
        return self.side.plan(complete.items(), resolve_blocks=lambda _: [list(range(100, 120))])

    def report(
        self, *, loads: Any = None, saves: Any = None, finished: Sequence[str] = (), failed: Sequence[str] = ()
    ) -> None:
        self.side.received(StepReport(loads or {}, saves or {}), finished=finished, failed=failed)

    def last_outcome(self) -> Any:
        return self.ledger.outcomes()[-1]


def test_a_cold_request_is_saved_as_its_blocks_become_complete() -> None:
    bench = Bench()
    request = FakeRequest("r")
    assert bench.admit(request) == 0
    first, second = bench.plan(r=4), bench.plan(r=10)
    assert [(order.first, order.end) for order in (*first.saves, *second.saves)] == [(0, 4), (4, 10)]
    assert second.saves[0].runs[0].parent_hash == request.block_hashes[3]
    assert bench.plan(r=10).saves == ()


def test_a_hit_orders_one_load_and_does_not_save_what_the_pool_has() -> None:
    bench = Bench(known=8)
    request = FakeRequest("r")
    assert bench.admit(request, local=64) == 6 * 32
    plan = bench.plan()
    (order,) = plan.loads
    assert [(run.first, run.block_numbers) for run in order.runs] == [(2, tuple(range(102, 108)))]
    assert bench.plan().loads == ()
    bench.report(loads={"r": LoadReport(6, 600, 1.5)}, finished=["r"])
    assert [(save.first, save.end) for save in bench.plan(r=10).saves] == [(8, 10)]
    bench.side.ended("r")
    bench.report()
    outcome = bench.last_outcome()
    assert (outcome.local_tokens, outcome.promised_tokens, outcome.applied_tokens) == (64, 192, 192)
    assert (outcome.byte_count, outcome.load_ms, outcome.reason) == (600, 1.5, "stored_less")


def test_what_the_pool_lost_of_a_local_prefix_is_offered_again() -> None:
    bench = Bench(known=3)
    bench.admit(FakeRequest("r"), local=8 * 32)
    assert [(save.first, save.end) for save in bench.plan(r=10).saves] == [(3, 10)]


def test_a_load_counts_only_when_every_shard_has_applied_it() -> None:
    bench = Bench(known=10)
    bench.admit(FakeRequest("r"))
    bench.report(loads={"r": LoadReport(10, 500, 2.0)})
    assert bench.side.loading_count == 1, "one of two workers is still loading"
    bench.report(loads={"r": LoadReport(4, 200, 3.0, "evicted")}, finished=["r"], failed=["r"])
    assert bench.side.loading_count == 0
    bench.side.ended("r")
    bench.report()
    outcome = bench.last_outcome()
    assert (outcome.promised_tokens, outcome.applied_tokens, outcome.reason) == (320, 0, "evicted")
    assert bench.ledger.counters().applied_tokens == 0


def test_a_failed_load_is_recomputed_once_and_everything_is_offered_again() -> None:
    bench = Bench(known=10)
    request = FakeRequest("r")
    bench.admit(request)
    bench.plan()
    bench.report(loads={"r": LoadReport(0, 0, 1.0, "evicted")}, finished=["r"], failed=["r"])
    assert bench.admit(request) == 0
    assert bench.plan().loads == ()
    assert [(save.first, save.end) for save in bench.plan(r=10).saves] == [(0, 10)]


def test_a_liar_gets_one_load_a_request_and_never_a_loop() -> None:
    bench = Bench(known=10)
    for index in range(20):
        request = FakeRequest(str(index))
        assert bench.admit(request) > 0
        assert len(bench.plan().loads) == 1
        bench.report(
            loads={request.request_id: LoadReport(0, 0, 0, "damaged")},
            finished=[request.request_id],
            failed=[request.request_id],
        )
        for _ in range(3):
            assert bench.admit(request) == 0
            assert bench.plan().loads == ()
        bench.side.ended(request.request_id)
        bench.report()
        assert bench.last_outcome().reason == "damaged"


def test_an_aborted_load_is_cancelled_and_its_late_report_is_harmless() -> None:
    bench = Bench(known=10)
    bench.admit(FakeRequest("r"))
    bench.plan()
    bench.side.ended("r")
    assert bench.plan().cancelled == ("r",)
    bench.report(loads={"r": LoadReport(2, 10, 1.0, CANCELLED)}, finished=["r"], failed=["r"])
    assert bench.last_outcome().reason == "aborted"
    assert bench.side.loading_count == 0


def test_a_preempted_request_starts_anew() -> None:
    bench = Bench()
    request = FakeRequest("r")
    bench.admit(request)
    assert [save.end for save in bench.plan(r=10).saves] == [10]
    bench.known = 10
    request.attempt = 1
    assert bench.admit(request) == 320
    assert len(bench.plan().loads) == 1
    bench.report(loads={"r": LoadReport(10, 1, 1.0)}, finished=["r"])
    assert bench.plan(r=10).saves == ()


def test_an_engine_that_must_not_load_still_saves_and_says_why() -> None:
    bench = Bench(known=10, load_obstacle="kv_load_failure_policy is 'fail'")
    assert bench.admit(FakeRequest("r")) == 0
    assert len(bench.plan(r=10).saves) == 1
    bench.side.ended("r")
    bench.report()
    assert (bench.last_outcome().reason, bench.last_outcome().detail) == ("off", "kv_load_failure_policy is 'fail'")


def test_nothing_is_ordered_to_be_saved_while_the_node_is_away() -> None:
    bench = Bench()
    bench.admit(FakeRequest("r"))
    bench.link.up = False
    assert bench.plan(r=10).saves == ()
    bench.link.up = True
    assert [save.end for save in bench.plan(r=10).saves] == [10]


@pytest.mark.parametrize(("failure", "end", "again"), [("no_room", 6, 6), ("no_parent", 4, 0), ("timed_out", 4, 4)])
def test_a_save_that_fell_short_is_taken_up_where_it_ended(failure: str, end: int, again: int) -> None:
    bench = Bench()
    bench.admit(FakeRequest("r"))
    bench.plan(r=4)
    bench.plan(r=10)
    bench.report(saves={"r": SaveReport(first=4, end=end, stored_count=end - 4, failure=failure)})
    assert bench.plan(r=10).saves == (), "not at once"
    bench.now_ms += 10_000
    assert [(save.first, save.end) for save in bench.plan(r=10).saves] == [(again, 10)]


def test_blocks_left_out_for_another_request_s_load_error_are_offered_in_the_next_step() -> None:
    bench = Bench()
    bench.admit(FakeRequest("r"))
    bench.plan(r=4)
    bench.report(saves={"r": SaveReport(first=0, end=0, failure="step_had_load_error")})
    assert [(save.first, save.end) for save in bench.plan(r=4).saves] == [(0, 4)]


def test_saved_blocks_of_the_last_step_are_still_counted() -> None:
    bench = Bench()
    bench.admit(FakeRequest("r"))
    bench.plan(r=10)
    bench.side.ended("r")
    bench.report(saves={"r": SaveReport(first=0, end=10, stored_count=10, byte_count=1000)})
    assert bench.last_outcome().saved_blocks == 10
    assert bench.ledger.counters().blocks_saved == 10


def test_a_roll_waits_for_loads_and_keeps_old_blocks_out_of_the_new_namespace() -> None:
    bench = Bench(known=10)
    loading, running = FakeRequest("loading"), FakeRequest("running")
    bench.admit(loading)
    assert not bench.side.roll(78)
    bench.plan()
    bench.report(loads={"loading": LoadReport(10, 1, 1.0)}, finished=["loading"])
    bench.known = 0
    bench.admit(running)
    assert bench.side.roll(78)
    assert bench.plan(running=10, loading=10).saves == ()
    after = FakeRequest("after")
    bench.admit(after)
    assert [save.namespace_id for save in bench.plan(after=10).saves] == [78]


# Namespaces of requests -------------------------------------------------------------------------------------

STAMPS = (FileStamp("/adapter", (1, 2)),)


def test_a_request_with_an_adapter_is_looked_up_loaded_and_saved_in_its_own_namespace() -> None:
    bench = Bench(known=4)
    asked: list[int] = []
    honest = bench.desk._matcher.now
    bench.desk._matcher = bench.desk._matcher._replace(
        now=lambda namespace_id, *question: (asked.append(namespace_id), honest(namespace_id, *question))[1]
    )
    bench.admit(FakeRequest("base"))
    bench.admit(FakeRequest("r"), sharing=Sharing(123, stamps=STAMPS))
    assert asked == [NAMESPACE, 123]
    plan = bench.plan(base=10, r=10)
    assert [order.namespace_id for order in plan.loads] == [NAMESPACE, 123]
    assert [(order.namespace_id, order.stamps) for order in plan.saves] == [(NAMESPACE, ()), (123, STAMPS)]


@pytest.mark.parametrize("obstacle", ["media", "prompt_embeddings", "adapter_changed"])
def test_a_request_that_may_not_share_neither_loads_nor_saves_and_says_why(obstacle: str) -> None:
    bench = Bench(known=10)
    assert bench.admit(FakeRequest("r"), sharing=refuse(obstacle, "in words")) == 0
    plan = bench.plan(r=10)
    assert (plan.loads, plan.saves) == ((), ())
    bench.side.ended("r")
    bench.report()
    assert (bench.last_outcome().reason, bench.last_outcome().detail) == (obstacle, "in words")
    assert bench.ledger.counters().misses_by_reason == {obstacle: 1}


def test_a_request_that_must_compute_its_prompt_still_saves_it() -> None:
    bench = Bench(known=0)
    bench.admit(FakeRequest("r"), sharing=Sharing(NAMESPACE, "prompt_logprobs"))
    assert len(bench.plan(r=10).saves) == 1


def test_a_request_that_came_before_the_identity_saves_nothing_when_it_is_known() -> None:
    bench = Bench()
    bench.side.scope = Scope(0, "the identity is not known yet", "the identity is not known yet")
    bench.admit(FakeRequest("early"))
    bench.side.scope = Scope(NAMESPACE)
    bench.admit(FakeRequest("later"))
    assert [save.request_id for save in bench.plan(early=10, later=10).saves] == ["later"]


def test_an_adapter_that_changed_before_a_save_ends_the_saving_of_its_request() -> None:
    bench = Bench()
    bench.admit(FakeRequest("r"), sharing=Sharing(123, stamps=STAMPS))
    bench.plan(r=4)
    bench.report(saves={"r": SaveReport(first=0, end=0, failure="adapter_changed")})
    bench.now_ms += 10_000
    assert bench.plan(r=10).saves == ()


# Plans ------------------------------------------------------------------------------------------------------


def test_reports_of_two_workers_say_what_both_have() -> None:
    first = StepReport(
        loads={"a": LoadReport(5, 50, 2.0), "b": LoadReport(1, 10, 1.0)},
        saves={"c": SaveReport(0, 6, 6, 60)},
    )
    second = StepReport(
        loads={"a": LoadReport(3, 30, 4.0, "evicted")}, saves={"c": SaveReport(0, 4, 4, 40, "no_room")}, node_away=True
    )
    merged = first.merge(second)
    assert merged.loads == {"a": LoadReport(3, 80, 4.0, "evicted"), "b": LoadReport(1, 10, 1.0)}
    assert merged.saves == {"c": SaveReport(0, 4, 6, 100, "no_room")}
    assert merged.node_away
    assert merged == second.merge(first)
