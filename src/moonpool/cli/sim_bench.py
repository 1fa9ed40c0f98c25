"""`moonpool sim bench`: how fast the simulator is on this machine."""

from __future__ import annotations

import click
import msgspec
from rich.console import Console


@click.command("bench")
@click.option("--requests", "request_count", default=0, help="Also that many, of conversations, on --workers.")
@click.option("--workers", default="300P700D", show_default=True, help="Of that second run.")
@click.option("--policy", default="moonpool", show_default=True, help="Where prompts go.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout.")
def bench(request_count: int, workers: str, policy: str, as_json: bool) -> None:
    """Measure the simulator: the conversation trace on eight prefill engines, and a large fleet if asked for.

    Times are CPU seconds of this process, and beside them how many times as many empty events would take; the bar is 2
    seconds for the first, and 10 minutes and 4 GiB for a million requests on 1,000 workers (--requests 1000000).
    """
    from moonpool.sim.bench import Speed, conversation_speed, scale_speed

    console = Console(highlight=False)

    def show(speed: Speed) -> None:
        if as_json:
            click.echo(msgspec.json.encode(speed._asdict()))
            return
        console.print(
            f"{speed.what}: {speed.cpu_seconds:.2f} s CPU, {1e6 * speed.cpu_seconds / speed.request_count:.0f} us a "
            f"request; {speed.event_count} events, {speed.times_empty:.0f} times as many empty ones; "
            f"{speed.peak_bytes / 2**30:.2f} GiB at most; result {speed.digest[:16]}",
            soft_wrap=True,
        )

    show(conversation_speed(policy))
    if request_count:
        show(scale_speed(request_count, workers, policy))
