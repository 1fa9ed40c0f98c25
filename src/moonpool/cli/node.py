"""node: the process that owns this host's bytes."""

from __future__ import annotations

import click

from moonpool.cli.settings import Settings, settings_options


@click.command(short_help="Run the node of this host: the memory that engines share.")
@click.option("--segment", "segment_bytes", metavar="SIZE", help="Memory to offer, such as 4GiB.")
@click.option("--listen", multiple=True, metavar="HOST:PORT", help="Serve other hosts there; may be given again.")
@click.option("--http-port", type=int, help="Port of /healthz, /metrics and /status on loopback; 0: any free one.")
@click.option("--die-with-parent", "with_parent", is_flag=True, hidden=True)
@settings_options
def node(
    *, settings: Settings, segment_bytes: str | None, listen: tuple[str, ...], http_port: int | None, with_parent: bool
) -> None:
    """Run the node of this host in the foreground until Ctrl-C. It says `ready` when its memory is populated."""
    from moonpool.pool.process import run_node
    from moonpool.telemetry.logs import configure
    from moonpool.telemetry.process import die_with_parent

    if with_parent:
        die_with_parent()
    settings.with_flag("node.segment_bytes", segment_bytes)
    settings.with_flag("node.listen", ",".join(listen) or None)
    settings.with_flag("node.http_port", http_port)
    configure(settings.config.telemetry.log_level)
    run_node(settings.config)
