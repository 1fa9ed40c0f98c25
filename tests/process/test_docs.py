"""The documentation says what is there: commands, targets, settings, reasons, files, and examples that run."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import moonpool
from moonpool.cli import COMMANDS
from moonpool.config.load import declared_settings
from moonpool.telemetry.metrics import DECLARATIONS
from moonpool.testing.cluster import Cluster

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted(page for folder in ("concepts", "design", "guide") for page in (ROOT / "docs" / folder).glob("*.md"))
TEXTS = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}
EXAMPLES = [
    (name, code) for name, text in TEXTS.items() for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
]
SECTIONS = ("node", "directory", "client", "transfer", "connector", "telemetry")


def found(pattern: str) -> set[tuple[str, str]]:
    """(page, match) of every match."""
    return {(name, match) for name, text in TEXTS.items() for match in re.findall(pattern, text)}


def test_every_command_named_exists() -> None:
    named = found(r"(?:`|\$ )moonpool ([a-z][a-z-]*)")
    assert named
    assert {(page, name) for page, name in named if name not in COMMANDS} == set()


def test_every_make_target_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = found(r"(?:`|\$ )make (?:-k )?([a-z][a-z-]*)")
    assert named
    assert {(page, name) for page, name in named if name not in targets} == set()


def test_every_setting_named_exists() -> None:
    settings = {leaf.path for leaf in declared_settings()}
    named = found(rf"`((?:{'|'.join(SECTIONS)})\.[a-z_.]+[a-z])`")
    assert named
    others = {
        "node.json",
        "directory.json",
        "node.sock",
        "directory.sock",
        "connector.schedule_step",
    }  # files, a benchmark
    assert {(page, name) for page, name in named if name not in settings | others} == set()


def test_every_metric_named_exists() -> None:
    metrics = {item.name for item in DECLARATIONS}
    assert {(page, name) for page, name in found(r"`(moonpool_[a-z_]+)`") if name not in metrics} == set()


def test_every_linked_file_exists() -> None:
    broken = []
    for page, link in found(r"\]\(([^)#:]+)(?:#[^)]*)?\)"):
        if not (ROOT / page).parent.joinpath(link).exists():
            broken.append((page, link))
    assert broken == []


@pytest.mark.process
@pytest.mark.parametrize(("page", "code"), EXAMPLES, ids=[f"{page}-{i}" for i, (page, _) in enumerate(EXAMPLES)])
def test_example_runs(page: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del page
    with Cluster(tmp_path) as cluster:
        monkeypatch.setitem(os.environ, "MOONPOOL_RUNTIME_FOLDER", cluster.config.runtime_folder)
        exec(compile(code, "example", "exec"), {"moonpool": moonpool})


def test_there_are_examples() -> None:
    assert EXAMPLES
