"""What a user installs: light, typed, and with a stub that names what the native module has."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import click
import pytest

import moonpool._native
from moonpool.cli import COMMANDS
from moonpool.cli import moonpool as command_group

STUB = ast.parse((Path(moonpool.__file__).parent / "_native.pyi").read_text())


def stub_names(body: list[ast.stmt]) -> set[str]:
    """Public names that the statements of a stub declare."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            is_alias = isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias"
            names |= set() if is_alias else {node.target.id}
    return {name for name in names if not name.startswith("_")}


STUB_CLASSES = {node.name: stub_names(node.body) for node in STUB.body if isinstance(node, ast.ClassDef)}


def test_stub_and_native_module_have_the_same_names() -> None:
    assert stub_names(STUB.body) == {name for name in vars(moonpool._native) if not name.startswith("_")}


@pytest.mark.parametrize("name", STUB_CLASSES)
def test_stub_and_native_class_have_the_same_members(name: str) -> None:
    members = {item for item in vars(getattr(moonpool._native, name)) if not item.startswith("_")}
    assert STUB_CLASSES[name] == members


def test_package_says_that_it_is_typed() -> None:
    assert resources.files("moonpool").joinpath("py.typed").is_file()


@pytest.mark.parametrize("module", ["moonpool", "moonpool.cli", "moonpool.connectors", "moonpool.testing"])
def test_importing_brings_no_engine_library_and_starts_nothing(module: str) -> None:
    program = (
        f"import json, sys, threading, {module}\nprint(json.dumps([sorted(sys.modules), threading.active_count()]))"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    modules, thread_count = json.loads(output)
    roots = {name.partition(".")[0] for name in modules}
    assert roots & {"vllm", "torch", "numpy", "transformers", "openai", "pydantic", "fastapi"} == set()
    assert thread_count == 1


@pytest.fixture
def installed() -> str:
    """The version of the installed package."""
    try:
        return metadata.version("moonpool")
    except metadata.PackageNotFoundError:  # run from a source tree
        pytest.skip("moonpool is not installed in this environment")


def test_version_is_the_same_everywhere(installed: str) -> None:
    assert moonpool.__version__ == installed == moonpool._native.__version__


def test_command_line_answers(installed: str) -> None:
    command = [sys.executable, "-m", "moonpool", "--version"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert installed in output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_and_explains_itself(name: str) -> None:
    command = command_group.get_command(click.Context(command_group), name)
    assert command is not None
    assert command.help
