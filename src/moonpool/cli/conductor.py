"""conductor: the process that knows which engine holds how much of a prompt."""

from __future__ import annotations

from collections.abc import Sequence

import click

from moonpool.cli.settings import Settings, settings_options


@click.command(short_help="Run the conductor: which engine should get a prompt.")
@click.option(
    "--worker",
    "workers",
    multiple=True,
    metavar="NAME=ENDPOINT,model=M,block_size=N[,…]",
    help="An engine to listen to; the fields are those of POST /register. May be given several times.",
)
@click.option("--workers-file", metavar="FILE", help="JSON with more of them.")
@click.option("--http-port", type=int, help="Port of its API, /healthz, /metrics and /status; 0: any free one.")
@click.option("--die-with-parent", "with_parent", is_flag=True, hidden=True)
@settings_options
def conductor(
    *, settings: Settings, workers: Sequence[str], workers_file: str | None, http_port: int | None, with_parent: bool
) -> None:
    """Run a conductor in the foreground until Ctrl-C. It keeps nothing: engines replay their events after a restart.

    It listens to the KV events of engines, asks the directory what the pool holds, and answers which engine should get
    a prompt. Engines with our connector and KV events on register themselves.
    """
    from moonpool.conductor.process import run_conductor
    from moonpool.conductor.workers_file import parse_worker
    from moonpool.telemetry.logs import configure
    from moonpool.telemetry.process import die_with_parent

    if with_parent:
        die_with_parent()
    settings.with_flag("conductor.http_port", http_port)
    settings.with_flag("conductor.workers_file", workers_file)
    configure(settings.config.telemetry.log_level)
    run_conductor(settings.config, [parse_worker(text) for text in workers])
