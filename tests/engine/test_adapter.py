"""The adapter itself, driven by hand as vLLM drives it, without an engine: both roles, real tensors, a real node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from llm import PATIENCE

from moonpool.testing.cluster import Cluster, wait_until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

BLOCK, BLOCK_COUNT, LAYER_COUNT = 32, 16, 3


def vllm_config(cluster: Cluster, model: Path) -> Any:
    """As much of vLLM's configuration as the connector reads."""
    import torch

    transfer = SimpleNamespace(
        kv_connector_extra_config={"moonpool.runtime_folder": str(cluster.folder), **PATIENCE},
        engine_id="by-hand", kv_load_failure_policy="recompute", kv_role="kv_both",
        is_kv_consumer=True, is_kv_producer=True,
    )  # fmt: skip
    model_config = SimpleNamespace(
        model=str(model), served_model_name="tiny", dtype=torch.float32, architecture="LlamaForCausalLM",
        quantization=None, hf_config={"hidden_size": 128}, hf_overrides={}, revision=None,
        get_total_num_kv_heads=lambda: 2, get_head_size=lambda: 32,
    )  # fmt: skip
    return SimpleNamespace(
        kv_transfer_config=transfer,
        model_config=model_config,
        cache_config=SimpleNamespace(
            cache_dtype="auto", prefix_caching_hash_algo="sha256_cbor", enable_prefix_caching=True, block_size=BLOCK
        ),
        parallel_config=SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=1),
        load_config=SimpleNamespace(load_format="auto"),
        speculative_config=None,
    )


def cache_config() -> Any:
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=2, head_size=32, dtype=torch.float32)
    group = SimpleNamespace(layer_names=[f"layer{index}" for index in range(LAYER_COUNT)], kv_cache_spec=spec)
    return SimpleNamespace(
        kv_cache_groups=[group], num_blocks=BLOCK_COUNT, kv_cache_layout="LBHNC", hash_block_size=BLOCK
    )


class FakeRequest:
    """A request of four full blocks and a token more."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.block_hashes = [bytes([index]) * 32 for index in range(1, 5)]
        self.num_tokens = self.num_prompt_tokens = 4 * BLOCK + 1
        self.num_preemptions = self.num_computed_tokens = 0
        self.skip_reading_prefix_cache = False
        self.lora_request = self.prompt_embeds = None
        self.mm_features: list[Any] = []


class Engine:
    """One scheduler and one worker, stepped by hand."""

    def __init__(self, cluster: Cluster, model: Path) -> None:
        import torch
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

        from moonpool.connectors.vllm import MoonpoolConnector

        config, cache = vllm_config(cluster, model), cache_config()
        self.scheduler = MoonpoolConnector(config, KVConnectorRole.SCHEDULER, cache)
        self.worker = MoonpoolConnector(config, KVConnectorRole.WORKER, cache)
        self.tensors = {
            name: torch.zeros(BLOCK_COUNT, 2, BLOCK, 64, dtype=torch.float32)
            for name in cache.kv_cache_groups[0].layer_names
        }
        self.worker.register_kv_caches(self.tensors)
        assert self.worker._worker.obstacle == ""
        self.scheduler.bind_kv_cache_manager(SimpleNamespace(block_pool=None))
        wait_until(lambda: self.scheduler._face.parts.link.up, "the scheduler's side to be connected")
        wait_until(lambda: self.worker._worker._link.up, "the worker's side to be connected")

    def match(self, request: FakeRequest) -> int:
        self.scheduler.on_new_request(request)
        found: list[int] = []

        def answered() -> bool:
            tokens, asynchronous = self.scheduler.get_num_new_matched_tokens(request, 0)
            if tokens is None:
                return False
            assert asynchronous == (tokens > 0)
            found.append(tokens)
            return True

        wait_until(answered, "an answer to the look-up")
        return found[-1]

    def admit(self, request: FakeRequest, blocks: list[int], load: int) -> None:
        self.scheduler.update_state_after_alloc(request, SimpleNamespace(get_block_ids=lambda: (blocks,)), load)

    def step(self, scheduled: dict[str, int], blocks: list[int]) -> Any:
        """Plan, run and report one step; the worker's results."""
        state = SimpleNamespace(get_block_ids=lambda _: (blocks,))
        output = SimpleNamespace(
            num_scheduled_tokens=scheduled, scheduled_spec_decode_tokens={}, kv_connector_block_state=state,
            preempted_req_ids=None,
        )  # fmt: skip
        self.worker.bind_connector_metadata(self.scheduler.build_connector_meta(output))
        assert self.worker._worker.drain(10_000)
        self.worker.wait_for_save()
        results = self.worker.get_transfer_results(set())
        self.scheduler.update_connector_output(
            SimpleNamespace(
                kv_connector_worker_meta=self.worker.build_connector_worker_meta(),
                finished_recving=results.finished_recving,
                failed_recving=results.failed_recving,
            )
        )
        self.worker.clear_connector_metadata()
        return results

    def stop(self) -> None:
        self.scheduler.shutdown()
        self.worker.shutdown()


def test_blocks_go_through_the_adapter_and_come_back(
    cluster: Cluster, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from vllm.v1.core import kv_cache_utils

    from moonpool.connectors import vllm as adapter
    from moonpool.connectors.worker import Shard

    monkeypatch.setattr(adapter, "_shard", lambda *_: Shard())
    monkeypatch.setattr(kv_cache_utils, "NONE_HASH", b"\x07" * 32, raising=False)
    first, second = Engine(cluster, llama), Engine(cluster, llama)
    try:
        cold = FakeRequest("cold")
        assert first.match(cold) == 0
        for tensor in first.tensors.values():
            tensor.copy_(torch.randn(tensor.shape))
        first.admit(cold, [3, 5, 7, 9, 11], 0)
        first.step({"cold": 4 * BLOCK + 1}, [3, 5, 7, 9, 11])
        first.scheduler.request_finished_all_groups(cold, ([3, 5, 7, 9, 11],))
        first.step({}, [])
        assert first.scheduler._face.parts.ledger.outcomes()[-1].saved_blocks == 4

        warm = FakeRequest("warm")
        assert second.match(warm) == 4 * BLOCK
        second.admit(warm, [2, 4, 6, 8, 10], 4 * BLOCK)
        results = second.step({}, [])
        assert (results.finished_recving, results.failed_recving) == ({"warm"}, set())
        for name, tensor in second.tensors.items():
            for mine, theirs in zip((2, 4, 6, 8), (3, 5, 7, 9), strict=True):
                assert torch.equal(tensor[mine], first.tensors[name][theirs])
            assert not tensor[[0, 1, 3, 5, 7, 9, 10, 11]].any(), "no other block was touched"
        second.scheduler.request_finished_all_groups(warm, ([2, 4, 6, 8, 10],))
        second.step({}, [])
        assert second.scheduler._face.parts.ledger.outcomes()[-1].applied_tokens == 4 * BLOCK
        assert first.scheduler._shield.caught_count == second.worker._shield.caught_count == 0

        assert second.scheduler.reset_cache()
        assert second.match(FakeRequest("after a reset")) == 0
    finally:
        first.stop()
        second.stop()


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [("mm_features", [object()], "media"), ("prompt_embeds", object(), "prompt_embeddings")],
)
def test_what_clients_supply_is_refused_and_why_says_so(
    field: str, value: Any, reason: str, cluster: Cluster, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.core import kv_cache_utils

    from moonpool.connectors import vllm as adapter
    from moonpool.connectors.request_reasons import REQUEST_REASONS
    from moonpool.connectors.worker import Shard

    monkeypatch.setattr(adapter, "_shard", lambda *_: Shard())
    monkeypatch.setattr(kv_cache_utils, "NONE_HASH", b"\x09" * 32, raising=False)
    engine = Engine(cluster, llama)
    try:
        request = FakeRequest(f"with {reason}")
        setattr(request, field, value)
        assert engine.match(request) == 0
        engine.admit(request, [3, 5, 7, 9, 11], 0)
        engine.step({request.request_id: 4 * BLOCK + 1}, [3, 5, 7, 9, 11])
        engine.scheduler.request_finished_all_groups(request, ([3, 5, 7, 9, 11],))
        engine.step({}, [])
        outcome = engine.scheduler._face.parts.ledger.outcomes()[-1]
        assert (outcome.reason, outcome.saved_blocks) == (reason, 0)
        counters = engine.scheduler._face.parts.ledger.counters()
        assert counters.misses_by_reason == {reason: 1}
        # In a process of its own, because it leaves out what its own process told the node.
        command = [sys.executable, "-m", "moonpool", "why", "--request", request.request_id]
        command += ["--runtime-folder", str(cluster.folder)]
        told: list[str] = []

        def explained() -> bool:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            told[:] = [done.stdout]
            return "prompt tokens" in told[0]

        wait_until(explained, "the node to know of the request", timeout_s=60)
        assert REQUEST_REASONS[reason].meaning in told[0]
        assert "connector.share_media" in told[0]
    finally:
        engine.stop()


def test_an_answer_that_is_late_is_a_hit_all_the_same(
    cluster: Cluster, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.core import kv_cache_utils

    from moonpool.connectors import vllm as adapter
    from moonpool.connectors.lookup import MatchAnswer
    from moonpool.connectors.worker import Shard

    monkeypatch.setattr(adapter, "_shard", lambda *_: Shard())
    monkeypatch.setattr(kv_cache_utils, "NONE_HASH", b"\x08" * 32, raising=False)
    engine = Engine(cluster, llama)
    try:
        cold = FakeRequest("cold")
        engine.match(cold)
        engine.admit(cold, [3, 5, 7, 9, 11], 0)
        engine.step({"cold": 4 * BLOCK + 1}, [3, 5, 7, 9, 11])
        desk = engine.scheduler._face.side._desk
        desk._matcher = desk._matcher._replace(now=lambda *_: MatchAnswer(0, False))  # never in time
        assert engine.scheduler.get_num_new_matched_tokens(FakeRequest("warm"), 0) == (None, False)
        assert engine.match(FakeRequest("warm")) == 4 * BLOCK
    finally:
        engine.stop()
