"""`moonpool config`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from moonpool.cli.config import config
from moonpool.config import http_token, load, load_or_create_secret
from moonpool.errors import ConfigError


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(config, arguments, standalone_mode=False)


def test_show_prints_value_and_origin() -> None:
    result = run("show", "--set", "node.segment_bytes=1GiB", "node.segment_bytes")
    assert result.output.split() == ["node.segment_bytes", "1", "GiB", "flag"]
    assert result.return_value == 0


def test_show_json_is_one_object_a_setting() -> None:
    rows = [json.loads(line) for line in run("show", "--json").output.splitlines()]
    assert {"path", "value", "origin", "unit", "description"} == set(rows[0])
    assert {row["path"]: row["unit"] for row in rows}["client.timeout_ms"] == "ms"


def test_shown_toml_is_a_settings_file_with_the_same_values(tmp_path: Path) -> None:
    (tmp_path / "shown.toml").write_text(run("show", "--toml", "--set", "node.tenants=a,b").output)
    again = load(tmp_path / "shown.toml")
    assert again.node.tenants == ("a", "b")
    assert again == load(overrides=["node.tenants=a,b", f"node.segment_bytes={again.node.segment_bytes}"])


def test_show_explains_and_knows_when_nothing_is_named_so() -> None:
    assert "memory offered to the pool" in run("show", "--explain", "node.segment").output
    assert run("show", "nonsense").return_value == 1


def test_token_is_that_of_the_secret_and_makes_none(tmp_path: Path) -> None:
    assert isinstance(run("token", "--runtime-folder", str(tmp_path)).exception, ConfigError)
    secret = load_or_create_secret(tmp_path)
    assert run("token", "--runtime-folder", str(tmp_path)).output.strip() == http_token(secret)
