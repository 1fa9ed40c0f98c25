"""What holds for every test: replayable failures, cheap tests first, nothing left running."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    import pytest

# A failure prints the blob that replays it; no deadlines, because a shared machine is not a stop-watch.
settings.register_profile(
    "default", print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.register_profile("ci", settings.get_profile("default"), max_examples=200)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# Command lines of our processes, of engines and of workers that a test spawned; not of multiprocessing's own tracker.
LEFTOVERS = re.compile(r"-m moonpool|bin/moonpool|vllm\.entrypoints|VLLM::|multiprocessing\.spawn import spawn_main")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cheap tests first: unit, then processes, then real engines."""
    order = ["engine", "slow", "process"]

    def cost(item: pytest.Item) -> int:
        marks = {mark.name for mark in item.iter_markers()}
        return next((len(order) - place for place, name in enumerate(order) if name in marks), 0)

    items.sort(key=cost)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A test that leaves one of our processes or an engine running fails the whole run."""
    left = [line for line in descendants(os.getpid()) if LEFTOVERS.search(line)]
    if left:
        session.config.get_terminal_writer().line("\nprocesses left running:\n  " + "\n  ".join(left), red=True)
        session.exitstatus = 1


def descendants(process_id: int) -> list[str]:
    """'pid command line' of every living process below this one."""
    found: list[str] = []
    for task in Path(f"/proc/{process_id}/task").glob("*/children"):
        for child in read_bytes(task).split():
            command = read_bytes(Path(f"/proc/{int(child)}/cmdline")).replace(b"\0", b" ").decode(errors="replace")
            if command:
                found.append(f"{int(child)} {command.strip()}")
            found.extend(descendants(int(child)))
    return found


def read_bytes(path: Path) -> bytes:
    """What a file of /proc says; nothing when the process has ended in between."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
