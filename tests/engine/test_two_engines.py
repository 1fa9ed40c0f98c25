"""Two llama engines on one pool: equal answers, and every fault of the node is a miss."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from llm import BLOCK, Answer, Llm, prompt_of

from moonpool.identity import decode_description
from moonpool.testing.cluster import Cluster, wait_until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

# Cached against recomputed: the same numbers in another order of additions.
RECOMPUTED_DISTANCE_MAX = 1e-3

seeds = count(1)


@pytest.fixture(scope="module")
def engines(cluster: Cluster, llama: Path) -> Iterator[tuple[Llm, Llm]]:
    first = Llm("A", llama, runtime_folder=cluster.folder, flags={"num_gpu_blocks_override": 48})
    second = Llm("B", llama, runtime_folder=cluster.folder, faulty=True)
    with ThreadPoolExecutor() as pool:
        for started in [pool.submit(first.start), pool.submit(second.start)]:
            started.result()
    yield first, second
    first.stop()
    second.stop()


def test_what_one_engine_computed_the_other_loads_and_answers_alike(engines: tuple[Llm, Llm]) -> None:
    a, b = engines
    prompt = prompt_of(next(seeds), 10 * BLOCK + 5)
    cold = a.ask(prompt)
    assert a.outcome(cold).saved_blocks == 10
    assert a.outcome(cold).applied_tokens == 0
    warm_a = a.ask(prompt)
    assert a.outcome(warm_a).local_tokens == 10 * BLOCK
    warm_b = b.ask(prompt)
    outcome = b.outcome(warm_b)
    assert (outcome.applied_tokens, outcome.promised_tokens, outcome.local_tokens) == (10 * BLOCK, 10 * BLOCK, 0)
    assert outcome.byte_count == 10 * BLOCK * 4 * 2 * 2 * 32 * 4  # tokens, layers, k and v, heads, size, float32
    assert warm_b.logprobs == warm_a.logprobs, "cached against cached: bit for bit"
    assert warm_b.distance(cold) < RECOMPUTED_DISTANCE_MAX


def test_a_conversation_moves_between_the_engines(engines: tuple[Llm, Llm]) -> None:
    a, b = engines
    prompt = prompt_of(next(seeds), 4 * BLOCK + 9)
    for turn in range(4):
        here, there = (a, b) if turn % 2 == 0 else (b, a)
        answer = here.ask(prompt, tokens=BLOCK)
        outcome = here.outcome(answer)
        if turn:
            # All of the turn before but its last, unfinished block, and at most the one whose last token was
            # computed when its step was planned.
            assert outcome.applied_tokens + outcome.local_tokens >= (len(prompt) // BLOCK - 2) * BLOCK
            assert outcome.applied_tokens > 0
        recomputed = there.ask(prompt, tokens=1)
        assert recomputed.tokens == answer.tokens[:1]
        prompt = [*prompt, *answer.tokens, *prompt_of(next(seeds), BLOCK)]


def test_a_prefix_that_the_pool_lost_is_stored_again_from_the_engine_s_own_cache(
    engines: tuple[Llm, Llm], cluster: Cluster
) -> None:
    a, b = engines
    prompt = prompt_of(next(seeds), 6 * BLOCK + 1)
    a.ask(prompt)
    with cluster.connect() as pool:
        assert pool.clear(0) > 0
    again = a.ask(prompt)
    assert a.outcome(again).local_tokens == 6 * BLOCK
    assert a.outcome(again).saved_blocks == 6
    assert b.outcome(b.ask(prompt)).applied_tokens == 6 * BLOCK


def test_preempted_requests_are_answered_and_come_back_from_the_pool(engines: tuple[Llm, Llm]) -> None:
    a, b = engines
    prompts = [prompt_of(next(seeds), 5 * BLOCK + 3) for _ in range(8)]
    # Eight requests that grow to 13 blocks each do not fit into 48: the last ones are preempted and start anew.
    together = [future.result(120) for future in [a.submit(prompt, tokens=8 * BLOCK) for prompt in prompts]]
    alone = [b.ask(prompt, tokens=8 * BLOCK) for prompt in prompts]
    for mine, other in zip(together, alone, strict=True):
        assert len(mine.tokens) == 8 * BLOCK
        same = next(
            (i for i, pair in enumerate(zip(mine.tokens, other.tokens, strict=True)) if pair[0] != pair[1]), None
        )
        assert same is None or margin(other, same) < RECOMPUTED_DISTANCE_MAX


def margin(answer: object, index: int) -> float:
    """How close the two best tokens were."""
    ranked = answer.logprobs[index]  # type: ignore[attr-defined]
    return float(ranked[0][1] - ranked[1][1])


# Faults of the node -----------------------------------------------------------------------------------------


@contextmanager
def switched(cluster: Cluster, name: str) -> Iterator[None]:
    """A fault of `FaultyConnector`, on inside the block."""
    switch = cluster.folder / name
    switch.touch()
    try:
        yield
    finally:
        switch.unlink()


@contextmanager
def held_load(cluster: Cluster, engine: Llm, prompt: list[int]) -> Iterator[Future[Answer]]:
    """A request of this engine whose load is under way and does not end inside the block."""
    marker = cluster.folder / "holding"
    marker.unlink(missing_ok=True)
    with switched(cluster, "hold"):
        future = engine.submit(prompt)
        wait_until(marker.exists, "a load to begin", timeout_s=30)
        yield future


def wait_for_hits(a: Llm, b: Llm) -> None:
    """Until what A stores from now on is a hit on B."""

    def hit() -> bool:
        prompt = prompt_of(next(seeds), 3 * BLOCK + 1)
        a.ask(prompt, tokens=1)
        return b.outcome(b.ask(prompt, tokens=1)).applied_tokens == 3 * BLOCK

    wait_until(hit, "hits to be back", timeout_s=20)


def test_a_node_that_always_says_yes_and_fails_every_read_gets_one_try_a_request(
    engines: tuple[Llm, Llm], cluster: Cluster
) -> None:
    _, b = engines
    with switched(cluster, "lie"):
        prompts = [prompt_of(next(seeds), 8 * BLOCK + 1) for _ in range(4)]
        futures = [b.submit(prompt) for prompt in prompts]
        answers = [future.result(120) for future in futures]
    for answer, prompt in zip(answers, prompts, strict=True):
        outcome = b.outcome(answer)
        assert (outcome.promised_tokens, outcome.applied_tokens) == (8 * BLOCK, 0)
        assert outcome.reason == "never_stored"
        assert outcome.saved_blocks == 8, "what the node had not is stored after all"
        assert b.ask(prompt).tokens == answer.tokens


def test_objects_that_vanish_between_look_up_and_read_are_computed(engines: tuple[Llm, Llm], cluster: Cluster) -> None:
    a, b = engines
    prompt = prompt_of(next(seeds), 8 * BLOCK + 1)
    cold = a.ask(prompt)
    with held_load(cluster, b, prompt) as future, cluster.connect() as pool:
        assert pool.clear(0) > 0
    answer = future.result(120)
    assert answer.distance(cold) < RECOMPUTED_DISTANCE_MAX
    outcome = b.outcome(answer)
    assert (outcome.promised_tokens, outcome.applied_tokens, outcome.reason) == (8 * BLOCK, 0, "cleared")


def test_aborts_during_loads_leak_no_block_and_leave_no_writer(engines: tuple[Llm, Llm], cluster: Cluster) -> None:
    a, b = engines
    prompt = prompt_of(next(seeds), 20 * BLOCK + 1)
    cold = a.ask(prompt)
    for _ in range(6):  # 120 blocks in all: more than the engine has
        b.forget()
        with held_load(cluster, b, prompt) as future:
            assert future.cancel()
            other = b.ask(prompt_of(next(seeds), 2 * BLOCK), tokens=2)
            assert len(other.tokens) == 2, "the engine goes on while the load is held"
            assert b.outcome(future.request_id).reason == "aborted"  # type: ignore[attr-defined]
    b.ask(prompt_of(next(seeds), 1), tokens=2)
    b.forget()  # fails while any block is still taken
    assert b.ask(prompt).distance(cold) < RECOMPUTED_DISTANCE_MAX


def test_a_node_killed_while_an_engine_loads_is_a_miss_and_hits_come_back(
    engines: tuple[Llm, Llm], cluster: Cluster
) -> None:
    a, b = engines
    prompt = prompt_of(next(seeds), 8 * BLOCK + 1)
    cold = a.ask(prompt)
    with held_load(cluster, b, prompt) as future:
        cluster.node.kill()
    answer = future.result(120)
    assert answer.distance(cold) < RECOMPUTED_DISTANCE_MAX
    assert b.outcome(answer).reason in ("unavailable", "timed_out")
    b.forget()
    alone = b.ask(prompt)
    assert alone.tokens == cold.tokens
    assert b.outcome(alone).reason == "unavailable"
    cluster.node.start()
    wait_for_hits(a, b)


def test_requests_under_load_survive_a_node_that_is_killed_and_started_again(
    engines: tuple[Llm, Llm], cluster: Cluster
) -> None:
    a, b = engines
    shared = prompt_of(next(seeds), 4 * BLOCK)
    prompts = [[*shared, *prompt_of(next(seeds), BLOCK + 1)] for _ in range(12)]
    expected = [b.ask(prompt, tokens=8) for prompt in prompts]
    b.forget()
    futures = [engine.submit(prompt, tokens=8) for prompt in prompts for engine in (a, b)]
    cluster.node.kill()
    cluster.node.start()
    for future, answer in zip(futures, [answer for answer in expected for _ in range(2)], strict=True):
        got = future.result(120)
        first = next(
            (i for i, pair in enumerate(zip(got.tokens, answer.tokens, strict=True)) if pair[0] != pair[1]), None
        )
        assert first is None or margin(answer, first) < RECOMPUTED_DISTANCE_MAX
    wait_for_hits(a, b)


def test_a_node_that_is_stopped_makes_nobody_fail_and_hits_come_back(
    engines: tuple[Llm, Llm], cluster: Cluster
) -> None:
    a, b = engines
    prompts = [prompt_of(next(seeds), 5 * BLOCK + 1) for _ in range(6)]
    expected = [a.ask(prompt) for prompt in prompts]
    with cluster.node.stopped():
        answers = [future.result(120) for future in [b.submit(prompt) for prompt in prompts]]
        later = [b.ask(prompt_of(next(seeds), 2 * BLOCK + 1)) for _ in range(3)]
    for answer, other in zip(answers, expected, strict=True):
        assert answer.distance(other) < RECOMPUTED_DISTANCE_MAX
        assert b.outcome(answer).applied_tokens == 0
    assert [b.outcome(answer).reason for answer in later] == ["unavailable"] * 3, "asked no more while it is away"
    wait_for_hits(a, b)


def test_a_directory_that_is_gone_costs_nothing(engines: tuple[Llm, Llm], cluster: Cluster) -> None:
    a, b = engines
    assert cluster.directory is not None
    cluster.directory.kill()
    prompt = prompt_of(next(seeds), 5 * BLOCK + 1)
    a.ask(prompt)
    assert b.outcome(b.ask(prompt)).applied_tokens == 5 * BLOCK
    cluster.directory.start()


# Around it --------------------------------------------------------------------------------------------------


def test_node_and_directory_know_the_engines_and_their_outcomes(engines: tuple[Llm, Llm], cluster: Cluster) -> None:
    a, b = engines
    prompt = prompt_of(next(seeds), 5 * BLOCK + 1)
    a.ask(prompt)
    answer = b.ask(prompt)

    def described() -> bool:
        with cluster.connect() as pool:
            clients = pool.stat()["connections"]
        descriptions = [decode_description(client.get("description")) for client in clients]
        return any(
            outcome.request_id.startswith(answer.request_id) and outcome.applied_tokens == 5 * BLOCK
            for description in descriptions
            if description is not None and description.engine_id == "B"
            for outcome in description.outcomes
        )

    wait_until(described, "the node to show the outcome", timeout_s=10)


def test_a_reset_moves_to_a_namespace_of_its_own(engines: tuple[Llm, Llm]) -> None:
    """Last: the engine shares nothing with the other any more."""
    a, b = engines
    prompt = prompt_of(next(seeds), 5 * BLOCK + 1)
    a.ask(prompt)
    assert b.outcome(b.ask(prompt)).applied_tokens == 5 * BLOCK
    assert b.roll()
    assert b.outcome(b.ask(prompt)).applied_tokens == 0
    b.forget()
    assert b.outcome(b.ask(prompt)).applied_tokens == 5 * BLOCK, "its own new copy"
