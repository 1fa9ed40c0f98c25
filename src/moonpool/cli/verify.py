"""`moonpool verify`: do two endpoints answer the same?"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from moonpool.errors import MoonpoolError, UsageError

if TYPE_CHECKING:
    from moonpool.testing.verify import Comparison, Prompt, Report, Settings

EXIT_DIFFERENT = 1
EXIT_ERROR = 2


@click.command("verify", short_help="Compare the answers of two engines to the same prompts.")
@click.argument("url_a")
@click.argument("url_b", required=False, default="")
@click.option("--model", default="", help="Model to ask for; default: the first one that both serve.")
@click.option("--prompt", "prompt_texts", multiple=True, help="A user message to ask, instead of the built-in ones.")
@click.option("--count", default=4, show_default=True, type=click.IntRange(1, 64), help="How many built-in prompts.")
@click.option("--repeatable", is_flag=True, help="The same built-in prompts in every run: the pool may be warm.")
@click.option("--tokens", default=32, show_default=True, type=click.IntRange(1, 1024), help="Answer length, at most.")
@click.option(
    "--near-tie",
    default=1e-3,
    show_default=True,
    type=click.FloatRange(0),
    help="Another token is forgiven where the best two are closer (nats).",
)
@click.option("--logprob-tolerance", default=0.1, show_default=True, type=click.FloatRange(0), help="Distance allowed.")
@click.option("--timeout", "timeout_s", default=120.0, show_default=True, type=click.FloatRange(0.1), help="Seconds.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of the table.")
def verify(url_a: str, url_b: str, as_json: bool, **options: Any) -> None:
    """Ask URL_A and then URL_B the same prompts and compare: greedy answers, log-probabilities, token counts.

    With one URL asks it twice: the first answer is computed cold, the second may use what was cached. Exit code 0:
    all answers equal (a near tie counts as equal), 1: an answer differs or failed, 2: it could not be tried.
    """
    from moonpool.testing.verify import verify as compare_endpoints

    settings, prompts = _settings(options), _prompts(options)
    errors = Console(stderr=True, highlight=False)
    try:
        with errors.status("asking") as status:
            report = asyncio.run(
                compare_endpoints(url_a, url_b, prompts=prompts, settings=settings, progress=status.update)
            )
    except MoonpoolError as error:
        errors.print(f"moonpool: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(EXIT_ERROR)
    if as_json:
        click.echo(json.dumps(report_document(report)))
    else:
        print_report(report, Console(highlight=False))
    sys.exit(0 if report.ok else EXIT_DIFFERENT)


def _settings(options: dict[str, Any]) -> Settings:
    from moonpool.testing.verify import Settings

    return Settings(
        model=options["model"],
        token_count_max=options["tokens"],
        near_tie=options["near_tie"],
        logprob_tolerance=options["logprob_tolerance"],
        timeout_s=options["timeout_s"],
    )


def _prompts(options: dict[str, Any]) -> list[Prompt]:
    from moonpool.testing.verify import Prompt, default_prompts

    texts = options["prompt_texts"]
    if not texts:
        return default_prompts(options["count"], nonce="again" if options["repeatable"] else None)
    if not all(text.strip() for text in texts):
        raise UsageError("--prompt is empty")
    return [Prompt(f"prompt {i + 1}", ({"role": "user", "content": text},)) for i, text in enumerate(texts)]


def report_document(report: Report) -> dict[str, Any]:
    """The report as plain JSON values; log-probabilities in nats, times in milliseconds."""
    document: dict[str, Any] = msgspec.to_builtins(report)
    document["ok"] = report.ok
    for plain, comparison in zip(document["comparisons"], report.comparisons, strict=True):
        plain["logprob_distance_max"] = comparison.logprob_distance_max
    return document


def print_report(report: Report, console: Console) -> None:
    """The table, and one line that says what it means."""
    table = Table(title=f"{report.model}: A = {report.first_url}, B = {report.second_url}", title_justify="left")
    for column in (
        "prompt",
        "verdict",
        "tokens A/B",
        "prompt tokens",
        "cached A/B",
        "log-prob distance",
        "TTFT A/B ms",
    ):
        table.add_column(column, justify="left" if column in ("prompt", "verdict") else "right")
    table.add_column("what differs")
    for comparison in report.comparisons:
        table.add_row(*_cells(comparison))
    console.print(table)
    if report.local_cache_reset is False:
        console.print(
            "One endpoint, and its own prefix cache could not be emptied in between (vLLM offers that with "
            "VLLM_SERVER_DEV_MODE=1): the second answers may come from it, not from the pool."
        )
    equal_count = sum(comparison.verdict.ok for comparison in report.comparisons)
    console.print(f"{equal_count} of {len(report.comparisons)} answers equal", style="green" if report.ok else "red")


def _cells(comparison: Comparison) -> list[str]:
    first, second = comparison.first, comparison.second
    pair = [answer for answer in (first, second) if answer is not None]

    def both(values: list[Any]) -> str:
        return " / ".join(str(value) for value in values) or "-"

    return [
        comparison.name,
        f"[{'green' if comparison.verdict.ok else 'red'}]{comparison.verdict}[/]",
        both([len(answer.tokens) for answer in pair]),
        both(sorted({answer.prompt_token_count for answer in pair})),
        both([answer.cached_token_count for answer in pair]),
        f"{comparison.logprob_distance_max:.2g}" if second else "-",
        both([round(answer.ttft_ms) for answer in pair]),
        comparison.problem.replace("[", r"\["),
    ]
