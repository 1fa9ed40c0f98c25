"""Which candidate is best, and why; all predictions are those of moonpool.scheduling."""

from __future__ import annotations

from moonpool.conductor.scoring import Candidate, Load, rank
from moonpool.scheduling.costs import Costs
from moonpool.scheduling.decode_cost import FittedDecode
from moonpool.scheduling.estimate import Estimator
from moonpool.scheduling.prefill_cost import FittedPrefill
from moonpool.scheduling.transfer_cost import SharedLink

# A millisecond a token, 1,000 tokens a second from another host, 10,000 from the disk.
COSTS = Costs(
    FittedPrefill(0.001, 0.0, 0.0, 0.0),
    FittedDecode(),
    SharedLink(kv_token_bytes=1.0, bandwidth_bytes_per_second=10_000.0, disk_bytes_per_second=10_000.0),
)
ESTIMATOR = Estimator(COSTS)


def names(candidates: list[Candidate], *, token_count: int = 1_000, turn: int = 0) -> list[str]:
    scored = rank(candidates, token_count=token_count, estimator=ESTIMATOR, turn=turn)
    return [each.instance_id for each in scored]


def test_the_one_that_holds_more_comes_first_and_says_what_it_is_good_for() -> None:
    candidates = [
        Candidate(name="none", reason="it holds nothing of this prompt"),
        Candidate(name="half", engine_tokens=256, dram_tokens=256),
    ]
    best, other = rank(candidates, token_count=1_000, estimator=ESTIMATOR)
    assert (best.instance_id, best.score, best.ttft_ms) == ("half", 1.0, 488.0)
    assert best.hit == {"engine": 256, "dram": 256, "disk": 0, "remote": 0}
    assert best.reason == "256 tokens in engine, 256 tokens in dram"
    assert (other.instance_id, other.ttft_ms, other.score) == ("none", 1_000.0, 0.488)
    assert (other.reason, other.grounds) == ("it holds nothing of this prompt", "least_loaded")


def test_load_weighs_against_cache() -> None:
    """Fault 26: a busy worker with a large cache against an idle one with a small one."""
    candidates = [
        Candidate(name="busy", engine_tokens=900, load=Load(queue_ms=2_000)),
        Candidate(name="idle", engine_tokens=100),
    ]
    assert names(candidates) == ["idle", "busy"]
    candidates[0] = Candidate(name="busy", engine_tokens=900, load=Load(queued_tokens=500))
    assert names(candidates) == ["busy", "idle"]


def test_equal_ones_take_turns_and_the_engine_s_own_cache_goes_before_memory() -> None:
    candidates = [Candidate(name=name) for name in "ABC"]
    assert [names(candidates, turn=turn)[0] for turn in range(6)] == list("ABCABC")
    candidates = [Candidate(name="memory", dram_tokens=512), Candidate(name="engine", engine_tokens=512)]
    assert names(candidates, turn=0) == names(candidates, turn=1) == ["engine", "memory"]


def test_a_prefix_is_fetched_where_that_is_faster() -> None:
    fetches = Candidate(name="A", engine_tokens=100, source="node-2", source_tokens=900)
    (scored,) = rank([fetches], token_count=1_000, estimator=ESTIMATOR)
    assert scored.hit == {"engine": 100, "dram": 0, "disk": 0, "remote": 800}
    assert (scored.load_ms, scored.ttft_ms, scored.grounds) == (80.0, 180.0, "fetched_prefix")
    assert scored.reason == "100 tokens in engine, 800 tokens in remote; fetched from node-2"


def test_what_lies_on_disk_is_loaded_only_where_that_is_faster() -> None:
    (scored,) = rank([Candidate(name="A", disk_tokens=500)], token_count=1_000, estimator=ESTIMATOR)
    assert (scored.hit["disk"], scored.ttft_ms) == (500, 550.0)
    slow = Estimator(Costs(COSTS.prefill, COSTS.decode, SharedLink(kv_token_bytes=1.0, disk_bytes_per_second=100.0)))
    (scored,) = rank([Candidate(name="A", disk_tokens=500)], token_count=1_000, estimator=slow)
    assert (scored.hit["disk"], scored.ttft_ms) == (0, 1_000.0)
    assert scored.reason == "what it holds is not worth loading"


def test_nobody_and_nothing_are_answered() -> None:
    assert rank([], token_count=10, estimator=ESTIMATOR) == []
    assert names([Candidate(name="A")], token_count=0) == ["A"]
