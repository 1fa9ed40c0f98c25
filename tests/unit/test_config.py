"""Settings: what wins, what is refused, and that each value knows where it came from."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonpool.config import Config, load, load_with_origins, native_limits
from moonpool.config.load import declared_settings
from moonpool.config.values import format_value, parse_duration, parse_size, unit_of
from moonpool.errors import ConfigError

NOTHING: dict[str, str] = {"HOME": "/nonexistent"}


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(**arguments: object) -> ConfigError:
    arguments.setdefault("environment", NOTHING)
    with pytest.raises(ConfigError) as caught:
        load(**arguments)  # type: ignore[arg-type]
    return caught.value


def test_later_source_wins_and_origin_says_which(tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    file.write_text('[node]\nsegment_bytes = "1GiB"\nsite = "file"\nname = "file"\n[client]\nmatch_budget_ms = 3\n')
    environment = NOTHING | {"MOONPOOL_NODE__SITE": "environment", "MOONPOOL_NODE__NAME": "environment"}
    loaded = load_with_origins(file, overrides=["node.name=flag"], environment=environment)
    node = loaded.config.node
    assert (node.segment_bytes, node.site, node.name) == (2**30, "environment", "flag")
    assert loaded.config.client.match_budget_ms == 3
    origins = {setting.path: setting.origin for setting in loaded.settings}
    assert origins["node.segment_bytes"] == f"file {file}"
    assert origins["node.site"] == "environment MOONPOOL_NODE__SITE"
    assert origins["node.name"] == "flag"
    assert origins["node.http_port"] == "default"
    assert origins["node.arena_bytes"].startswith("chosen: ")


def test_file_is_found_by_variable_then_in_folder_then_at_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".config" / "moonpool").mkdir(parents=True)
    (home / ".config" / "moonpool" / "config.toml").write_text('node.site = "home"')
    environment = {"HOME": str(home)}
    assert load(environment=environment).node.site == "home"
    (tmp_path / "moonpool.toml").write_text('node.site = "folder"')
    assert load(environment=environment).node.site == "folder"
    (tmp_path / "named.toml").write_text('node.site = "named"')
    environment["MOONPOOL_CONFIG"] = str(tmp_path / "named.toml")
    assert load(environment=environment).node.site == "named"
    environment["MOONPOOL_CONFIG"] = str(tmp_path / "absent.toml")
    assert refused(environment=environment).kind == "bad_file"


@pytest.mark.parametrize(
    ("overrides", "near"),
    [
        (["node.segment_byte=1GiB"], "node.segment_bytes"),
        (["segment_bytes=1GiB"], "node.segment_bytes"),
        (["nod.http_port=1"], "node.http_port"),
        (["connector.lookup_budget=2"], "connector.lookup_budget_ms"),
        (["node.limits.copy_hold=2s"], "node.limits.copy_hold_ms"),
    ],
)
def test_unknown_setting_is_refused_with_its_path_and_the_nearest(overrides: list[str], near: str) -> None:
    error = refused(overrides=overrides)
    assert error.kind == "unknown_setting"
    assert overrides[0].partition("=")[0] in str(error)
    assert f"did you mean {near}?" in str(error)


def test_unknown_setting_is_refused_from_every_source(tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    file.write_text("[node]\nsegment = 1\n")
    assert str(file) in str(refused(path=file))
    error = refused(environment=NOTHING | {"MOONPOOL_NODE__SEGMENT": "1"})
    assert "MOONPOOL_NODE__SEGMENT" in str(error)
    assert refused(overrides={"node.segment": 1}).kind == "unknown_setting"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"node.segment_bytes": "4Gi"}, "4GiB"),
        ({"node.segment_bytes": "1023KiB"}, "at least 1 MiB"),
        ({"node.segment_bytes": -1}, ">= 0"),
        ({"node.segment_bytes": True}, "int"),
        ({"node.segment_bytes": 1.5}, "int"),
        ({"client.match_budget_ms": "0"}, ">= 1"),
        ({"client.match_budget_ms": "2 fortnights"}, "milliseconds"),
        ({"client.shared_memory": "maybe"}, "true or false"),
        ({"node.http_port": 70000}, "<= 65535"),
        ({"node.name": "a b"}, "regex"),
        ({"node.arena_bytes": "2GiB", "node.segment_bytes": "1GiB"}, "more than node.segment_bytes"),
        ({"runtime_folder": "/" + "x" * 120}, "shorter runtime_folder"),
        ({"telemetry.log_level": "loud"}, "regex"),
        ({"node": 1}, "section"),
        (["node.name"], "section.name=value"),
    ],
)
def test_bad_value_is_refused_with_what_is_accepted(overrides: dict[str, object], message: str) -> None:
    error = refused(overrides=overrides)
    assert error.kind == "bad_value"
    assert message in str(error)


def test_broken_file_is_refused_with_its_path(tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    file.write_text("[node\n")
    error = refused(path=file)
    assert error.kind == "bad_file"
    assert str(file) in str(error)


@pytest.mark.parametrize("path", ["node.http_host", "directory.http_host"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "some.name"])
def test_listening_beyond_this_host_needs_a_named_secret(path: str, host: str) -> None:
    assert refused(overrides={path: host}).kind == "insecure_listen"
    load(overrides={path: host, "secret_file": "/some/secret"}, environment=NOTHING)


@pytest.mark.parametrize("path", ["node.listen", "directory.listen"])
@pytest.mark.parametrize("place", ["0.0.0.0:0", "[::]:7801", "10.0.0.1:7801", "127.0.0.1:1,some.name:7801"])
def test_serving_other_hosts_needs_a_named_secret(path: str, place: str) -> None:
    assert refused(overrides={path: place}).kind == "insecure_listen"
    load(overrides={path: place, "secret_file": "/some/secret"}, environment=NOTHING)


@pytest.mark.parametrize("place", ["127.0.0.1", "7801", ":7801", "[::1]", "::1:7801", "h:65536", "h:-1", "/a/b:1"])
def test_what_is_no_host_and_port_is_refused(place: str) -> None:
    error = refused(overrides={"node.listen": place})
    assert error.kind == "bad_value"
    assert "host:port" in str(error)


def test_a_node_that_takes_any_address_tells_its_host_name() -> None:
    given: dict[str, object] = {"node.listen": "0.0.0.0:0", "secret_file": "/some/secret"}
    assert load(overrides=given, environment=NOTHING).node.advertise
    assert load(overrides=given | {"node.advertise": "a:1"}, environment=NOTHING).node.advertise == "a:1"
    assert not load(overrides={"node.listen": "127.0.0.1:0"}, environment=NOTHING).node.advertise


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_loopback_needs_no_named_secret(host: str) -> None:
    load(overrides={"node.http_host": host}, environment=NOTHING)


def test_paths_follow_the_runtime_folder() -> None:
    config = load(overrides={"runtime_folder": "/somewhere"}, environment=NOTHING)
    assert config.node.socket_path == "/somewhere/node.sock"
    assert config.directory.socket_path == "/somewhere/directory.sock"
    assert config.node.directories == ("/somewhere/directory.sock",)
    by_session = load(environment=NOTHING | {"XDG_RUNTIME_DIR": "/run/user/1"})
    assert by_session.runtime_folder == "/run/user/1/moonpool"


def test_lists_come_from_text_and_from_toml(tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    file.write_text('node.tenants = ["a", "b"]')
    assert load(file, environment=NOTHING).node.tenants == ("a", "b")
    assert load(file, overrides=["node.tenants=c, d"], environment=NOTHING).node.tenants == ("c", "d")


def test_every_setting_is_described_and_can_be_given_as_its_own_text() -> None:
    loaded = load_with_origins(environment=NOTHING)
    for setting in loaded.settings:
        assert setting.description, setting.path
    again = load(
        overrides=[
            f"{setting.path}={','.join(setting.value) if isinstance(setting.value, tuple) else setting.value}"
            for setting in loaded.settings
        ],
        environment=NOTHING,
    )
    assert again == loaded.config


def test_every_setting_can_be_set_by_environment() -> None:
    loaded = load_with_origins(environment=NOTHING)
    for setting in loaded.settings:
        if isinstance(setting.value, str) and setting.value:
            variable = "MOONPOOL_" + setting.path.upper().replace(".", "__")
            found = load_with_origins(environment=NOTHING | {variable: setting.value})
            origins = {each.path: each.origin for each in found.settings}
            assert origins[setting.path] == f"environment {variable}"


def test_numbers_state_their_unit_in_the_name() -> None:
    without_unit = {"http_port", "holds_per_connection", "reservations_per_connection"}  # counts by their nouns
    for leaf in declared_settings():
        name = leaf.path.rpartition(".")[2]
        if type(leaf.default) is int and name not in without_unit:
            assert unit_of(name) or "count" in name, leaf.path


def test_native_limits_are_exactly_those_that_the_servers_take() -> None:
    source = (Path(__file__).parents[2] / "native" / "io" / "node_options.cpp").read_text()
    common, of_node = source.split("void set_limit(NodeLimits&")
    names = [set(re.findall(r'name == "(\w+)"', part)) for part in (common, of_node)]
    assert set(native_limits(Config().directory.limits)) == names[0]
    assert set(native_limits(Config().node.limits)) == names[0] | names[1]


@given(st.integers(0, 2**50), st.sampled_from(["", "B", "KiB", "MiB", "GiB", "k", "mb"]))
def test_sizes_are_whole_bytes(number: int, unit: str) -> None:
    factor = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "k": 2**10, "mb": 10**6}[unit]
    assert parse_size(f"{number} {unit}") == number * factor


@given(st.integers(0, 2**55))
def test_printed_size_is_that_size_within_its_last_digit(value: int) -> None:
    assert abs(parse_size_of_print(format_value(value, "bytes")) - value) <= value * 0.005


def parse_size_of_print(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]


def test_durations() -> None:
    assert [parse_duration(text) for text in ("5", "5ms", "2s", "1.5 min", "1h")] == [5, 5, 2000, 90_000, 3_600_000]


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "1..5GiB", "nan", "1e3", "GiB"])
def test_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        parse_size(text)
