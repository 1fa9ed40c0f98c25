"""One run as one HTML file: figures and plots, light and dark, without a script and without a network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import msgspec

from moonpool.sim.plot import Axes, Series, cumulative, heat_map, line_plot
from moonpool.sim.result import Result
from moonpool.sim.summary import TOKEN_HIT_DEFINITION, summary_of, summary_rows

if TYPE_CHECKING:
    from moonpool.sim.scenario import Scenario

BUCKET_COUNT = 60
STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --faint: #6b7684; --grid: #e3e7ec; --paper: #fff;
  --c0: #1668b8; --c1: #d9651a; --c2: #2c8a4b; --c3: #8a4bb0; }
@media (prefers-color-scheme: dark) { :root { --ink: #dde3ea; --faint: #93a0ae; --grid: #2c3540; --paper: #14191f;
  --c0: #5aa9f2; --c1: #f2964f; --c2: #62c486; --c3: #c08be0; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 1360px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 0 0 .3rem; }
table { border-collapse: collapse; } td { padding: .2rem 1.2rem .2rem 0; vertical-align: top;
  border-bottom: 1px solid var(--grid); } td:first-child { color: var(--faint); }
main { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 2rem;
  margin-top: 2rem; }
svg { width: 100%; height: auto; } text { fill: var(--faint); font-size: 11px; }
.grid { stroke: var(--grid); } .axis { stroke: var(--faint); } .mark { stroke: var(--faint); stroke-dasharray: 4 3; }
.series { fill: none; stroke-width: 2; stroke-linejoin: round; } .heat { fill: var(--c0); }
.series.c0 { stroke: var(--c0); } .series.c1 { stroke: var(--c1); }
.series.c2 { stroke: var(--c2); } .series.c3 { stroke: var(--c3); }
.legend { margin: .2rem 0; font-size: .85rem; } .legend span { margin-right: 1.2rem; }
.legend .c0 { color: var(--c0); } .legend .c1 { color: var(--c1); }
.legend .c2 { color: var(--c2); } .legend .c3 { color: var(--c3); }
p.note, footer { color: var(--faint); font-size: .85rem; }
"""


def report_page(result: Result, *, source: str, scenario: Scenario) -> str:
    """The page. `source` is what the requests are called."""
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in summary_rows(summary_of(result))
    )
    settings = ", ".join(f"{name} {value}" for name, value in msgspec.structs.asdict(scenario).items())
    figures = "".join(f"<section><h2>{escape(title)}</h2>{body}</section>" for title, body in _plots(result))
    title = escape(f"{source} on {scenario.workers}, policy {scenario.policy}")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
        f"<h1>{title}</h1><table>{rows}</table><main>{figures}</main>"
        f"<footer><p>moonpool sim: {escape(settings)}</p><p>Digest of the run: {result.digest}</p></footer></html>\n"
    )


def _plots(result: Result) -> list[tuple[str, str]]:
    table, objectives = result.table, result.objectives
    served = [refusal == 0 for refusal in table.refusal]
    ttft = [value for value, kept in zip(table.ttft, served, strict=True) if kept and value == value]
    tbt = [value * 1_000 for value, kept in zip(table.tbt, served, strict=True) if kept and value == value]
    hit_note = f'<p class="note">By arrival; {escape(TOKEN_HIT_DEFINITION)}.</p>'
    rejected = [(sample.now, float(sample.rejected)) for sample in result.samples]
    plots = [
        (
            "Time to first token",
            line_plot(
                [Series("TTFT", cumulative(ttft))],
                Axes(
                    x="seconds (logarithmic)", y="share of requests", logarithmic=True, y_max=1.0,
                    marks=((objectives.ttft_seconds, "objective"),),
                ),
            ),
        ),
        (
            "Time between tokens: mean of the worst tenth of a request's gaps",
            line_plot(
                [Series("TBT", cumulative(tbt))],
                Axes(
                    x="milliseconds (logarithmic)", y="share of requests", logarithmic=True, y_max=1.0,
                    marks=((objectives.tbt_seconds * 1_000, "objective"),),
                ),
            ),
        ),
        (
            "Hit rate over time",
            line_plot([Series("hit rate", hit_rate_over_time(result))], Axes(x="seconds", y="hit rate", y_max=1.0))
            + hit_note,
        ),
        ("Requests turned away", line_plot([Series("so far", rejected)], Axes(x="seconds", y="requests so far"))),
    ]  # fmt: skip
    return plots + _worker_plots(result)


def _worker_plots(result: Result) -> list[tuple[str, str]]:
    end = result.samples[-1].now if result.samples else 0.0
    plots = []
    queues = [sample.queue_seconds for sample in result.samples]
    decoding = [sample.decode_counts for sample in result.samples]
    for title, columns, unit, wanted in (
        ("Prefill queue of each worker", queues, "seconds of work waiting", {"prefill", "both"}),
        ("Requests decoding on each worker", decoding, "requests", {"decode", "both"}),
    ):
        rows = [
            # a worker that joined later has no value in the samples before
            (worker.name, [float(row[worker.worker_id]) if worker.worker_id < len(row) else 0.0 for row in columns])
            for worker in result.workers
            if worker.role in wanted
        ]
        if rows:
            plots.append((title, heat_map(rows, x="seconds", unit=unit, x_max=end)))
    return plots


def hit_rate_over_time(result: Result) -> list[tuple[float, float]]:
    """(middle of the interval in seconds, hit rate of the requests that arrived in it), where any did."""
    table = result.table
    if not len(table):
        return []
    width = (max(table.arrival) or 1.0) / BUCKET_COUNT
    hits, asked = [0] * (BUCKET_COUNT + 1), [0] * (BUCKET_COUNT + 1)
    columns: Sequence[Sequence[float]] = (table.arrival, table.hit_tokens, table.input_tokens, table.refusal)
    for arrival, hit_tokens, input_tokens, refusal in zip(*columns, strict=True):
        if not refusal:
            bucket = int(arrival / width)
            hits[bucket] += int(hit_tokens)
            asked[bucket] += int(input_tokens)
    return [((place + 0.5) * width, hits[place] / asked[place]) for place in range(BUCKET_COUNT) if asked[place]]
