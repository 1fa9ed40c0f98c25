"""The demo's result on a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from rich.table import Table

from moonpool.testing.demo_report import FIRST_WORDS_CHARACTERS, Promise, Row, Summary, row_document
from moonpool.testing.verify import Comparison

if TYPE_CHECKING:
    from rich.console import Console

Runs = tuple[Sequence[Row], Sequence[Row], Sequence[Comparison]]  # with the pool, without, compared

_COLUMNS = (
    ("#", "right"), ("engine", "left"), ("what", "left"), ("prompt", "right"), ("computed", "right"),
    ("pool", "right"), ("TTFT ms", "right"), ("computed alone", "right"), ("TTFT alone ms", "right"),
    ("equal", "left"), ("first words", "left"),
)  # fmt: skip


def print_result(console: Console, runs: Runs, *, summary: Summary, promises: Sequence[Promise]) -> None:
    """Table, summary, promises."""
    console.print(_table(runs))
    for line in summary_lines(summary):
        console.print(line)
    for promise in promises:
        mark = "[green]kept[/]  " if promise.kept else "[red]BROKEN[/]"
        console.print(mark, end=" ")
        console.print(promise.text + (f" ({promise.detail})" if promise.detail else ""), markup=False)


def _table(runs: Runs) -> Table:
    with_pool, without, comparisons = runs
    others = {row.step.number: row for row in without}
    table = Table(title="every request, with the pool and on engines alone; tokens", title_justify="left")
    for name, justify in _COLUMNS:
        table.add_column(name, justify="right" if justify == "right" else "left", no_wrap=True)
    for row, comparison in zip(with_pool, comparisons, strict=True):
        other = others.get(row.step.number)
        alone = other.answer if other else None
        table.add_row(
            str(row.step.number),
            row.step.engine,
            str(row.step.part),
            str(row.prompt_tokens),
            str(row.computed_tokens),
            str(row.pool_tokens),
            f"{row.answer.ttft_ms:.0f}" if row.answer else "failed",
            str(other.computed_tokens) if other else "-",
            f"{alone.ttft_ms:.0f}" if alone else "-",
            str(comparison.verdict),
            " ".join((row.answer.text if row.answer else row.error).split())[:FIRST_WORDS_CHARACTERS].replace(
                "[", r"\["
            ),
        )
    return table


def _first_words(row: Row) -> str:
    text = " ".join((row.answer.text if row.answer else row.error).split())
    return text[:FIRST_WORDS_CHARACTERS].replace("[", r"\[")


def summary_lines(summary: Summary) -> list[str]:
    """What the numbers say, one idea a line."""
    unique = summary.unique
    mean = f"{summary.ttft_mean_with_ms:.0f} / {summary.ttft_mean_without_ms:.0f} ms"
    late = f"{summary.ttft_p99_with_ms:.0f} / {summary.ttft_p99_without_ms:.0f} ms"
    noise = "within noise" if unique.within_noise else "OUTSIDE noise"
    spared = f"computed {summary.computed_with} with the pool ({summary.spared_share:.1%} spared)"
    spared_without = f"{summary.computed_without} without ({summary.spared_share_without:.1%} spared)"
    again = f"{summary.not_twice_share:.1%} of the {summary.repeated_tokens} that some engine had computed before"
    cost = f"{unique.mean_ms:+.0f} ms TTFT ({unique.share:+.1%}), noise +/- {unique.noise_ms:.0f} ms: {noise}"
    return [
        f"tokens not prefilled twice: {again}",
        f"prompt tokens: {summary.prompt_tokens}; {spared}, {spared_without}",
        f"TTFT with / without the pool: mean {mean}, p99 {late}",
        f"cost on unique prompts: {cost}",
        f"blocks loaded at {summary.load_bytes_per_s / 1e9:.2f} GB/s, verified",
        "CPU only: the times are of a small CPU machine; what they compare is the same on any",
    ]


def result_document(runs: Runs, *, summary: Summary, promises: Sequence[Promise], seconds: float) -> dict[str, Any]:
    """Everything as plain JSON values; times in milliseconds unless the name says otherwise."""
    with_pool, without, comparisons = runs
    others = {row.step.number: row for row in without}
    shares = ("spared_share", "spared_share_without", "not_twice_share")
    return {
        "seconds": seconds,
        "cpu_only": True,
        "ok": all(promise.kept for promise in promises),
        "promises": msgspec.to_builtins(list(promises)),
        "summary": {**msgspec.to_builtins(summary), **{name: getattr(summary, name) for name in shares}},
        "requests": [
            row_document(row, others.get(row.step.number), comparison)
            for row, comparison in zip(with_pool, comparisons, strict=True)
        ],
    }
