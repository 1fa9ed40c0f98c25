"""What holds for every test: replayable failures, cheap tests first, nothing left running."""

from __future__ import annotations

import os
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

LEFTOVERS = ("moonpool", "vllm")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cheap tests first: unit, then processes, then real engines."""
    order = ["engine", "slow", "process"]

    def cost(item: pytest.Item) -> int:
        marks = {mark.name for mark in item.iter_markers()}
        return next((len(order) - place for place, name in enumerate(order) if name in marks), 0)

    items.sort(key=cost)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A test that leaves one of our processes or an engine running fails the whole run."""
    left = [line for line in descendants(os.getpid()) if any(word in line for word in LEFTOVERS)]
    if left:
        session.config.get_terminal_writer().line("\nprocesses left running:\n  " + "\n  ".join(left), red=True)
        session.exitstatus = 1


def descendants(process_id: int) -> list[str]:
    """'pid command line' of every living process below this one."""
    found: list[str] = []
    for children in Path(f"/proc/{process_id}/task").glob("*/children"):
        for child in children.read_text().split():
            try:
                command = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # ended in between
                continue
            if command:
                found.append(f"{child} {command.strip()}")
            found.extend(descendants(int(child)))
    return found
