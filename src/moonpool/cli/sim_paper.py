"""`moonpool sim paper`: the papers' tables, ours beside theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.table import Table as Grid

from moonpool.cli import EXIT_FAILED

if TYPE_CHECKING:
    from moonpool.sim.paper import Table

STYLES = {"agrees": "green", "differs": "bold red"}


@click.command("paper")
@click.argument("names", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a table on stdout.")
@click.option("--markdown", is_flag=True, help="Markdown on stdout, as in the documentation.")
def paper(names: tuple[str, ...], as_json: bool, markdown: bool) -> int:
    """Reproduce the tables of the Mooncake papers and print ours beside theirs (about two minutes for all).

    NAMES are some of eq2, fig14, fig5, fig8, fig9, fig10, fig13, fig15, table1, rejections, capacity, requests75,
    deepseek. Each row has its difference, where our number comes from, and a verdict; what is not claimed or cannot be
    reproduced says why. The exit status is 1 if something that is claimed does not hold.
    """
    from moonpool.sim.paper import reproduce
    from moonpool.sim.paper.show import as_markdown, as_values

    errors = Console(stderr=True, highlight=False)
    failed: list[str] = []
    with errors.status("starting") as status:
        for table in reproduce(names, progress=status.update):
            if not table.agrees:
                failed.append(table.name)
            if as_json:
                click.echo(msgspec.json.encode(as_values(table)))
            elif markdown:
                click.echo("\n".join(as_markdown(table)))
            else:
                print_table(Console(highlight=False), table)
    if failed:
        errors.print(f"what is claimed does not hold in: {', '.join(failed)}")
        return EXIT_FAILED
    return 0


def print_table(console: Console, table: Table) -> None:
    """One table and what stands under it."""
    from moonpool.sim.paper.show import COLUMNS, cells, remarks

    grid = Grid(title=f"{table.name}: {table.title}", title_justify="left")
    for column in COLUMNS:
        grid.add_column(column, justify="right" if column in ("ours", "theirs", "difference") else "left")
    for row in table.rows:
        *plain, verdict = cells(row)
        style = STYLES.get(verdict, "")
        grid.add_row(*plain, f"[{style}]{verdict}[/]" if style else verdict)
    console.print(grid)
    for remark in remarks(table):
        console.print(f"  {remark}", markup=False)
    console.print()
