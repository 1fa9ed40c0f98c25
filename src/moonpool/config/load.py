"""Defaults < TOML file < environment < flags, each value with where it came from."""

from __future__ import annotations

import difflib
import os
import socket
import sys
import tomllib
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from moonpool.config import memory
from moonpool.config.addresses import is_any, is_loopback, require_host_port
from moonpool.config.settings import SEGMENT_BYTES_MIN, Config
from moonpool.config.values import format_value, parse_value, plain_type, unit_of
from moonpool.errors import ConfigError

ENVIRONMENT_PREFIX = "MOONPOOL_"
FILE_VARIABLE = "MOONPOOL_CONFIG"

Overrides = Mapping[str, object] | Iterable[str]


class Setting(msgspec.Struct, frozen=True):
    """One setting as `moonpool config show` prints it."""

    path: str
    value: Any
    origin: str  # "default", "chosen: why", "file /path", "environment NAME" or "flag"
    unit: str  # "bytes", "ms" or ""
    description: str

    @property
    def text(self) -> str:
        """The value as a person reads it."""
        return format_value(self.value, self.unit)


class Loaded(msgspec.Struct, frozen=True):
    """The tree, and the same as a list with origins."""

    config: Config
    settings: tuple[Setting, ...]


class _Given(msgspec.Struct, frozen=True):
    value: object
    origin: str


class _Leaf(msgspec.Struct, frozen=True):
    path: str
    kind: Any
    default: Any

    @property
    def unit(self) -> str:
        return unit_of(self.path.rpartition(".")[2])


def load(
    path: str | Path | None = None,
    *,
    overrides: Overrides = (),
    environment: Mapping[str, str] | None = None,
) -> Config:
    """All settings. See `load_with_origins`."""
    return load_with_origins(path, overrides=overrides, environment=environment).config


def load_with_origins(
    path: str | Path | None = None,
    *,
    overrides: Overrides = (),
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """All settings and where each came from.

    `path`: the TOML file; None looks at MOONPOOL_CONFIG, ./moonpool.toml, ~/.config/moonpool/config.toml.
    `overrides`: flags, {"node.segment_bytes": "4GiB"} or ["node.segment_bytes=4GiB"].
    `environment`: instead of the process's own. ConfigError names the setting, its origin and what is accepted.
    """
    variables = os.environ if environment is None else environment
    leaves = {leaf.path: leaf for leaf in declared_settings()}
    given: dict[str, _Given] = {}
    file = _find_file(path, variables)
    if file is not None:
        given.update(_from_file(file, leaves))
    given.update(_from_environment(variables, leaves))
    given.update(_from_flags(overrides, leaves))
    found = {name: _Given(_convert(leaf, given[name]), given[name].origin) if name in given else
             _Given(leaf.default, "default") for name, leaf in leaves.items()}  # fmt: skip
    _choose(found, variables)
    _check_together(found)
    settings = tuple(
        Setting(name, found[name].value, found[name].origin, leaf.unit, _description(leaf.kind))
        for name, leaf in leaves.items()
    )
    return Loaded(_build(Config, found), settings)


def declared_settings() -> Iterator[_Leaf]:
    """Every setting of the tree with its type and default, in order."""
    yield from _leaves(Config, "")


def _leaves(structure: type[msgspec.Struct], prefix: str) -> Iterator[_Leaf]:
    hints = typing.get_type_hints(structure, include_extras=True)
    for entry in msgspec.structs.fields(structure):
        kind = hints[entry.name]
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            yield from _leaves(kind, f"{prefix}{entry.name}.")
        else:
            yield _Leaf(prefix + entry.name, kind, entry.default)


def _find_file(path: str | Path | None, variables: Mapping[str, str]) -> Path | None:
    named = path or variables.get(FILE_VARIABLE)
    if named:
        if not Path(named).is_file():
            raise ConfigError(f"no configuration file {named}: check --config and {FILE_VARIABLE}", kind="bad_file")
        return Path(named)
    home = Path(variables.get("XDG_CONFIG_HOME") or Path(variables.get("HOME", "~")).expanduser() / ".config")
    places = (Path("moonpool.toml"), home / "moonpool" / "config.toml")
    return next((place for place in places if place.is_file()), None)


def _from_file(file: Path, leaves: Mapping[str, _Leaf]) -> dict[str, _Given]:
    try:
        tree = tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read configuration file {file}: {error}", kind="bad_file") from error
    origin = f"file {file}"
    given = {}
    for name, value in _flatten(tree, leaves, ""):
        _require_known(name, leaves, origin)
        given[name] = _Given(value, origin)
    return given


def _flatten(tree: Mapping[str, object], leaves: Mapping[str, _Leaf], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in tree.items():
        name = prefix + key
        inside = any(known.startswith(name + ".") for known in leaves)
        if isinstance(value, Mapping) and inside:
            yield from _flatten(value, leaves, name + ".")
        else:
            yield name, value


def _from_environment(variables: Mapping[str, str], leaves: Mapping[str, _Leaf]) -> dict[str, _Given]:
    given = {}
    for variable, text in sorted(variables.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == FILE_VARIABLE:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
        origin = f"environment {variable}"
        _require_known(name, leaves, origin)
        given[name] = _Given(text, origin)
    return given


def _from_flags(overrides: Overrides, leaves: Mapping[str, _Leaf]) -> dict[str, _Given]:
    given = {}
    for name, value in _pairs(overrides):
        _require_known(name, leaves, "flag")
        given[name] = _Given(value, "flag")
    return given


def _pairs(overrides: Overrides) -> Iterator[tuple[str, object]]:
    if isinstance(overrides, Mapping):
        yield from overrides.items()
        return
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"flag {text!r} is not of the form section.name=value", kind="bad_value")
        yield name.strip(), value


def _require_known(name: str, leaves: Mapping[str, _Leaf], origin: str) -> None:
    if name in leaves:
        return
    if any(known.startswith(name + ".") for known in leaves):
        raise ConfigError(f"{name} is a section, not a setting (from {origin})", kind="bad_value")
    # Half of the likeness to the whole path, half to the last word: people mistake either.
    near = difflib.get_close_matches(name, leaves, n=1, cutoff=0.6) or [
        known for known in leaves if known.rpartition(".")[2] == name.rpartition(".")[2]
    ]
    hint = f"did you mean {near[0]}?" if near else "`moonpool config show` lists all settings"
    raise ConfigError(f"unknown setting {name} (from {origin}): {hint}", kind="unknown_setting")


def _convert(leaf: _Leaf, given: _Given) -> object:
    value = given.value
    try:
        if isinstance(value, str):
            value = parse_value(value, leaf.kind, leaf.unit)
        return msgspec.convert(value, leaf.kind, strict=True)
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(
            f"{leaf.path} = {given.value!r} (from {given.origin}) is not accepted: {error}", kind="bad_value"
        ) from error


def _choose(found: dict[str, _Given], variables: Mapping[str, str]) -> None:
    """Fills in what depends on the machine, and says on what."""
    session = variables.get("XDG_RUNTIME_DIR")
    if session:
        _fill(found, "runtime_folder", str(Path(session, "moonpool")), why="$XDG_RUNTIME_DIR/moonpool")
    else:
        _fill(found, "runtime_folder", f"/tmp/moonpool-{os.geteuid()}", why="XDG_RUNTIME_DIR is not set")
    runtime_folder = Path(str(found["runtime_folder"].value)).expanduser().absolute()
    found["runtime_folder"] = _Given(str(runtime_folder), found["runtime_folder"].origin)
    host_name = socket.gethostname() or "localhost"
    _fill(found, "node.name", host_name, why="host name")
    _fill(found, "directory.name", host_name, why="host name")
    _fill(found, "conductor.name", host_name, why="host name")
    _fill(found, "node.socket_path", str(runtime_folder / "node.sock"), why="in the runtime folder")
    _fill(found, "directory.socket_path", str(runtime_folder / "directory.sock"), why="in the runtime folder")
    _fill(found, "node.directories", (str(found["directory.socket_path"].value),), why="directory.socket_path")
    listen = found["node.listen"].value
    if isinstance(listen, tuple) and listen and is_any(require_host_port(listen[0], "node.listen").host):
        _fill(found, "node.advertise", host_name, why="host name, because node.listen takes any address")
    program = Path(sys.argv[0]).name or "python"
    _fill(found, "client.name", f"{program[:200]}:{os.getpid()}", why="program and process id")
    _choose_memory(found)


def _choose_memory(found: dict[str, _Given]) -> None:
    if not found["node.segment_bytes"].value:
        usable_bytes = memory.read_machine_memory().usable_bytes
        why = f"a quarter of {format_value(usable_bytes, 'bytes')} available, 64 MiB to 64 GiB"
        _fill(found, "node.segment_bytes", memory.choose_segment_bytes(usable_bytes), why=why)
    arena_bytes = memory.choose_arena_bytes(int(str(found["node.segment_bytes"].value)))
    _fill(found, "node.arena_bytes", arena_bytes, why="an eighth of the segment, 256 MiB to 4 GiB")


def _fill(found: dict[str, _Given], name: str, value: object, *, why: str) -> None:
    if not found[name].value:
        found[name] = _Given(value, f"chosen: {why}")


def _hosts(found: Mapping[str, _Given]) -> Iterator[tuple[str, str]]:
    """Every host that a process of ours listens at, with its setting's name."""
    for path in ("node.http_host", "directory.http_host", "conductor.http_host"):
        yield path, str(found[path].value)
    for path in ("node.listen", "directory.listen"):
        texts = found[path].value
        for text in texts if isinstance(texts, tuple) else ():
            yield path, require_host_port(text, path).host


def _check_together(found: Mapping[str, _Given]) -> None:
    """What no setting can decide alone."""
    for path, host in _hosts(found):
        if not is_loopback(host) and not found["secret_file"].value:
            raise ConfigError(
                f"{path} = {host} (from {found[path].origin}) can be reached from outside this host: name the "
                "cluster's secret with secret_file, or use 127.0.0.1",
                kind="insecure_listen",
            )
    segment, arena = found["node.segment_bytes"], found["node.arena_bytes"]
    if int(str(segment.value)) < SEGMENT_BYTES_MIN:
        raise ConfigError(
            f"node.segment_bytes = {segment.value} (from {segment.origin}): at least 1 MiB", kind="bad_value"
        )
    if int(str(arena.value)) > int(str(segment.value)):
        raise ConfigError(
            f"node.arena_bytes = {arena.value} (from {arena.origin}) is more than node.segment_bytes = "
            f"{segment.value}: lower it, or leave it 0",
            kind="bad_value",
        )
    for path in ("node.socket_path", "directory.socket_path"):
        if len(os.fsencode(str(found[path].value))) > 107:
            raise ConfigError(
                f"{path} = {found[path].value} is longer than the 107 bytes of a unix socket's name: "
                "choose a shorter runtime_folder",
                kind="bad_value",
            )


def _description(kind: Any) -> str:
    metas = getattr(kind, "__metadata__", ())
    return next((meta.description for meta in reversed(metas) if getattr(meta, "description", None)), "")


def _build(structure: type[msgspec.Struct], found: Mapping[str, _Given], prefix: str = "") -> Any:
    hints = typing.get_type_hints(structure)
    values = {}
    for entry in msgspec.structs.fields(structure):
        kind = plain_type(hints[entry.name])
        nested = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        path = prefix + entry.name
        values[entry.name] = _build(kind, found, path + ".") if nested else found[path].value
    return structure(**values)
