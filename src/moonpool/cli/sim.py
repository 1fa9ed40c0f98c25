"""`moonpool sim`: a serving cluster, simulated with the decisions that the product makes."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from moonpool.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from moonpool.sim.scenario import Scenario
    from moonpool.sim.trace import Request

DEFAULT_COMMAND = "run"


# Commands of other modules, imported when they are asked for.
ELSEWHERE = {
    "capacity": "moonpool.cli.sim_capacity:capacity",
    "paper": "moonpool.cli.sim_paper:paper",
    "bench": "moonpool.cli.sim_bench:bench",
}


class WithDefault(click.Group):
    """`moonpool sim TRACE` means `moonpool sim run TRACE`."""

    def list_commands(self, context: click.Context) -> list[str]:
        """All of them, in the order of --help."""
        return [*super().list_commands(context), *ELSEWHERE]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command of that name, or None."""
        if name not in ELSEWHERE:
            return super().get_command(context, name)
        module, attribute = ELSEWHERE[name].split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Puts the default in where no command is named."""
        if args and args[0] not in self.list_commands(context) and args[0] not in context.help_option_names:
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(context, args)


@click.group("sim", cls=WithDefault)
def sim() -> None:
    """Simulate a serving cluster: `moonpool sim TRACE` is short for `moonpool sim run TRACE`.

    Engines, caches, links and their queues are simulated; what is decided (where a prompt goes, what is fetched, what
    is refused) is decided by the product's own code. The same seed gives the same result, byte for byte.
    """


def read_size(_context: click.Context, _parameter: click.Parameter, text: str) -> int:
    """A click callback: bytes of "4GiB"."""
    from moonpool.config.values import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def scenario_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What is the same for each command that simulates."""
    marks = [
        click.argument("trace", required=False),
        click.option("--workload", metavar="NAME", help="Made up instead of a trace: poisson, multi-turn, agentic."),
        click.option("--requests", "request_count", default=10_000, show_default=True, help="Of a workload."),
        click.option("--model", metavar="FILE", help="config.json of the model, for its KV bytes a token."),
        click.option("--kv-element-bytes", default=2.0, show_default=True, help="Of one element of the cache; FP8: 1."),
        click.option("--block-tokens", default=512, show_default=True, help="Tokens of one block of the trace."),
        click.option(
            "--dram",
            default="983GB",
            callback=read_size,
            show_default=True,
            help="For KV, of each worker that prefills.",
        ),
        click.option(
            "--ssd", default="0", callback=read_size, show_default=True, help="For KV, of each worker that prefills."
        ),
        click.option("--eviction", default="lru", show_default=True, help="lru, fifo, lfu, length-aware or sieve."),
        click.option("--speed", default=1.0, show_default=True, help="Requests come so many times faster."),
        click.option("--ttft", "ttft_s", default=30.0, show_default=True, help="Objective in seconds."),
        click.option("--tbt", "tbt_s", default=0.1, show_default=True, help="Objective in seconds."),
        click.option("--seed", default=0, show_default=True, help="Of the workload and of policies that draw."),
    ]
    return functools.reduce(lambda wrapped, mark: mark(wrapped), reversed(marks), command)


@sim.command("run")
@scenario_options
@click.option("--workers", default="10P6D", show_default=True, help="Prefill and decode (10P6D), 8P, or coupled: 16C.")
@click.option("--policy", default="moonpool", show_default=True, help="Where prompts go; an unknown name lists all.")
@click.option("--admission", default="predicted", show_default=True, help="none, ttft, early or predicted.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option("--report", metavar="FILE", help="Also write an HTML page with plots, readable without a network.")
def run(workers: str, policy: str, admission: str, as_json: bool, report: str | None, **given: Any) -> None:
    """Play TRACE to its end on a simulated cluster.

    TRACE is a file in Mooncake's format (JSON lines, or packed with xz), - for standard input, or one of the names
    conversation, synthetic (recorded by the Mooncake authors) and toolagent-standin (made up).
    """
    from moonpool.sim.scenario import simulate
    from moonpool.sim.summary import summary_of, summary_rows

    scenario, requests = scenario_of(given)
    scenario = msgspec.structs.replace(scenario, workers=workers, policy=policy, admission=admission)
    result = simulate(scenario, requests)
    summary = summary_of(result)
    if report is not None:
        from moonpool.sim.report import report_page

        Path(report).write_text(report_page(result, source=source_name(given), scenario=scenario), encoding="utf-8")
    if as_json:
        click.echo(msgspec.json.encode({"scenario": scenario, "source": source_name(given), "result": summary}))
        return
    table = Table(title=f"{source_name(given)} on {workers}, policy {policy}", title_justify="left", show_header=False)
    for row in summary_rows(summary):
        table.add_row(*row)
    Console(highlight=False).print(table)


def source_name(given: dict[str, Any]) -> str:
    """What the requests are called."""
    return str(given["trace"] or given["workload"])


def scenario_of(given: dict[str, Any]) -> tuple[Scenario, list[Request]]:
    """What the options of `scenario_options` say: the machines, and the requests.

    Raises:
        UsageError: neither or both of a trace and a workload are named, or one of them is unknown.
        ConfigError: the model's file cannot be read, or says too little.
    """
    from moonpool.scheduling.kv_bytes import kv_size
    from moonpool.sim.scenario import PAPER_KV_BYTES_PER_TOKEN, Scenario
    from moonpool.sim.trace import read_trace
    from moonpool.sim.workloads import make_workload

    trace, workload = given["trace"], given["workload"]
    if (trace is None) == (workload is None):
        raise UsageError("name what to simulate: either a TRACE (a file, - or `conversation`) or --workload NAME")
    if trace is not None:
        requests = list(read_trace(trace, block_tokens=given["block_tokens"]))
    else:
        requests = make_workload(workload, given["request_count"], seed=given["seed"])
    if not requests:
        raise UsageError(f"{source_name(given)} has no request")
    per_token: float = PAPER_KV_BYTES_PER_TOKEN
    if given["model"] is not None:
        mean_tokens = sum(request.input_tokens for request in requests) // len(requests)
        size = kv_size(read_model(given["model"]), element_bytes=given["kv_element_bytes"])
        per_token = size.bytes_per_token(mean_tokens)
    names = ("eviction", "speed", "seed", "ttft_s", "tbt_s", "block_tokens")
    sizes = {"dram_bytes": given["dram"], "disk_bytes": given["ssd"]}
    return Scenario(**{name: given[name] for name in names}, **sizes, kv_bytes_per_token=per_token), requests


def read_model(name: str) -> dict[str, Any]:
    """The parsed config.json. Raises ConfigError where there is none."""
    try:
        return msgspec.json.decode(Path(name).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{name}: no config.json of a model: {error}", kind="bad_file") from error
