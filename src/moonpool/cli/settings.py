"""What every command shares: the options that choose the settings, and how rows are printed."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from moonpool.config import Config
    from moonpool.pool.client import Pool

Command = TypeVar("Command", bound=Callable[..., Any])


class Settings:
    """The settings that the command line chose, loaded when they are first needed."""

    def __init__(self, file: str | None, flags: Sequence[str], runtime_folder: str | None) -> None:
        self.file = file
        self.flags: list[str] = list(flags)
        if runtime_folder is not None:
            self.flags.append(f"runtime_folder={runtime_folder}")

    def with_flag(self, name: str, value: object) -> None:
        """Take a setting from an option of the command, where one was given."""
        if value is not None:
            self.flags.append(f"{name}={value}")

    @functools.cached_property
    def config(self) -> Config:
        """All settings. ConfigError names the wrong one."""
        from moonpool import config

        return config.load(self.file, overrides=self.flags)

    def arguments(self) -> list[str]:
        """The same settings as options for a child process."""
        chosen = [] if self.file is None else ["--config", str(Path(self.file).absolute())]
        for flag in self.flags:
            chosen += ["--set", flag]
        return chosen

    def connect(self) -> Pool:
        """A pool on this host's node; PeerUnavailable when there is none."""
        from moonpool.pool.connect import open_pool

        return open_pool(self.config)


def settings_options(command: Command) -> Command:
    """Adds --config, --set and --runtime-folder, and passes a `Settings` as `settings`."""

    @click.option("--config", "config_file", metavar="FILE", help="Settings file (TOML).")
    @click.option(
        "--set", "flags", multiple=True, metavar="NAME=VALUE", help="One setting, as `moonpool config show` names it."
    )
    @click.option("--runtime-folder", metavar="FOLDER", help="Where sockets and secret lie.")
    @functools.wraps(command)
    def wrapped(*, config_file: str | None, flags: Sequence[str], runtime_folder: str | None, **options: Any) -> Any:
        return command(settings=Settings(config_file, flags, runtime_folder), **options)

    return wrapped  # type: ignore[return-value]


def json_option(command: Command) -> Command:
    """Adds --json, passed as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON object a line instead of a table.")(command)


def print_rows(
    rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], *, as_json: bool, empty: str = ""
) -> None:
    """Rows as a table with these columns (name → heading), or as JSON with all that they have."""
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, default=str))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    shown = list(rows)
    if not shown:
        click.echo(empty or "nothing", err=True)
        return
    for name, heading in columns.items():
        numeric = all(isinstance(row.get(name), int | float) for row in shown)
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in shown:
        table.add_row(*(_cell(row.get(name, "")) for name in columns))
    Console().print(table)


def _cell(value: object) -> str:
    from rich.markup import escape

    if isinstance(value, bool):
        return "yes" if value else ""
    return escape(str(value))


def bytes_text(count: float) -> str:
    """1536 → "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration_text(duration_ms: float) -> str:
    """1500 → "1.5 s"."""
    if duration_ms < 1000:
        return f"{duration_ms:.0f} ms"
    seconds = duration_ms / 1000
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
