"""What a run says in figures: for a table and for programs."""

from __future__ import annotations

import math

import msgspec

from moonpool.sim.result import Distribution, Result

TOKEN_HIT_DEFINITION = "prompt tokens that needed no prefill / prompt tokens, of requests that were not turned away"


class Figures(msgspec.Struct, frozen=True):
    """Seconds; null where there is none."""

    count: int
    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    highest: float | None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    label: str
    request_count: int
    rejected_count: int
    rejected: dict[str, int]
    ttft_s: Figures
    tbt_s: Figures
    token_hit_rate: float
    token_hit_definition: str
    effective_fraction: float
    ttft_objective_s: float
    tbt_objective_s: float
    prefill_s_mean: float | None
    wasted_prefill_s: float
    fetched_bytes: float
    input_tokens: int
    output_tokens: int
    end_s: float
    digest: str


def summary_of(result: Result) -> Summary:
    """The figures of this run."""
    table = result.table
    return Summary(
        label=result.label,
        request_count=len(table),
        rejected_count=result.rejected_count,
        rejected={refusal.value: count for refusal, count in result.refusals.items()},
        ttft_s=_figures(result.ttft),
        tbt_s=_figures(result.tbt),
        token_hit_rate=result.token_hit_rate,
        token_hit_definition=TOKEN_HIT_DEFINITION,
        effective_fraction=result.effective_fraction,
        ttft_objective_s=result.objectives.ttft_seconds,
        tbt_objective_s=result.objectives.tbt_seconds,
        prefill_s_mean=_known(result.prefill_seconds_mean),
        wasted_prefill_s=result.wasted_prefill_seconds,
        fetched_bytes=result.fetched_bytes,
        input_tokens=sum(table.input_tokens),
        output_tokens=sum(table.output_tokens),
        end_s=result.end_seconds,
        digest=result.digest,
    )


def summary_rows(summary: Summary) -> list[tuple[str, str]]:
    """What is shown to people: a name and a value each."""
    rejected = ", ".join(f"{reason} {count:,}" for reason, count in summary.rejected.items())
    rows = [
        ("requests", f"{summary.request_count:,}"),
        ("turned away", f"{summary.rejected_count:,}" + (f" ({rejected})" if rejected else "")),
        ("TTFT", _shown(summary.ttft_s, "s", 1)),
        ("TBT, worst tenth of gaps", _shown(summary.tbt_s, "ms", 1_000)),
        (
            f"TTFT within {summary.ttft_objective_s:g} s and TBT within {summary.tbt_objective_s * 1_000:g} ms",
            f"{summary.effective_fraction:.1%} of all requests",
        ),
        ("hit rate", f"{summary.token_hit_rate:.2%} of tokens ({summary.token_hit_definition})"),
        ("fetched from other workers", f"{summary.fetched_bytes / 1e12:.2f} TB"),
    ]
    if summary.prefill_s_mean is not None:
        rows.append(("prefill, GPU time a request", f"{summary.prefill_s_mean:.3f} s"))
    if summary.wasted_prefill_s:
        rows.append(("prefill wasted on requests turned away", f"{summary.wasted_prefill_s:,.0f} s"))
    return rows


def _shown(figures: Figures, unit: str, scale: float) -> str:
    names = ("mean", "p50", "p90", "p99")
    values = ((name, getattr(figures, name)) for name in names)
    known = [f"{name} {value * scale:,.3g}" for name, value in values if value is not None]
    return f"{' · '.join(known)} {unit}" if known else "none"


def _figures(found: Distribution) -> Figures:
    return Figures(found.size, *(_known(value) for value in found[1:]))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
