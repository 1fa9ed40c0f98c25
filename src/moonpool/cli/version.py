"""version: which release this is, and what it speaks."""

from __future__ import annotations

import platform

import click

from moonpool.cli.settings import json_option, print_rows


@click.command(short_help="Show the release, and what it speaks.")
@json_option
def version(*, as_json: bool) -> None:
    """Show the release, the wire versions that it speaks, and the Python that it runs in."""
    from moonpool import _native

    oldest, newest = _native.wire_versions
    row = {
        "moonpool": _native.__version__,
        "wire": str(newest) if oldest == newest else f"{oldest} to {newest}",
        "python": platform.python_version(),
    }
    if as_json:
        print_rows([row], {}, as_json=True)
        return
    for name, value in row.items():
        click.echo(f"{name:9}{value}")
