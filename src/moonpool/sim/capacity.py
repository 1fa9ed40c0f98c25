"""How large a cluster has to be: the fewest workers that meet the objectives, storage, hit rate and cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal

import msgspec

from moonpool.errors import UsageError
from moonpool.sim.caches import Lru
from moonpool.sim.caches.hit_rate import replay
from moonpool.sim.cluster import Shape
from moonpool.sim.result import Result
from moonpool.sim.scenario import Scenario, costs_of, simulate
from moonpool.sim.trace import Request

WORKERS_MAX = 4_096
GROWTH, GAIN_LEAST = 1.5, 0.0005  # so many times more workers that gain less of the share do not help
TOKENS_PER_PRICE = 1_000_000
GIGABYTE = 10**9

Progress = Callable[[str], None]


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """What an hour costs. The default of a worker is 8 GPUs at 2 an hour, as in DeepSeek's inference overview."""

    worker: Decimal = Decimal(16)
    dram_gigabyte: Decimal = Decimal("0.003")
    ssd_gigabyte: Decimal = Decimal("0.0001")


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for. Objectives, model, speed and the limits of DRAM and SSD of a worker are in the scenario."""

    scenario: Scenario
    prices: Prices = Prices()
    share: float = 0.9
    """Of requests that have to meet both objectives."""
    hit_share: float = 0.95
    """Of the hit rate with all the storage that workers can have: so much of it must be left with less."""
    engine_cache_bytes: int = 436 * GIGABYTE
    """What an engine keeps by itself, in GPU memory: all there is without the pool."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. Bytes are of the whole cluster, money is an hour's or of a million tokens."""

    prefill_workers: int
    decode_workers: int
    dram_bytes: int
    ssd_bytes: int
    token_hit_rate: float
    met_share: float
    ttft_s_p99: float
    tbt_s_p99: float
    cost_per_hour: Decimal
    cost_per_million_tokens: Decimal
    """Of input and output together."""


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """With the pool, and with each engine's own cache alone; the latter behind a router that knows these caches."""

    with_pool: Size
    without_pool: Size
    token_hit_rate_unlimited: float
    kv_bytes_per_token: float
    pool_bytes: int
    """The smallest pool with nearly the hit rate of an unlimited one, if it were one cache for all workers."""
    input_tokens_per_s: float
    output_tokens_per_s: float


def size_cluster(requests: Sequence[Request], wish: Wish, progress: Progress = lambda _: None) -> Capacity:
    """Searches for the fewest prefill workers, then decode workers beside them, then how little storage still does.

    Raises:
        UsageError: the objectives cannot be met by any number of workers, or a number makes no sense.
    """
    if not 0 < wish.share <= 1 or not 0 < wish.hit_share <= 1:
        raise UsageError(f"share {wish.share:g} and hit share {wish.hit_share:g}: above 0 and at most 1 expected")
    scenario = wish.scenario
    progress("how large a pool has to be")
    pool_blocks, unlimited = pool_for(requests, hit_share=wish.hit_share)
    block_bytes = scenario.kv_bytes_per_token * scenario.block_tokens
    shared = msgspec.structs.replace(scenario, admission="none")
    alone = msgspec.structs.replace(shared, policy="local_prefix", dram_bytes=wish.engine_cache_bytes, disk_bytes=0)
    hours = (requests[-1].arrival_s or 1.0) / scenario.speed / 3_600
    tokens = [sum(request.input_tokens for request in requests), sum(request.output_tokens for request in requests)]
    return Capacity(
        with_pool=_Search(requests, wish, shared, progress=progress).size("with the pool", hours),
        without_pool=_Search(requests, wish, alone, progress=progress).size("without the pool", hours),
        token_hit_rate_unlimited=unlimited,
        kv_bytes_per_token=scenario.kv_bytes_per_token,
        pool_bytes=round(pool_blocks * block_bytes),
        input_tokens_per_s=tokens[0] / hours / 3_600,
        output_tokens_per_s=tokens[1] / hours / 3_600,
    )


def pool_for(requests: Sequence[Request], *, hit_share: float) -> tuple[int, float]:
    """Blocks of the smallest LRU pool with `hit_share` of the unlimited hit rate, and that rate (token-weighted)."""
    most = len({block for request in requests for block in request.block_ids})
    unlimited = replay(requests, Lru(max(most, 1))).tokens.rate

    def enough(blocks: int) -> bool:
        return replay(requests, Lru(blocks)).tokens.rate >= hit_share * unlimited

    low, high = 0, max(most, 1)
    while high - low > max(1, high // 20):  # to 5 %: the hit rate is flat there
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high, unlimited


def fewest(share: Callable[[int], float], goal: float, *, start: int, most: int) -> int | None:
    """The least number from 1 on whose share reaches the goal; None if more of them no longer help, or beyond `most`.

    Looks upwards from `start` in growing steps, then halves: the share is taken to fall nowhere as numbers rise.
    """
    low, high = 0, min(max(start, 1), most)
    step = 1
    reached = share(high)
    while reached < goal:
        if high >= most:
            return None
        low, high, step = high, min(high + step, most), step * 2
        before, reached = reached, share(high)
        if reached < goal and high >= GROWTH * low and reached - before < GAIN_LEAST:
            return None
    while high - low > 1:
        # Below the start nothing is known, and it is near: most often one less is not enough.
        middle = high - 1 if low == 0 else (low + high) // 2
        if share(middle) >= goal:
            high = middle
        else:
            low = middle
    return high


class _Search:
    """The fewest workers of one kind of cluster."""

    def __init__(self, requests: Sequence[Request], wish: Wish, scenario: Scenario, *, progress: Progress) -> None:
        self._requests, self._wish, self._scenario, self._progress = requests, wish, scenario, progress
        self._results: dict[str, Result] = {}

    def size(self, name: str, hours: float) -> Size:
        # Prefill alone has to leave room for those that miss the objective of decoding.
        goal, alone = self._wish.share, (1 + self._wish.share) / 2
        prefill = fewest(
            lambda count: self._share(name, count, 0), alone, start=self._prefill_bound(hours), most=WORKERS_MAX
        )
        if prefill is None:
            raise self._unreachable(name, alone, decoding=False)
        decode = fewest(
            lambda count: self._share(name, prefill, count), goal, start=self._decode_bound(hours), most=WORKERS_MAX
        )
        if decode is None:
            raise self._unreachable(name, goal, decoding=True)
        workers = f"{prefill}P{decode}D"
        scenario, result = (
            msgspec.structs.replace(self._scenario, workers=workers, sample_s=0.0),
            self._results[workers],
        )
        is_pool = scenario.policy != "local_prefix"
        if is_pool:
            scenario, result = self._trimmed(name, scenario, result)
        return self._priced(scenario, result, hours, storage_workers=prefill if is_pool else 0)

    def _trimmed(self, name: str, scenario: Scenario, result: Result) -> tuple[Scenario, Result]:
        """With half the storage for as long as these workers still do and most hits stay."""
        wish, hit_rate = self._wish, result.token_hit_rate
        block_bytes = math.ceil(scenario.kv_bytes_per_token * scenario.block_tokens)
        while (whole := (scenario.dram_bytes + scenario.disk_bytes) // 2) >= block_bytes:
            dram = min(whole, scenario.dram_bytes)
            smaller = msgspec.structs.replace(scenario, dram_bytes=dram, disk_bytes=whole - dram)
            self._progress(f"{name}: {scenario.workers} with {whole / GIGABYTE:,.0f} GB each")
            tried = simulate(smaller, self._requests)
            if tried.effective_fraction < wish.share or tried.token_hit_rate < wish.hit_share * hit_rate:
                break
            scenario, result = smaller, tried
        return scenario, result

    def _run(self, name: str, workers: str) -> Result:
        if workers not in self._results:
            self._progress(f"{name}: {workers}")
            scenario = msgspec.structs.replace(self._scenario, workers=workers, sample_s=0.0)
            self._results[workers] = simulate(scenario, self._requests)
        return self._results[workers]

    def _share(self, name: str, prefill: int, decode: int) -> float:
        return self._run(name, f"{prefill}P{decode}D" if decode else f"{prefill}P").effective_fraction

    def _prefill_bound(self, hours: float) -> int:
        """With every prompt half cached: a start for the search, not a bound that has to hold."""
        cost = costs_of(self._wish.scenario).prefill
        work = sum(cost.seconds(request.input_tokens, request.input_tokens // 2) for request in self._requests)
        return math.ceil(work / (hours * 3_600))

    def _decode_bound(self, hours: float) -> int:
        """From the largest batch that keeps the TBT objective."""
        wish, requests = self._wish, self._requests
        cost = costs_of(wish.scenario).decode
        mean_kv = sum(request.input_tokens for request in requests) // len(requests)
        batch = 1
        while cost.tbt_seconds(batch + 1, (batch + 1) * mean_kv) <= wish.scenario.tbt_s:
            batch += 1
        tokens_per_s = batch / cost.tbt_seconds(batch, batch * mean_kv)
        return math.ceil(sum(request.output_tokens for request in requests) / (hours * 3_600) / tokens_per_s)

    def _priced(self, scenario: Scenario, result: Result, hours: float, *, storage_workers: int) -> Size:
        prices, shape = self._wish.prices, Shape.parse(scenario.workers)
        dram_bytes, ssd_bytes = storage_workers * scenario.dram_bytes, storage_workers * scenario.disk_bytes
        cost = prices.worker * (shape.prefill + shape.decode)
        cost += prices.dram_gigabyte * dram_bytes / GIGABYTE + prices.ssd_gigabyte * ssd_bytes / GIGABYTE
        tokens = sum(result.table.input_tokens) + sum(result.table.output_tokens)
        return Size(
            prefill_workers=shape.prefill,
            decode_workers=shape.decode,
            dram_bytes=dram_bytes,
            ssd_bytes=ssd_bytes,
            token_hit_rate=result.token_hit_rate,
            met_share=result.effective_fraction,
            ttft_s_p99=result.ttft.p99,
            tbt_s_p99=result.tbt.p99,
            cost_per_hour=round(cost, 2),
            cost_per_million_tokens=round(cost * Decimal(hours) * TOKENS_PER_PRICE / tokens, 4),
        )

    def _unreachable(self, name: str, goal: float, *, decoding: bool) -> UsageError:
        scenario = self._wish.scenario
        tried = [result for workers, result in self._results.items() if ("D" in workers) == decoding]
        best = max(result.effective_fraction for result in tried)
        objectives = f"a TTFT within {scenario.ttft_s:g} s"
        if decoding:
            objectives += f" and a TBT within {scenario.tbt_s * 1_000:g} ms"
        return UsageError(
            f"{name}, {best:.1%} is the most of these requests that gets {objectives}, however many workers there are; "
            f"{goal:.1%} was looked for: allow more time, or ask it of fewer"
        )
