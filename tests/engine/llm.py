"""A real vLLM engine for tests: `AsyncLLM` in this process, its scheduler and workers in their own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from moonpool.identity import RequestOutcome
from moonpool.testing.cluster import wait_until

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
# A busy machine answers late; what is tested here is what happens, not how soon.
PATIENCE = {
    "moonpool.lookup_budget_ms": 100, "moonpool.pending_ms_max": 1000, "moonpool.load_call_ms": 5000,
    "moonpool.save_call_ms": 2000, "moonpool.save_deadline_ms": 5000,
}  # fmt: skip
START_S_MAX = 420.0
ANSWER_S_MAX = 120.0
STOP_S_MAX = 60.0
BLOCK = 32
LOGPROBS = 5


class Answer(msgspec.Struct, frozen=True):
    """Greedy tokens and, for each, the log-probabilities of the best tokens, best first."""

    request_id: str
    tokens: tuple[int, ...]
    logprobs: tuple[tuple[tuple[int, float], ...], ...]
    finish_reason: str

    def distance(self, other: Answer) -> float:
        """Largest difference of the log-probability of a token that both rank; the tokens must be equal."""
        assert self.tokens == other.tokens
        return max(
            abs(mine[token] - theirs[token])
            for mine, theirs in zip(map(dict, self.logprobs), map(dict, other.logprobs), strict=True)
            for token in mine.keys() & theirs.keys()
        )


class LoraAdapter(msgspec.Struct, frozen=True):
    """What a request says of its LoRA adapter."""

    name: str
    number: int
    folder: Path


class Llm:
    """One engine. ``flags`` are fields of vLLM's AsyncEngineArgs; ``faulty`` takes the connector of `faulty.py`."""

    def __init__(
        self, name: str, model: Path, *, runtime_folder: Path, flags: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None, policy: str = "recompute", faulty: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self.report = runtime_folder / f"report-{name}.jsonl"
        self._environment = {**ENVIRONMENT, **(environment or {})}
        self._flags = {
            "model": str(model), "skip_tokenizer_init": True, "dtype": "float32", "max_model_len": 1024,
            "enforce_eager": True, "block_size": BLOCK, "seed": 0, "prefix_caching_hash_algo": "sha256_cbor",
            "num_gpu_blocks_override": 96, "max_num_seqs": 8, **(flags or {}),
        }  # fmt: skip
        self._transfer = {
            "kv_connector": "FaultyConnector" if faulty else "MoonpoolConnector", "kv_role": "kv_both",
            "kv_connector_module_path": "faulty" if faulty else "moonpool.connectors.vllm",
            "kv_load_failure_policy": policy,
            "kv_connector_extra_config": {
                "moonpool.runtime_folder": str(runtime_folder), "moonpool.engine_id": name,
                "moonpool.report_path": str(self.report), **PATIENCE,
            },
        }  # fmt: skip
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"llm-{name}", daemon=True)
        self._engine: Any = None
        self._counter = 0

    def start(self) -> None:
        """Start and answer one short request: the first one of a process is slow."""
        self._thread.start()
        with ExitStack() as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for name, value in self._environment.items():
                patch.setenv(name, value)
            asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(START_S_MAX)
        self.ask([3] * 40, tokens=2)

    async def _start(self) -> None:
        from vllm.config import KVTransferConfig
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        arguments = AsyncEngineArgs(**self._flags, kv_transfer_config=KVTransferConfig(**self._transfer))
        self._engine = AsyncLLM.from_engine_args(arguments)

    def stop(self) -> None:
        """End the engine's processes, and its tasks and loop here: what is collected later would warn."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(STOP_S_MAX)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_S_MAX)
        self._loop.close()

    async def _stop(self) -> None:
        if self._engine is not None:
            self._engine.shutdown()
        self._engine = None
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def submit(
        self, prompt: list[int], *, tokens: int = 4, adapter: LoraAdapter | None = None, salt: str = ""
    ) -> Future[Answer]:
        """Ask without waiting; cancelling the future aborts the request."""
        self._counter += 1
        request_id = f"{self.name}-{self._counter}"
        future = asyncio.run_coroutine_threadsafe(
            self._generate(_question(prompt, salt), tokens, request_id, adapter), self._loop
        )
        future.request_id = request_id  # type: ignore[attr-defined]
        return future

    def ask(self, prompt: list[int], *, tokens: int = 4, adapter: LoraAdapter | None = None, salt: str = "") -> Answer:
        """Ask and wait for the answer."""
        return self.submit(prompt, tokens=tokens, adapter=adapter, salt=salt).result(ANSWER_S_MAX)

    async def _generate(
        self, question: dict[str, Any], tokens: int, request_id: str, adapter: LoraAdapter | None
    ) -> Answer:
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest

        parameters = SamplingParams(
            max_tokens=tokens, temperature=0, logprobs=LOGPROBS, ignore_eos=True, detokenize=False
        )
        last: Any = None
        lora = None if adapter is None else LoRARequest(adapter.name, adapter.number, str(adapter.folder))
        async for output in self._engine.generate(question, parameters, request_id, lora_request=lora):
            last = output.outputs[0]
        ranked = tuple(
            tuple(sorted(((token, entry.logprob) for token, entry in step.items()), key=lambda pair: -pair[1]))
            for step in last.logprobs
        )
        return Answer(request_id, tuple(last.token_ids), ranked, str(last.finish_reason))

    def forget(self) -> None:
        """Drop the engine's own prefix cache, so that the next hit can come from the pool only.

        Works once no block is taken any more: a load that was aborted gives its blocks back a step later.
        """

        def forgotten() -> bool:
            return bool(asyncio.run_coroutine_threadsafe(self._engine.reset_prefix_cache(), self._loop).result(60))

        wait_until(forgotten, f"engine {self.name} to use no block any more", timeout_s=20)

    def roll(self) -> bool:
        """Reset the engine's cache and the connector's, as after a change of weights."""
        reset = self._engine.reset_prefix_cache(reset_connector=True)
        return bool(asyncio.run_coroutine_threadsafe(reset, self._loop).result(60))

    def outcomes(self) -> list[RequestOutcome]:
        """What the connector has reported so far."""
        if not self.report.exists():
            return []
        return [msgspec.json.decode(line, type=RequestOutcome) for line in self.report.read_bytes().split(b"\n")[:-1]]

    def outcome(self, answer: Answer | str) -> RequestOutcome:
        """The connector's report of one request."""
        request_id = answer if isinstance(answer, str) else answer.request_id
        found: list[RequestOutcome] = []

        def reported() -> bool:
            found[:] = [item for item in self.outcomes() if item.request_id.rpartition("-")[0] == request_id]
            return bool(found)

        wait_until(reported, f"engine {self.name} to report request {request_id}", timeout_s=10)
        return found[-1]


def _question(prompt: list[int], salt: str) -> dict[str, Any]:
    return {"prompt_token_ids": prompt, **({"cache_salt": salt} if salt else {})}


def prompt_of(seed: int, count: int) -> list[int]:
    """Token ids that no other seed begins with."""
    return [3 + (seed * 7919 + index * (seed % 97 + 13) + index * index // 7) % 500 for index in range(count)]
