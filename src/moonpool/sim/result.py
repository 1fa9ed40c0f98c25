"""What a run gives back: one row a request, one a worker, samples of the load over time, and figures made of them."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from moonpool.scheduling.routing import Refusal

NOT_YET = math.nan
REFUSALS: tuple[Refusal, ...] = tuple(Refusal)  # a row's `refusal` is a place in here, counted from one; 0: none


class Row(NamedTuple):
    """One request. Times are seconds; NaN where it did not come to that."""

    number: int
    arrival: float
    input_tokens: int
    output_tokens: int
    hit_tokens: int
    fetched_tokens: int
    prefill_seconds: float
    ttft: float
    tbt: float
    finished: float
    prefill_worker: int
    decode_worker: int
    refusal: Refusal | None


class RequestTable:
    """The requests of a run, a column each: about 90 bytes a request."""

    def __init__(self) -> None:
        self.arrival = array("d")
        self.input_tokens = array("q")
        self.output_tokens = array("q")
        self.hit_tokens = array("q")
        self.fetched_tokens = array("q")
        self.prefill_seconds = array("d")
        self.ttft = array("d")
        self.tbt = array("d")
        self.finished = array("d")
        self.prefill_worker = array("l")
        self.decode_worker = array("l")
        self.refusal = array("b")

    def __len__(self) -> int:
        return len(self.arrival)

    def add(self, arrival: float, input_tokens: int, output_tokens: int) -> int:
        """A request has arrived. Returns its index."""
        self.arrival.append(arrival)
        self.input_tokens.append(input_tokens)
        self.output_tokens.append(output_tokens)
        self.hit_tokens.append(0)
        self.fetched_tokens.append(0)
        self.prefill_seconds.append(0.0)
        self.ttft.append(NOT_YET)
        self.tbt.append(NOT_YET)
        self.finished.append(NOT_YET)
        self.prefill_worker.append(-1)
        self.decode_worker.append(-1)
        self.refusal.append(0)
        return len(self.arrival) - 1

    def refuse(self, index: int, refusal: Refusal) -> None:
        """The request was turned away; a TTFT that it has stays (its prefill was wasted)."""
        self.refusal[index] = REFUSALS.index(refusal) + 1

    def rows(self) -> Iterator[Row]:
        """All requests in order of arrival."""
        columns = zip(*self.columns(), strict=True)
        for number, (*values, refusal) in enumerate(columns):
            yield Row._make((number, *values, REFUSALS[refusal - 1] if refusal else None))

    def columns(self) -> tuple[array[float] | array[int], ...]:
        """All columns, in the order of `Row` (without its number)."""
        return (
            self.arrival, self.input_tokens, self.output_tokens, self.hit_tokens, self.fetched_tokens,
            self.prefill_seconds, self.ttft, self.tbt, self.finished,
            self.prefill_worker, self.decode_worker, self.refusal,
        )  # fmt: skip


class Sample(NamedTuple):
    """The load at one moment. One value a worker, in order of worker id; a dead worker has zeros."""

    now: float
    queue_seconds: tuple[float, ...]  # prefill work predicted to be waiting
    queue_counts: tuple[int, ...]  # prompts queued or running
    decode_counts: tuple[int, ...]  # requests being decoded or on their way there
    kv_tokens: tuple[int, ...]
    rejected: int  # requests turned away so far


@dataclass(slots=True)
class WorkerReport:
    """What one worker did."""

    worker_id: int
    name: str
    role: str
    state: str
    busy_seconds: float = 0.0  # GPU seconds of prefill
    prompt_count: int = 0
    hit_tokens: int = 0
    block_count: int = 0  # blocks in its DRAM at the end


class Distribution(NamedTuple):
    """A column in figures; all NaN when it is empty."""

    size: int
    mean: float
    p50: float
    p90: float
    p99: float
    highest: float


@dataclass(frozen=True, kw_only=True)
class Objectives:
    """What a request needs to count as effective (FAST'25 §5.1): TTFT and TBT at most so many seconds."""

    ttft_seconds: float = 30.0
    tbt_seconds: float = 0.1


@dataclass(slots=True)
class Result:
    """One run. Two runs with the same inputs and seed have the same `digest`."""

    label: str
    table: RequestTable
    workers: list[WorkerReport]
    samples: list[Sample] = field(default_factory=list)
    objectives: Objectives = field(default_factory=Objectives)
    end_seconds: float = 0.0
    event_count: int = 0
    rerouted_count: int = 0  # requests that an engine lost and another one took over
    failed_fetch_count: int = 0  # fetches whose source died: computed instead
    fetched_bytes: float = 0.0  # moved over network and disks, KV on its way to decode engines included
    wasted_prefill_seconds: float = 0.0  # of requests that were turned away after their prefill

    @property
    def ttft(self) -> Distribution:
        """Seconds to the first token, of the requests that got one and were not turned away."""
        return distribution(self._served(self.table.ttft))

    @property
    def tbt(self) -> Distribution:
        """Mean of the longest tenth of token intervals, in seconds, of the requests that were decoded to the end."""
        return distribution(self._served(self.table.tbt))

    @property
    def prefill_seconds_mean(self) -> float:
        """GPU seconds of prefill a request that was not turned away (the papers' Fig 8)."""
        values = self._served(self.table.prefill_seconds)
        return sum(values) / len(values) if values else math.nan

    @property
    def token_hit_rate(self) -> float:
        """Token-weighted: prompt tokens that needed no prefill ÷ prompt tokens, of all requests not turned away."""
        asked = sum(self._served(self.table.input_tokens))
        return sum(self._served(self.table.hit_tokens)) / asked if asked else 0.0

    @property
    def refusals(self) -> dict[Refusal, int]:
        """How many were turned away, and why."""
        counts = Counter(self.table.refusal)
        return {refusal: counts[code] for code, refusal in enumerate(REFUSALS, start=1) if counts[code]}

    @property
    def rejected_count(self) -> int:
        """How many were turned away."""
        return len(self.table) - Counter(self.table.refusal)[0]

    @property
    def effective_fraction(self) -> float:
        """Requests within both objectives ÷ all requests. Where nothing is decoded only TTFT counts."""
        table, objectives = self.table, self.objectives
        good = sum(
            1
            for ttft, tbt, refusal in zip(table.ttft, table.tbt, table.refusal, strict=True)
            if not refusal and ttft <= objectives.ttft_seconds and not tbt > objectives.tbt_seconds
        )
        return good / len(table) if len(table) else 0.0

    @property
    def digest(self) -> str:
        """SHA-256 of every column: equal for equal runs, byte for byte."""
        digest = hashlib.sha256()
        for column in self.table.columns():
            digest.update(column.tobytes())
        return digest.hexdigest()

    def _served(self, column: array[float] | array[int]) -> list[float]:
        return [
            value for value, refusal in zip(column, self.table.refusal, strict=True) if not refusal and value == value
        ]


def distribution(values: Sequence[float]) -> Distribution:
    """Mean and percentiles (nearest rank)."""
    if not values:
        return Distribution(0, *[math.nan] * 5)
    ordered = sorted(values)
    count = len(ordered)

    def rank(fraction: float) -> float:
        return ordered[max(0, math.ceil(fraction * count) - 1)]

    return Distribution(count, math.fsum(ordered) / count, rank(0.5), rank(0.9), rank(0.99), ordered[-1])
