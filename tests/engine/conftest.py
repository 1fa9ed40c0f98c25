"""Engines, models and clusters for tests with a real vLLM. Starting an engine takes half a minute: they are shared."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tiny_models import GEMMA3, LLAMA, make_model

from moonpool.testing.cluster import Cluster


@pytest.fixture(scope="session")
def models_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def llama(models_folder: Path) -> Path:
    return make_model(models_folder / "llama", LLAMA)


@pytest.fixture(scope="session")
def gemma(models_folder: Path) -> Path:
    return make_model(models_folder / "gemma", GEMMA3)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A node and a directory in a folder whose socket paths are short enough."""
    with tempfile.TemporaryDirectory(prefix="mp-") as folder, Cluster(folder) as started:
        yield started
