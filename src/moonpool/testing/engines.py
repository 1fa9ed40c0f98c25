"""Real vLLM engines with their OpenAI API, started and stopped for demos, tests and benchmarks.

The settings are for a small CPU machine: float32, one OpenMP thread an engine, 1 GiB of KV cache, eager mode. An
engine takes about 4 GiB and a minute to start; several start side by side.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Self

import aiohttp
import msgspec

from moonpool.errors import MoonpoolError
from moonpool.testing.chat import Question, ask
from moonpool.testing.processes import Child, Progress, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

READY_SECONDS_MAX = 420
ENVIRONMENT: Mapping[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # /reset_prefix_cache
    "PYTHONHASHSEED": "0",  # engines share blocks only where they hash alike
}


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to start."""

    name: str
    model_folder: Path
    model_name: str
    log_folder: Path
    connector_flags: tuple[str, ...] = ()  # as `moonpool vllm-args` prints them; empty: no connector
    environment: dict[str, str] = {}
    prefix_caching: bool = True
    context_token_count: int = 2048
    flags: tuple[str, ...] = ()
    python: str = sys.executable


def engine_command(spec: EngineSpec, port: int) -> list[str]:
    """The command line of the server. `vllm serve` would look for a distribution named vllm; the module does not."""
    caching = "--enable-prefix-caching" if spec.prefix_caching else "--no-enable-prefix-caching"
    return [
        spec.python, "-m", "vllm.entrypoints.openai.api_server",
        "--model", str(spec.model_folder), "--served-model-name", spec.model_name,
        "--host", "127.0.0.1", "--port", str(port),
        "--dtype", "float32", "--max-model-len", str(spec.context_token_count), "--enforce-eager",
        "--block-size", "32", caching, "--enable-prompt-tokens-details", "--max-num-seqs", "8",
        *spec.connector_flags, *spec.flags,
    ]  # fmt: skip


class Engine:
    """One vLLM server. `async with Engine(spec, progress=…) as engine:` starts it, waits, warms it up, stops it."""

    def __init__(self, spec: EngineSpec, *, progress: Progress = lambda text: None) -> None:
        self.spec = spec
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._progress = progress
        self.child = Child(
            f"engine {spec.name}",
            engine_command(spec, self.port),
            log_path=spec.log_folder / f"engine-{spec.name}.log",
            environment={**ENVIRONMENT, **spec.environment},
        )

    async def start(self) -> None:
        """Starts the server, waits until it is healthy and has answered one request.

        Raises MoonpoolError(start_failed) with the log's tail. The server is stopped then.
        """
        started_s = time.monotonic()
        self.child.start()
        try:
            async with aiohttp.ClientSession() as session:
                await self.child.wait_until(
                    lambda: self._healthy(session), what="ready", seconds_max=READY_SECONDS_MAX, progress=self._progress
                )
                self._progress(f"engine {self.spec.name}: warming up")
                await self.warm_up(session)
        except BaseException:
            await self.child.stop(grace_s=2)
            raise
        self._progress(f"engine {self.spec.name}: ready after {time.monotonic() - started_s:.0f} s at {self.url}")

    async def warm_up(self, session: aiohttp.ClientSession) -> None:
        """Answers two throw-away requests, a short and a longer one: the first ones of a process are slow."""
        for word_count in (5, 100):
            text = " ".join(f"{self.spec.name}{number % 10}" for number in range(word_count))
            question = Question(
                model=self.spec.model_name,
                messages=({"role": "user", "content": text},),
                token_count_max=4,
                request_id=f"warm-{self.spec.name}-{word_count}",
            )
            await ask(session, self.url, question)

    async def _healthy(self, session: aiohttp.ClientSession) -> bool:
        try:
            async with session.get(f"{self.url}/health", timeout=aiohttp.ClientTimeout(total=2)) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def stop(self) -> None:
        """Ends the server and its workers."""
        await self.child.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()


async def start_all(engines: Sequence[Engine]) -> None:
    """Starts engines side by side. When one fails, all are stopped and the first error is raised."""
    results = await asyncio.gather(*(engine.start() for engine in engines), return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors:
        await stop_all(engines)
        raise errors[0]


async def stop_all(engines: Sequence[Engine]) -> None:
    """Stops engines side by side; raises the first error after all were tried."""
    results = await asyncio.gather(*(engine.stop() for engine in engines), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def metrics_text(engine: Engine) -> str:
    """The engine's Prometheus text, to show beside our own counts. Raises MoonpoolError when it does not answer."""
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{engine.url}/metrics") as response:
            return await response.text()
    except aiohttp.ClientError as error:
        raise MoonpoolError(f"{engine.url}/metrics does not answer: {error}", kind="unavailable") from error
