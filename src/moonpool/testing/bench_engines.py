"""The numbers of two real vLLM engines that share one pool, each with its target beside it.

``python -m moonpool.testing.bench_engines`` (or ``make bench-engines``): engines A and B with the connector and a
third one without, on this machine's CPU. Ends with exit code 0 when everything could be measured; whether the
targets were met stands in the table and in the JSON lines.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import aiohttp
from rich.console import Console

from moonpool.errors import MoonpoolError
from moonpool.testing.bench_engines_faults import measure_engine_killed, measure_faults
from moonpool.testing.bench_engines_rows import Row, print_rows, screen, write_rows
from moonpool.testing.bench_engines_sharing import (
    Asker,
    cost_rows,
    measure_rounds,
    measure_unique,
    pool_rows,
    sharing_rows,
)
from moonpool.testing.demo_stack import Stack
from moonpool.testing.engines import Engine, EngineSpec, start_all, stop_all
from moonpool.testing.models import MODEL_FOLDER_DEFAULT, model_folder
from moonpool.testing.processes import Progress

MODEL_NAME = "smollm2"
EXIT_ERROR = 2


async def measure(arguments: argparse.Namespace, folder: Path, progress: Progress) -> list[Row]:
    """Everything that was asked for, in order."""
    model = await asyncio.to_thread(model_folder, arguments.model_folder, progress=progress)
    rows: list[Row] = []
    async with Stack(folder, progress=progress) as stack, aiohttp.ClientSession() as session:
        engines = [
            Engine(
                EngineSpec(name=name, model_folder=model, model_name=MODEL_NAME, log_folder=folder,
                           connector_flags=await stack.connector_flags(name) if name != "alone" else ()),
                progress=progress,
            )
            for name in ("A", "B", "alone")
        ]  # fmt: skip
        first, second, alone = engines
        await start_all(engines)
        try:
            asker = Asker(session, stack=stack, progress=progress)
            rounds = await measure_rounds(asker, first, second, alone=alone, count=arguments.rounds)
            unique = await measure_unique(asker, first, alone=alone, count=arguments.unique)
            rows += sharing_rows("moonpool", rounds) + pool_rows("moonpool", rounds)
            rows += cost_rows("moonpool", rounds, unique)
            await alone.stop()
            if arguments.fault_seconds > 0:
                rows += await measure_faults(asker, [first, second], stack=stack, seconds=arguments.fault_seconds)
                rows += await measure_engine_killed(asker, [first, second])
        finally:
            await stop_all(engines)
    return rows


def run_benchmark(
    title: str,
    arguments: argparse.Namespace,
    work: Callable[[argparse.Namespace, Path, Progress], Coroutine[None, None, list[Row]]],
) -> int:
    """Runs `work` below a fresh folder, shows and writes its rows, cleans up. The exit code."""
    console = Console(stderr=True, soft_wrap=True)
    started_s = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="moonpool-bench-"))

    def progress(text: str) -> None:
        console.print(f"[{time.monotonic() - started_s:5.0f} s] {text}", markup=False, highlight=False)

    try:
        rows = asyncio.run(work(arguments, folder, progress))
    except MoonpoolError as error:
        console.print(f"error: {error}", style="red", markup=False)
        kept = shutil.copytree(folder, Path(".cache/bench-logs"), dirs_exist_ok=True,
                               ignore=shutil.ignore_patterns("run"))  # fmt: skip
        console.print(f"logs: {kept}", markup=False)
        return EXIT_ERROR
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print_rows(screen(), rows, title=f"{title}; CPU only")
    if arguments.json:
        write_rows(arguments.json, rows)
    return 0


def main() -> int:
    """Parses the command line and measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-folder", type=Path, default=MODEL_FOLDER_DEFAULT)
    parser.add_argument("--json", type=Path, help="write one JSON object a line to this file")
    parser.add_argument("--rounds", type=int, default=5, help="new prefixes (default %(default)s)")
    parser.add_argument("--unique", type=int, default=10, help="unique prompts (default %(default)s)")
    parser.add_argument("--fault-seconds", type=float, default=20, help="length of a fault; 0: none (default 20)")
    return run_benchmark("two vLLM engines on one pool", parser.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
