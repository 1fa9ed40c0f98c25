"""Engines of other kinds: two workers, windows, another hash seed, the default failure policy."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from llm import BLOCK, Llm, prompt_of

from moonpool.identity import EngineDescription, decode_description, field_differences
from moonpool.testing.cluster import Cluster, wait_until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

RECOMPUTED_DISTANCE_MAX = 1e-3
seeds = count(1000)


def description_of(cluster: Cluster, engine_id: str) -> EngineDescription:
    """What the node was told by this engine, once it knows its namespace."""
    found: list[EngineDescription] = []

    def described() -> bool:
        with cluster.connect() as pool:
            clients = pool.stat()["connections"]
        found[:] = [
            description
            for client in clients
            if (description := decode_description(client.get("description"))) is not None
            and description.engine_id == engine_id
            and (description.namespace_id or description.identity_error)
        ]
        return bool(found)

    wait_until(described, f"engine {engine_id} to describe itself", timeout_s=20)
    return found[-1]


def test_two_workers_save_and_load_their_shards(cluster: Cluster, llama: Path) -> None:
    with Llm("T", llama, runtime_folder=cluster.folder, flags={"tensor_parallel_size": 2}) as engine:
        prompt = prompt_of(next(seeds), 10 * BLOCK + 5)
        cold = engine.ask(prompt)
        assert engine.outcome(cold).saved_blocks == 10
        warm = engine.ask(prompt)
        assert engine.outcome(warm).local_tokens == 10 * BLOCK
        engine.forget()
        loaded = engine.ask(prompt)
        outcome = engine.outcome(loaded)
        assert outcome.applied_tokens == 10 * BLOCK
        assert outcome.byte_count == 10 * BLOCK * 4 * 2 * 2 * 32 * 4, "both shards together are the whole KV"
        assert loaded.logprobs == warm.logprobs
        with cluster.connect() as pool:
            shards = {item.key[14:16] for item in pool.list() if item.namespace_id}
        assert len(shards) == 2


def test_windows_and_full_attention_are_stored_by_group(cluster: Cluster, gemma: Path) -> None:
    """Window 64: a hit needs the last two blocks of the window group and every block of the full one."""
    with Llm("G", gemma, runtime_folder=cluster.folder) as engine:
        prompt = prompt_of(next(seeds), 10 * BLOCK + 5)
        cold = engine.ask(prompt)
        described = description_of(cluster, "G")
        assert described.reasons == []
        assert {group.window_block_count for group in described.kv_groups} == {0, 2}
        warm = engine.ask(prompt)
        engine.forget()
        loaded = engine.ask(prompt)
        assert engine.outcome(loaded).applied_tokens == 10 * BLOCK
        assert loaded.logprobs == warm.logprobs
        assert loaded.distance(cold) < RECOMPUTED_DISTANCE_MAX

        # The window's blocks of the second half are lost: a shorter hit, the same answer.
        window_groups = {group.kv_group for group in described.kv_groups if group.window_block_count}
        longer = prompt_of(next(seeds), 10 * BLOCK + 5)
        with cluster.connect() as pool:
            engine.ask(longer[: 5 * BLOCK + 1])
            first_half = {item.key for item in pool.list() if item.kv_group in window_groups}
            cold = engine.ask(longer)
            second_half = [
                item.key for item in pool.list() if item.kv_group in window_groups and item.key not in first_half
            ]
            assert second_half
            assert all(pool.remove(second_half))
        engine.forget()
        shorter = engine.ask(longer)
        assert engine.outcome(shorter).applied_tokens == 5 * BLOCK
        assert shorter.distance(cold) < RECOMPUTED_DISTANCE_MAX


def test_engines_with_different_hash_seeds_never_share_and_the_field_is_named(cluster: Cluster, llama: Path) -> None:
    prompt = prompt_of(next(seeds), 6 * BLOCK + 1)
    with Llm("S0", llama, runtime_folder=cluster.folder, environment={"PYTHONHASHSEED": "0"}) as first:
        cold = first.ask(prompt)
        here = description_of(cluster, "S0")
    with Llm("S7", llama, runtime_folder=cluster.folder, environment={"PYTHONHASHSEED": "7"}) as second:
        other = second.ask(prompt)
        assert second.outcome(other).applied_tokens == 0
        assert other.distance(cold) < RECOMPUTED_DISTANCE_MAX
        there = description_of(cluster, "S7")
    assert here.namespace_id != there.namespace_id
    assert [difference.field for difference in field_differences(here.identity, there.identity)] == ["hash_seed"]
    assert (here.hash_seed, there.hash_seed) == ("0", "7")


def test_the_default_failure_policy_gives_no_hits_and_says_so(cluster: Cluster, llama: Path) -> None:
    with Llm("F", llama, runtime_folder=cluster.folder, policy="fail") as engine:
        prompt = prompt_of(next(seeds), 6 * BLOCK + 1)
        assert engine.outcome(engine.ask(prompt)).saved_blocks == 6
        engine.forget()
        outcome = engine.outcome(engine.ask(prompt))
        assert (outcome.promised_tokens, outcome.reason) == (0, "off")
        assert "recompute" in outcome.detail
        described = description_of(cluster, "F")
        assert (described.loads, described.saves) == (False, True)
        assert "recompute" in described.reasons[0]
