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


@pytest.fixture(scope="module")
def standing() -> Iterator[Cluster]:
    """One for all tests of a module that leave it as it is: starting two processes takes a second."""
    made = Path(tempfile.mkdtemp(prefix="mp-"))
    with Cluster(made) as running:
        yield running
    shutil.rmtree(made)


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    """On the test's own `cluster` where it asks for one, else on an empty standing one."""
    own = "cluster" in request.fixturenames
    running: Cluster = request.getfixturevalue("cluster" if own else "standing")
    with running.connect() as connected:
        if not own:
            connected.clear(0)
        yield connected


@pytest.fixture
def moonpool() -> Moonpool:
    """Runs the command line: moonpool("put", "key", content=b"…") → the completed process."""

    def run(*arguments: str, content: bytes = b"", timeout: float = 60) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "moonpool", *arguments]
        return subprocess.run(command, input=content, capture_output=True, timeout=timeout, check=False)

    return run
