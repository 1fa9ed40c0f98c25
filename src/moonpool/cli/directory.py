"""directory: the process that knows who holds what."""

from __future__ import annotations

import click

from moonpool.cli.settings import Settings, settings_options


@click.command(short_help="Run a directory: who holds which blocks.")
@click.option("--listen", multiple=True, metavar="HOST:PORT", help="Serve other hosts there; may be given again.")
@click.option("--http-port", type=int, help="Port of /healthz, /metrics and /status on loopback; 0: any free one.")
@click.option("--die-with-parent", "with_parent", is_flag=True, hidden=True)
@settings_options
def directory(*, settings: Settings, listen: tuple[str, ...], http_port: int | None, with_parent: bool) -> None:
    """Run a directory in the foreground until Ctrl-C. It keeps nothing: nodes tell it again after a restart."""
    from moonpool.directory.process import run_directory
    from moonpool.telemetry.logs import configure
    from moonpool.telemetry.process import die_with_parent

    if with_parent:
        die_with_parent()
    settings.with_flag("directory.listen", ",".join(listen) or None)
    settings.with_flag("directory.http_port", http_port)
    configure(settings.config.telemetry.log_level)
    run_directory(settings.config)
