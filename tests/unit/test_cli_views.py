from typing import Any

import pytest

from moonpool.cli.top_view import Look, hit_rate, overview
from moonpool.cli.why_view import key_lines, node_age, outcome_lines, outcomes, reason_text
from moonpool.connectors.request_reasons import REQUEST_REASONS
from moonpool.identity.description import EngineDescription, RequestOutcome, encode_description
from moonpool.types import ReadResult, Reason, Status


def node_status(incarnation: int = 1, hits: int = 0, misses: int = 0, **counters: int) -> dict[str, Any]:
    return {
        "name": "host",
        "state": "ready",
        "uptime_ms": 12_000,
        "incarnation": incarnation,
        "table": {"hit_total": hits, "miss_total": misses, "capacity_bytes": 100, "used_bytes": 40},
        "connections": [],
        "directories": [],
        "counters": counters,
    }


def described(engine: str, *found: RequestOutcome, role: str = "scheduler") -> dict[str, Any]:
    description = encode_description(EngineDescription(engine_id=engine, role=role, outcomes=list(found)))
    return {"connections": [{"name": "vllm", "description": description}, {"name": "other", "description": "{}"}]}


def test_rates_are_those_since_the_last_look() -> None:
    before = Look(10.0, node_status(hits=100, misses=100, misses_evicted=4), None)
    shown = overview(before, Look(12.0, node_status(hits=130, misses=110, misses_evicted=10), None))
    assert shown.node is not None
    assert (shown.node["hits_per_s"], shown.node["misses_per_s"]) == (15.0, 5.0)
    assert shown.node["hit_rate_now"] == pytest.approx(0.75)
    assert shown.misses == [{"reason": "evicted", "count": 10, "per_s": 3.0}]


def test_a_restarted_node_gives_no_rates_against_its_predecessor() -> None:
    before = Look(10.0, node_status(incarnation=1, hits=1000), None)
    shown = overview(before, Look(11.0, node_status(incarnation=2, hits=1), None))
    assert shown.node is not None
    assert shown.node["hits_per_s"] is None


def test_a_node_that_is_away_is_shown_as_absent_and_the_directory_still() -> None:
    directory = {"name": "d", "state": "ready", "index": {"entry_count": 7}, "holders": [{}]}
    shown = overview(None, Look(0.0, None, directory))
    assert shown.node is None
    assert shown.directories == [{"directory": "d", "state": "ready", "lag": None, "entries": 7, "holders": 1}]


def test_the_nodes_of_the_directory_are_shown_and_which_one_is_here() -> None:
    holders = [
        {"name": "b", "incarnation": 2, "address": "10.0.0.2:7801", "entry_count": 3, "warming": True},
        {"name": "a", "incarnation": 1, "address": "10.0.0.1:7801", "entry_count": 5, "last_heard_ms": 40},
    ]
    shown = overview(None, Look(0.0, node_status(incarnation=1), {"holders": holders}))
    assert [(row["node"], row["here"], row["address"], row["state"]) for row in shown.nodes] == [
        ("a", "this host", "10.0.0.1:7801", "known"),
        ("b", "", "10.0.0.2:7801", "warming"),
    ]


def test_the_hit_rate_of_no_reads_is_unknown() -> None:
    assert hit_rate({"hit_total": 0, "miss_total": 0}) is None
    assert hit_rate({"hit_total": 3, "miss_total": 1}) == pytest.approx(0.75)


def miss(reason: Reason) -> ReadResult:
    return ReadResult(Status.MISS, reason)


def test_a_key_unknown_to_a_young_node_is_explained_by_its_restart() -> None:
    never = miss(Reason.NEVER_STORED)
    text = "\n".join(key_lines("k", never, never, node=node_status()))
    assert "this node began 12 s ago; what an earlier incarnation held is gone" in text
    old = {**node_status(), "uptime_ms": 5 * 3_600_000}
    assert "earlier incarnation" not in node_age(old)


def test_the_remembered_reason_is_told_with_what_to_do() -> None:
    lines = key_lines("k", miss(Reason.NEVER_STORED), miss(Reason.EVICTED), node=node_status())
    assert lines == [f"k: {Reason.EVICTED.meaning}", f"  {Reason.EVICTED.advice}"]


def test_without_a_node_the_reason_is_that_there_is_none() -> None:
    lines = key_lines("k", miss(Reason.UNAVAILABLE), miss(Reason.UNAVAILABLE), node=None)
    assert "no connection" in lines[0]
    assert "moonpool up" in lines[1]


def test_outcomes_of_all_processes_of_an_engine_are_merged_oldest_first() -> None:
    promised = RequestOutcome(request_id="r1", prompt_tokens=64, promised_tokens=32, finished_at=2.0)
    applied = RequestOutcome(request_id="r1", prompt_tokens=64, promised_tokens=32, applied_tokens=32, finished_at=2.0)
    earlier = RequestOutcome(request_id="r0", finished_at=1.0)
    found = outcomes([described("A", promised, earlier), None, described("A", applied, role="worker")])
    assert found == [("A", earlier), ("A", applied)]


def test_a_request_that_could_not_read_what_was_found_says_so_and_why() -> None:
    outcome = RequestOutcome(
        request_id="r",
        prompt_tokens=100,
        promised_tokens=64,
        applied_tokens=0,
        reason="unavailable",
        detail="node away",
    )
    text = "\n".join(outcome_lines("A", outcome))
    assert "64 were found in the pool, 0 could be read" in text
    assert "no connection to the peer, or this process may not map its memory: node away" in text
    assert "moonpool up" in text


def test_a_connectors_own_word_stands_for_itself() -> None:
    assert reason_text("first_use") == ("first use", "")
    for label, told in REQUEST_REASONS.items():
        assert reason_text(label) == told
    assert reason_text("evicted")[0] == Reason.EVICTED.meaning
