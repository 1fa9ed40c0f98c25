"""What the demo says at the end: the table, the summary, and whether all promises were kept. No I/O."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

import msgspec

from moonpool.identity import RequestOutcome
from moonpool.testing.verify import Comparison, Settings, Verdict, compare, failed
from moonpool.testing.workload import Part, Step, percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moonpool.testing.chat import Answer, Message

# Float32 on one machine: cached and recomputed log-probabilities were measured to differ by 1.5e-5.
LOGPROB_TOLERANCE = 1e-2
FIRST_WORDS_CHARACTERS = 32


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it went."""

    step: Step
    messages: tuple[Message, ...]
    answer: Answer | None = None
    outcome: RequestOutcome | None = None  # the connector's own report; None without a pool
    error: str = ""

    @property
    def prompt_tokens(self) -> int:
        """As the engine counted them."""
        return self.answer.prompt_token_count if self.answer else 0

    @property
    def pool_tokens(self) -> int:
        """Verified and applied."""
        return self.outcome.applied_tokens if self.outcome else 0

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that were prefilled for this request."""
        if self.outcome:
            local, pool = self.outcome.local_tokens, self.outcome.applied_tokens
            return max(0, self.outcome.prompt_tokens - local - pool)
        return self.prompt_tokens - self.answer.cached_token_count if self.answer else 0


class Difference(msgspec.Struct, frozen=True):
    """Of paired measurements: the mean difference, and the noise of that mean (two standard errors)."""

    mean_ms: float
    noise_ms: float
    share: float  # of the mean without

    @property
    def within_noise(self) -> bool:
        """Whether the difference may be nothing."""
        return abs(self.mean_ms) <= self.noise_ms


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of both runs."""

    prompt_tokens: int
    computed_with: int
    computed_without: int
    pool_tokens: int
    repeated_tokens: int  # prompt tokens that some engine had computed before, in whole blocks
    ttft_mean_with_ms: float
    ttft_mean_without_ms: float
    ttft_p99_with_ms: float
    ttft_p99_without_ms: float
    unique: Difference
    load_bytes_per_s: float

    @property
    def spared_share(self) -> float:
        """Of the prompt tokens, those that were not prefilled with the pool."""
        return 1 - self.computed_with / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def spared_share_without(self) -> float:
        """The same without the pool: what each engine's own prefix cache gives."""
        return 1 - self.computed_without / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def not_twice_share(self) -> float:
        """Of the tokens that some engine had computed before, those that were not prefilled again."""
        first_time = self.prompt_tokens - self.repeated_tokens
        again = max(0, self.computed_with - first_time)
        return 1 - again / self.repeated_tokens if self.repeated_tokens else 0.0


class Promise(msgspec.Struct, frozen=True):
    """Something that must be true, and whether it was."""

    text: str
    kept: bool
    detail: str = ""


# Steps after the kill are about the answers, not about speed: they stay out of the times.
TIMED_PARTS = frozenset({Part.COLD, Part.LOCAL, Part.ACROSS, Part.MOVING, Part.UNIQUE})


def compare_rows(with_pool: Sequence[Row], without: Sequence[Row]) -> list[Comparison]:
    """Each request's answers with and without the pool, in the order of `with_pool`."""
    others = {row.step.number: row for row in without}
    return [_compare_pair(row, others.get(row.step.number)) for row in with_pool]


def _compare_pair(row: Row, other: Row | None) -> Comparison:
    name = f"request {row.step.number}"
    if row.answer is None:
        return failed(name, f"with the pool: {row.error}")
    if other is None or other.answer is None:
        return failed(name, f"without the pool: {other.error if other else 'not asked'}", row.answer)
    settings = Settings(logprob_tolerance=LOGPROB_TOLERANCE)
    return compare(name, row.answer, other.answer, settings=settings)


def summarize(with_pool: Sequence[Row], without: Sequence[Row], *, block_tokens: int = 32) -> Summary:
    """Adds up both runs over the timed parts. Rows without an answer count nothing."""
    timed = [row for row in with_pool if row.step.part in TIMED_PARTS and row.answer]
    others = [row for row in without if row.step.part in TIMED_PARTS and row.answer]
    first = [row.answer.ttft_ms for row in timed if row.answer]
    second = [row.answer.ttft_ms for row in others if row.answer]
    loaded_bytes = sum(row.outcome.byte_count for row in with_pool if row.outcome)
    load_ms = sum(row.outcome.load_ms for row in with_pool if row.outcome and row.outcome.byte_count)
    return Summary(
        prompt_tokens=sum(row.prompt_tokens for row in timed),
        computed_with=sum(row.computed_tokens for row in timed),
        computed_without=sum(row.computed_tokens for row in others),
        pool_tokens=sum(row.pool_tokens for row in timed),
        repeated_tokens=_repeated_tokens(timed, block_tokens=block_tokens),
        ttft_mean_with_ms=statistics.fmean(first) if first else math.nan,
        ttft_mean_without_ms=statistics.fmean(second) if second else math.nan,
        ttft_p99_with_ms=percentile(first, 0.99),
        ttft_p99_without_ms=percentile(second, 0.99),
        unique=paired_difference(_unique_ttft(with_pool), _unique_ttft(without)),
        load_bytes_per_s=loaded_bytes / (load_ms / 1000) if load_ms else 0.0,
    )


def _repeated_tokens(rows: Sequence[Row], *, block_tokens: int) -> int:
    """How many prompt tokens a perfect cache would not compute: by the longest text prefix that was asked before.

    Text is turned into tokens by the mean token length of the prompt, then rounded down to blocks, so this is an
    estimate within a block or two a request.
    """
    seen: list[str] = []
    repeated = 0
    for row in rows:
        text = "\n".join(message["role"] + message["content"] for message in row.messages)
        longest = max((_shared_characters(text, earlier) for earlier in seen), default=0)
        tokens = int(longest / max(1, len(text)) * row.prompt_tokens)
        repeated += tokens // block_tokens * block_tokens
        seen.append(text)
        if row.answer:
            seen.append(text + "\nassistant" + row.answer.text)
    return repeated


def _shared_characters(first: str, second: str) -> int:
    length = min(len(first), len(second))
    return next((index for index in range(length) if first[index] != second[index]), length)


def _unique_ttft(rows: Sequence[Row]) -> dict[int, float]:
    return {row.step.number: row.answer.ttft_ms for row in rows if row.step.part is Part.UNIQUE and row.answer}


def paired_difference(measured: dict[int, float], reference: dict[int, float]) -> Difference:
    """Of values with the same key. nan for fewer than two pairs."""
    keys = sorted(measured.keys() & reference.keys())
    if len(keys) < 2:
        return Difference(math.nan, math.nan, math.nan)
    differences = [measured[key] - reference[key] for key in keys]
    mean = statistics.fmean(differences)
    noise = 2 * statistics.stdev(differences) / math.sqrt(len(differences))
    return Difference(mean, noise, mean / statistics.fmean(reference[key] for key in keys))


def promises(rows: Sequence[Row], comparisons: Sequence[Comparison], *, why_text: str) -> list[Promise]:
    """What the demo must show; the exit code is 0 only when all are kept."""
    failures = [f"request {row.step.number}: {row.error}" for row in rows if row.answer is None]
    different = [f"{item.name}: {item.problem}" for item in comparisons if not item.verdict.ok]
    ties = [f"{item.name}: {item.problem}" for item in comparisons if item.verdict is Verdict.NEAR_TIE]
    shared = (Part.ACROSS, Part.MOVING)
    across = sum(row.pool_tokens for row in rows if row.step.part in shared and row.step.engine == "B")
    killed = [row for row in rows if row.step.part is Part.NODE_KILLED]
    reasons = sorted({row.outcome.reason for row in killed if row.outcome and row.outcome.reason})
    back = sum(row.pool_tokens for row in rows if row.step.part is Part.NODE_BACK)
    return [
        Promise("no request failed", not failures, "; ".join(failures)),
        Promise("all answers equal with and without the pool", bool(comparisons) and not different,
                "; ".join(different) or ("near ties: " + "; ".join(ties) if ties else "")),
        Promise("B used what A had computed", across > 0, f"{across} tokens"),
        Promise("B answers when the node is killed while it loads", bool(killed) and all(row.answer for row in killed),
                "recomputed because: " + (", ".join(reasons) or "nothing (no load was cut short)")),
        Promise("newly stored blocks hit again after the node is back", back > 0, f"{back} tokens"),
        Promise("`moonpool why` explains the miss", bool(why_text), _reason_in(why_text)),
    ]  # fmt: skip


def _reason_in(why_text: str) -> str:
    """The line that names the reason, where there is one."""
    lines = [line.strip() for line in why_text.splitlines()]
    return next((line for line in lines if line.startswith("because")), lines[0] if lines else "")


def row_document(row: Row, other: Row | None, comparison: Comparison) -> dict[str, Any]:
    """One request as plain JSON values."""
    answer, outcome = row.answer, row.outcome
    return {
        "number": row.step.number,
        "engine": row.step.engine,
        "part": str(row.step.part),
        "prompt_tokens": row.prompt_tokens,
        "computed_tokens": row.computed_tokens,
        "local_tokens": outcome.local_tokens if outcome else 0,
        "pool_tokens": row.pool_tokens,
        "reason": outcome.reason if outcome else "",
        "ttft_ms": answer.ttft_ms if answer else None,
        "ttft_without_ms": other.answer.ttft_ms if other and other.answer else None,
        "computed_without_tokens": other.computed_tokens if other else None,
        "verdict": str(comparison.verdict),
        "logprob_distance_max": comparison.logprob_distance_max,
        "problem": comparison.problem,
        "answer": answer.text if answer else None,
        "error": row.error,
    }
