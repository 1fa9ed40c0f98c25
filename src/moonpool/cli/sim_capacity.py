"""`moonpool sim capacity`: how large a cluster has to be, and what it costs."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from moonpool.cli.sim import read_size, scenario_of, scenario_options, source_name

if TYPE_CHECKING:
    from moonpool.sim.capacity import Capacity, Size


def _money(_context: click.Context, _parameter: click.Parameter, text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation as error:
        raise click.BadParameter("an amount such as 16 or 0.003 expected") from error
    if not amount.is_finite() or amount < 0:
        raise click.BadParameter("an amount of at least 0 expected")
    return amount


@click.command("capacity")
@scenario_options
@click.option("--share", default=0.9, show_default=True, help="Of requests that have to meet both objectives.")
@click.option(
    "--hit-share", default=0.95, show_default=True, help="Of the hit rate with all of --dram and --ssd, to keep."
)
@click.option("--gpu-kv", default="436GB", callback=read_size, show_default=True, help="What an engine caches alone.")
@click.option("--worker-price", default="16", callback=_money, show_default=True, help="An hour of one worker.")
@click.option("--dram-price", default="0.003", callback=_money, show_default=True, help="An hour of a gigabyte.")
@click.option("--ssd-price", default="0.0001", callback=_money, show_default=True, help="An hour of a gigabyte.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def capacity(as_json: bool, **given: Any) -> None:
    """Find the fewest workers that serve TRACE within the objectives, with the pool and without.

    Also how much DRAM and SSD the pool needs, what hit rate it has, and what all of it costs. --dram and --ssd are
    what a worker can have at most. Speeds are those of the Mooncake paper's machines (8 x A800, LLaMA3-70B); --model
    changes the size of the KV only. Prices are yours to set.
    """
    from moonpool.sim.capacity import Prices, Wish, size_cluster

    scenario, requests = scenario_of(given)
    prices = Prices(worker=given["worker_price"], dram_gigabyte=given["dram_price"], ssd_gigabyte=given["ssd_price"])
    wish = Wish(
        scenario=scenario,
        prices=prices,
        share=given["share"],
        hit_share=given["hit_share"],
        engine_cache_bytes=given["gpu_kv"],
    )
    errors = Console(stderr=True, highlight=False)
    with errors.status("starting") as status:
        found = size_cluster(requests, wish, lambda text: status.update(f"simulating {text}"))
    if as_json:
        click.echo(msgspec.json.encode({"source": source_name(given), "wish": wish, "capacity": found}))
        return
    Console(highlight=False).print(table_of(found, title=f"{source_name(given)}: the fewest workers that do"))


def table_of(found: Capacity, *, title: str) -> Table:
    """Both answers side by side."""
    table = Table(title=title, title_justify="left", caption=_notes(found), caption_justify="left")
    table.add_column("")
    table.add_column("with the pool", justify="right")
    table.add_column("without", justify="right")
    for row in zip(_cells(found.with_pool), _cells(found.without_pool), strict=True):
        (name, pooled), (_, alone) = row
        table.add_row(name, pooled, alone)
    return table


def _cells(size: Size) -> list[tuple[str, str]]:
    return [
        ("workers, prefill + decode", f"{size.prefill_workers} + {size.decode_workers}"),
        ("DRAM for KV, all workers", _terabytes(size.dram_bytes)),
        ("SSD for KV, all workers", _terabytes(size.ssd_bytes)),
        ("hit rate, of prompt tokens", f"{size.token_hit_rate:.1%}"),
        ("requests within both objectives", f"{size.met_share:.2%}"),
        ("TTFT p99", f"{size.ttft_s_p99:.2f} s"),
        ("TBT p99, worst tenth of gaps", f"{size.tbt_s_p99 * 1_000:.1f} ms"),
        ("cost an hour", f"{size.cost_per_hour:,.2f}"),
        ("cost of a million tokens, in and out", f"{size.cost_per_million_tokens:.4f}"),
    ]


def _notes(found: Capacity) -> str:
    return (
        f"KV {found.kv_bytes_per_token / 1024:,.1f} KiB a token · {found.input_tokens_per_s:,.0f} tokens/s in, "
        f"{found.output_tokens_per_s:,.0f} out · "
        f"an unlimited pool hits {found.token_hit_rate_unlimited:.1%} of tokens, "
        f"one of {_terabytes(found.pool_bytes)} nearly that"
    )


def _terabytes(size_bytes: int) -> str:
    return "none" if not size_bytes else f"{size_bytes / 1e12:,.2f} TB"
