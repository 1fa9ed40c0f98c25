"""`moonpool bench`: the pool beside this machine's own limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.table import Table

from moonpool.errors import UsageError

if TYPE_CHECKING:
    from moonpool.config import Config
    from moonpool.testing.bench.measure import Row
    from moonpool.testing.bench.stage import Prompt

CONNECT_S_MAX = 10.0
TOKENS_PER_BLOCK = 16


@click.command("bench", short_help="Measure the pool beside this machine's own limits.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout; the table goes to stderr.")
@click.option("--only", multiple=True, metavar="PATTERN", help="Rows of these names, such as 'pool.put.*'. Repeatable.")
@click.option(
    "--plot",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the table as SVG.",
)
@click.option("--quick", is_flag=True, help="Fewer repetitions: a look, not a measurement.")
def bench(as_json: bool, only: tuple[str, ...], plot: Path | None, quick: bool) -> None:
    """Measure the pool on a node of its own, and beside each number what this machine can do at all.

    The limits are measured in the same run: copies between this and another process's populated memory over four
    times the last level of cache, and a ping-pong of 64 bytes over a unix socket. Needs about a gigabyte of memory.
    """
    from moonpool.testing.bench.measure import Effort
    from moonpool.testing.bench.plot import picture
    from moonpool.testing.bench.run import BenchSettings, run

    effort = Effort(pass_count=3, call_count=1_000) if quick else Effort()
    errors = Console(stderr=True, highlight=False)
    rows: list[Row] = []
    with errors.status("starting") as status:
        for row in run(BenchSettings(effort=effort, only=only), make_step=scheduler_step, progress=status.update):
            rows.append(row)
            if as_json:
                click.echo(msgspec.json.encode(row))
            else:
                errors.print(f"{row.name} {_shown(row.value)} {row.unit}")
    if only and not rows:
        raise UsageError(f"no row is named {' or '.join(only)}; `moonpool bench --quick` shows every name")
    if plot is not None:
        plot.write_text(picture(rows))
    (errors if as_json else Console(highlight=False)).print(table_of(rows))


def table_of(rows: Sequence[Row]) -> Table:
    """All rows; the ratio is value / limit, and the bar is what a row has to reach."""
    table = Table(
        title="moonpool bench: medians, beside this machine's own limit in the same run", title_justify="left"
    )
    table.add_column("name")
    for column in ("value", "unit", "limit", "ratio", "bar", ""):
        table.add_column(column, justify="left" if column == "unit" else "right")
    for row in rows:
        limit = "-" if row.limit is None else _shown(row.limit)
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        verdict = "" if row.reached is None else "reached" if row.reached else "missed"
        table.add_row(row.name, _shown(row.value), row.unit, limit, ratio, row.bar or "-", verdict)
    return table


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def scheduler_step(config: Config, prompt: Prompt) -> Callable[[int], int]:
    """The scheduler's side of the connector on that node; each call is a new request with the same prompt."""
    from moonpool.connectors import assembly
    from moonpool.connectors.groups import FULL_ATTENTION, CacheGroup
    from moonpool.connectors.scheduler import Scope
    from moonpool.testing.cluster import wait_until

    group = CacheGroup(kv_group=0, kind=FULL_ATTENTION, block_size=TOKENS_PER_BLOCK, layer_names=("layer",))
    parts = assembly.make_scheduler_parts(
        config, [group], peers=assembly.find_peers(config), name="bench", shard_count=1
    )
    parts.link.start()
    wait_until(lambda: parts.link.up, "the connector to find the node", timeout_s=CONNECT_S_MAX)
    parts.side.scope = Scope(namespace_id=prompt.namespace_id)

    def look_up(number: int) -> int:
        request = PromptRequest(f"bench-{number}", prompt.block_hashes)
        found = parts.side.matched(request, local_token_count=0).token_count
        parts.side.ended(request.request_id)
        return found

    return look_up


class PromptRequest(msgspec.Struct, frozen=True):
    """What the scheduler's side reads of an engine's request."""

    request_id: str
    block_hashes: Sequence[bytes]
    attempt: int = 0

    @property
    def token_count(self) -> int:
        """One token beyond the stored blocks, which is the one to compute."""
        return len(self.block_hashes) * TOKENS_PER_BLOCK + 1

    @property
    def prompt_token_count(self) -> int:
        """All of them are the prompt."""
        return self.token_count
