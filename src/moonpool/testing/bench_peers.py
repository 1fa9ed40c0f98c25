"""The same workload on two engines with other ways to share KV: none, Moonpool, Mooncake's store, LMCache MP.

``python -m moonpool.testing.bench_peers`` (or ``make bench-peers``) installs the peers into environments of their own
below `.cache/peers`, starts each with two engines in turn, and shows all in one table. A peer that cannot be
installed or started is a line that says why.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp
import msgspec

from moonpool.errors import MoonpoolError
from moonpool.testing.bench_engines import MODEL_NAME, run_benchmark
from moonpool.testing.bench_engines_rows import Row
from moonpool.testing.bench_engines_sharing import Asker, measure_rounds, pool_rows, sharing_rows
from moonpool.testing.bench_peers_services import lmcache_service, mooncake_service
from moonpool.testing.demo_stack import Stack
from moonpool.testing.engines import Engine, EngineSpec, start_all, stop_all
from moonpool.testing.models import MODEL_FOLDER_DEFAULT, model_folder
from moonpool.testing.processes import Progress


class Wiring(msgspec.Struct, frozen=True):
    """How engines are tied to a service that shares KV."""

    flags: dict[str, tuple[str, ...]]  # engine name → flags
    environment: dict[str, str] = {}
    python: str = sys.executable
    stack: Stack | None = None


Service = Callable[[Path, Progress], AbstractAsyncContextManager[Wiring]]


@contextlib.asynccontextmanager
async def nothing(_folder: Path, _progress: Progress) -> AsyncIterator[Wiring]:
    """Engines alone."""
    yield Wiring({"A": (), "B": ()})


@contextlib.asynccontextmanager
async def moonpool(folder: Path, progress: Progress) -> AsyncIterator[Wiring]:
    """Our pool."""
    async with Stack(folder, progress=progress) as stack:
        yield Wiring({name: await stack.connector_flags(name) for name in "AB"}, stack=stack)


@contextlib.asynccontextmanager
async def mooncake(folder: Path, progress: Progress) -> AsyncIterator[Wiring]:
    """Mooncake's store with vLLM's own connector for it."""
    async with mooncake_service(folder, progress) as (python, flags, environment):
        yield Wiring({"A": flags, "B": flags}, environment, python)


@contextlib.asynccontextmanager
async def lmcache(folder: Path, progress: Progress) -> AsyncIterator[Wiring]:
    """LMCache's server with shared memory, and vLLM's own connector for it."""
    async with lmcache_service(folder, progress) as (python, flags, environment):
        yield Wiring({"A": flags, "B": flags}, environment, python)


SERVICES: dict[str, Service] = {"none": nothing, "moonpool": moonpool, "mooncake": mooncake, "lmcache": lmcache}


async def measure(arguments: argparse.Namespace, folder: Path, progress: Progress) -> list[Row]:
    """Every chosen way in turn."""
    model = await asyncio.to_thread(model_folder, arguments.model_folder, progress=progress)
    rows: list[Row] = []
    for name in arguments.ways:
        progress(f"{name}:")
        below = folder / name
        below.mkdir()
        try:
            rows += await _measure_one(name, model, below, rounds=arguments.rounds, progress=progress)
        except MoonpoolError as error:
            progress(f"{name} could not be measured: {error}")
            rows.append(Row(name=f"{name}.ttft.across", value=float("nan"), unit="ms",
                            remark=f"not measured: {str(error).splitlines()[0][:90]}"))  # fmt: skip
    return rows


async def _measure_one(name: str, model: Path, folder: Path, *, rounds: int, progress: Progress) -> list[Row]:
    async with SERVICES[name](folder, progress) as wiring, aiohttp.ClientSession() as session:
        engines = [
            Engine(
                EngineSpec(name=letter, model_folder=model, model_name=MODEL_NAME, log_folder=folder,
                           connector_flags=wiring.flags[letter], environment=wiring.environment,
                           python=wiring.python),
                progress=progress,
            )
            for letter in "AB"
        ]  # fmt: skip
        await start_all(engines)
        try:
            asker = Asker(session, stack=wiring.stack, progress=progress)
            measured = await measure_rounds(asker, engines[0], engines[1], alone=None, count=rounds)
        finally:
            await stop_all(engines)
    return sharing_rows(name, measured) + pool_rows(name, measured)


def main() -> int:
    """Parses the command line and measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", choices=[*SERVICES, []], help="which (default: all)")
    parser.add_argument("--model-folder", type=Path, default=MODEL_FOLDER_DEFAULT)
    parser.add_argument("--json", type=Path, help="write one JSON object a line to this file")
    parser.add_argument("--rounds", type=int, default=3, help="new prefixes a way (default %(default)s)")
    arguments = parser.parse_args()
    arguments.ways = arguments.ways or list(SERVICES)
    return run_benchmark("two vLLM engines, four ways to share", arguments, measure)


if __name__ == "__main__":
    sys.exit(main())
