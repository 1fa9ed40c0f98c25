"""config: the settings, where each came from, and the token of /status and /metrics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from moonpool.cli.settings import Settings, settings_options

if TYPE_CHECKING:
    from moonpool.config import Setting


@click.group(short_help="Show the settings and where each came from.")
def config() -> None:
    """Defaults < TOML file < environment < flags."""


@config.command(short_help="Print every setting, its value and where it came from.")
@click.argument("names", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a setting.")
@click.option("--toml", "as_toml", is_flag=True, help="A settings file with these values.")
@click.option("--explain", is_flag=True, help="What each setting is for.")
@settings_options
def show(*, settings: Settings, names: tuple[str, ...], as_json: bool, as_toml: bool, explain: bool) -> int:
    """Print the settings whose names begin with one of NAMES, or all. Exit code 1 when there is none such."""
    from moonpool.config import load_with_origins

    loaded = load_with_origins(settings.file, overrides=settings.flags)
    chosen = [each for each in loaded.settings if not names or each.path.startswith(names)]
    if as_toml:
        click.echo("\n".join(_toml(chosen)))
    elif as_json:
        for each in chosen:
            click.echo(json.dumps({name: getattr(each, name) for name in each.__struct_fields__}))
    else:
        _table(chosen, explain=explain)
    return 0 if chosen else 1


@config.command(short_help="Print the bearer token of /status and /metrics.")
@settings_options
def token(*, settings: Settings) -> int:
    """Print the token that HTTP clients send: `Authorization: Bearer <token>`. It is derived from the secret."""
    from moonpool.config import http_token, load_secret

    chosen = settings.config
    click.echo(http_token(load_secret(chosen.runtime_folder, chosen.secret_file)))
    return 0


def _table(chosen: list[Setting], *, explain: bool) -> None:
    width_path = max((len(each.path) for each in chosen), default=0)
    width_value = min(48, max((len(each.text) for each in chosen), default=0))
    for each in chosen:
        value = each.text or '""'
        click.echo(f"{each.path:{width_path}}  {value:{width_value}}  {each.origin}")
        if explain:
            click.echo(f"{'':{width_path}}  {each.description}")


def _toml(chosen: list[Setting]) -> list[str]:
    lines: list[str] = []
    section = ""
    for each in chosen:
        folder, _, name = each.path.rpartition(".")
        if folder != section:
            lines += ["", f"[{folder}]"]
            section = folder
        # JSON's spelling of texts, numbers, booleans and lists is TOML's too.
        lines.append(f"{name} = {json.dumps(each.value)}  # {each.description}")
    return lines
