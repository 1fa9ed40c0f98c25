"""Real processes of ours in a folder of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moonpool.pool.client import Pool
from moonpool.testing.cluster import Cluster

Moonpool = Callable[..., "subprocess.CompletedProcess[bytes]"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.process)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because the name of a unix socket has at most 107 bytes."""
    made = Path(tempfile.mkdtemp(prefix="mp-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def cluster(folder: Path) -> Iterator[Cluster]:
    """A directory and a node of 64 MiB, running."""
    with Cluster(folder) as running:
        yield running


@pytest.fixture
def pool(cluster: Cluster) -> Iterator[Pool]:
    with cluster.connect() as connected:
        yield connected


@pytest.fixture
def moonpool() -> Moonpool:
    """Runs the command line: moonpool("put", "key", content=b"…") → the completed process."""

    def run(*arguments: str, content: bytes = b"", timeout: float = 60) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "moonpool", *arguments]
        return subprocess.run(command, input=content, capture_output=True, timeout=timeout, check=False)

    return run
