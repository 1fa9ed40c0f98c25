"""How soon the second engine answers out of what the first has computed, and what sharing costs where it is useless.

Works with any engines: with our connector, with another one, or with none. One request is under way at a time, so
the engines do not disturb each other; engines that are compared take turns, with the order swapped every round.
"""

from __future__ import annotations

import math
import secrets
import statistics
from collections.abc import Sequence

import aiohttp
import msgspec

from moonpool.identity import RequestOutcome
from moonpool.testing.bench_engines_rows import Row, median_row
from moonpool.testing.chat import Answer, Message, Question, ask
from moonpool.testing.demo_report import paired_difference
from moonpool.testing.demo_stack import Stack
from moonpool.testing.engines import Engine
from moonpool.testing.processes import Progress
from moonpool.testing.workload import QUESTIONS, UNIQUE_ROOM_COUNT, system_prompt

TOKEN_COUNT = 16
ACROSS_LIMIT_MS = 60.0
LOAD_BYTES_PER_S_TARGET = 2e9
COST_SHARE_LIMIT = 0.01


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One new prefix: TTFT of each use, in milliseconds."""

    cold_ms: float  # A, first question
    across_ms: float  # B, second question, sent as soon as A has answered
    local_a_ms: float  # A, third question
    local_b_ms: float  # B, fourth question
    cold_alone_ms: float | None = None  # an engine without a connector, first question
    local_alone_ms: float | None = None
    prompt_tokens: int = 0
    outcome: RequestOutcome | None = None  # of the request across, as our connector reports it

    @property
    def local_ms(self) -> float:
        """A local hit, on the same engine and as fresh as the use across is."""
        return self.local_b_ms


class Asker:
    """Asks engines questions about guides, with a fresh request id each."""

    def __init__(self, session: aiohttp.ClientSession, *, stack: Stack | None, progress: Progress) -> None:
        self.session = session
        self.progress = progress
        self.stack = stack
        self.last_ids: dict[str, str] = {}  # engine → id of the last request that it has answered
        self._run = secrets.token_hex(3)
        self._count = 0

    async def ask(self, engine: Engine, label: str, question: int, *, room_count: int = 0) -> tuple[Answer, str]:
        """One request about the guide `label`, and its id. MoonpoolError when it fails."""
        system = system_prompt(label, room_count=room_count) if room_count else system_prompt(label)
        return await self.ask_text(engine, QUESTIONS[question], system=system)

    async def ask_text(
        self, engine: Engine, text: str, *, system: str = "", token_count_max: int = TOKEN_COUNT
    ) -> tuple[Answer, str]:
        """One request of these words, and its id. MoonpoolError when it fails."""
        self._count += 1
        request_id = f"bench-{self._run}-{self._count:05d}"
        messages: tuple[Message, ...] = ({"role": "user", "content": text},)
        if system:
            messages = ({"role": "system", "content": system}, *messages)
        answer = await ask(
            self.session,
            engine.url,
            Question(
                model=engine.spec.model_name, messages=messages, token_count_max=token_count_max, request_id=request_id
            ),
        )
        self.last_ids[engine.spec.name] = request_id
        return answer, request_id

    async def outcome(self, engine: Engine, request_id: str) -> RequestOutcome | None:
        """Our connector's report of the request; None for engines without it."""
        if self.stack is None or not engine.spec.connector_flags:
            return None
        return await self.stack.outcome(engine.spec.name, request_id)


async def measure_rounds(
    asker: Asker, first: Engine, second: Engine, *, alone: Engine | None, count: int
) -> list[Round]:
    """`count` new prefixes, each used on both engines, and on the engine without a connector in between."""
    rounds = []
    for number in range(count):
        label = f"round {secrets.token_hex(3)}"
        alone_first = number % 2 == 1
        apart = await _ask_alone(asker, alone, label) if alone and alone_first else None
        cold, _ = await asker.ask(first, label, 0)
        across, across_id = await asker.ask(second, label, 1)
        local_a, _ = await asker.ask(first, label, 2)
        local_b, _ = await asker.ask(second, label, 3)
        if alone and not alone_first:
            apart = await _ask_alone(asker, alone, label)
        measured = Round(
            cold_ms=cold.ttft_ms,
            across_ms=across.ttft_ms,
            local_a_ms=local_a.ttft_ms,
            local_b_ms=local_b.ttft_ms,
            cold_alone_ms=apart[0] if apart else None,
            local_alone_ms=apart[1] if apart else None,
            prompt_tokens=across.prompt_token_count,
            outcome=await asker.outcome(second, across_id),
        )
        asker.progress(
            f"  prefix {number + 1} of {count}: cold {measured.cold_ms:.0f}, across {measured.across_ms:.0f}"
            + (f" (load {measured.outcome.load_ms:.0f})" if measured.outcome else "")
            + f", local {measured.local_a_ms:.0f} / {measured.local_b_ms:.0f} ms"
            + (f", alone {apart[0]:.0f} / {apart[1]:.0f} ms" if apart else "")
        )
        rounds.append(measured)
    return rounds


async def _ask_alone(asker: Asker, engine: Engine, label: str) -> tuple[float, float]:
    cold, _ = await asker.ask(engine, label, 0)
    local, _ = await asker.ask(engine, label, 2)
    return cold.ttft_ms, local.ttft_ms


class UniquePrompts(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts that share nothing: TTFT of each in ms, on the engine and on the one without a connector; and the time
    of the connector inside the engine's steps for all of them.
    """

    pairs: Sequence[tuple[float, float]] = ()
    own_ms: float | None = None


async def measure_unique(asker: Asker, engine: Engine, *, alone: Engine, count: int) -> UniquePrompts:
    """The same prompts on both engines, which take turns in being the first."""
    own_before_ms = await _own_ms(asker, engine)
    pairs = []
    for number in range(count):
        label = f"unique {secrets.token_hex(3)}"
        measured: dict[str, float] = {}
        for one in (engine, alone) if number % 2 else (alone, engine):
            answer, _ = await asker.ask(one, label, 0, room_count=UNIQUE_ROOM_COUNT)
            measured[one.spec.name] = answer.ttft_ms
        pairs.append((measured[engine.spec.name], measured[alone.spec.name]))
        asker.progress(f"  unique prompt {number + 1} of {count}: {pairs[-1][0]:.0f}, alone {pairs[-1][1]:.0f} ms")
    own_after_ms = await _own_ms(asker, engine)
    if own_before_ms is None or own_after_ms is None:
        return UniquePrompts(pairs=pairs)
    return UniquePrompts(pairs=pairs, own_ms=own_after_ms - own_before_ms)


async def _own_ms(asker: Asker, engine: Engine) -> float | None:
    """The connector's time inside the engine's steps until now, as it counts it; None for engines without ours."""
    last_id = asker.last_ids.get(engine.spec.name)
    if asker.stack is None or not engine.spec.connector_flags or last_id is None:
        return None
    counters = await asker.stack.counters(engine.spec.name, request_id=last_id)
    return counters.save_ms_total + counters.schedule_ms_total


def sharing_rows(name: str, rounds: Sequence[Round]) -> list[Row]:
    """What any pair of engines shows: cold, local, across."""
    return [
        median_row(f"{name}.ttft.cold", [item.cold_ms for item in rounds]),
        median_row(f"{name}.ttft.local_hit", [item.local_ms for item in rounds]),
        median_row(f"{name}.ttft.across", [item.across_ms for item in rounds]),
        median_row(
            f"{name}.ttft.across_minus_local",
            [item.across_ms - item.local_ms for item in rounds],
            target=ACROSS_LIMIT_MS,
        ),
    ]


def pool_rows(name: str, rounds: Sequence[Round], *, block_tokens: int = 32) -> list[Row]:
    """What only our connector's report can show: how much came at once, and how fast."""
    outcomes = [item.outcome for item in rounds if item.outcome is not None]
    if not outcomes:
        return []
    # The user's question differs from the start on: what both prompts share ends some tokens before their end.
    shares = [outcome.applied_tokens / (outcome.prompt_tokens // block_tokens * block_tokens) for outcome in outcomes]
    load_ms = sum(outcome.load_ms for outcome in outcomes)
    loaded_bytes = sum(outcome.byte_count for outcome in outcomes)
    whole_blocks = all(outcome.applied_tokens % block_tokens == 0 for outcome in outcomes)
    return [
        Row(name=f"{name}.available_at_once", value=min(shares), unit="of prompt blocks", target=0.94, at_least=True,
            count=len(shares), remark="" if whole_blocks else "NOT in whole blocks"),
        Row(name=f"{name}.load.bandwidth", value=loaded_bytes / (load_ms / 1000) / 1e9 if load_ms else float("nan"),
            unit="GB/s", target=LOAD_BYTES_PER_S_TARGET / 1e9, at_least=True, count=len(outcomes)),
        median_row(f"{name}.load.duration", [outcome.load_ms for outcome in outcomes]),
        median_row(f"{name}.lookup.duration", [outcome.lookup_ms for outcome in outcomes]),
    ]  # fmt: skip


def cost_rows(name: str, rounds: Sequence[Round], unique: UniquePrompts) -> list[Row]:
    """What the connector costs where nothing can be shared, as a share of the TTFT without it.

    `own_time` is free of the machine's noise: the time that the connector itself took inside the engine's steps.
    """
    cold = [(item.cold_ms, item.cold_alone_ms) for item in rounds if item.cold_alone_ms is not None]
    local = [(item.local_a_ms, item.local_alone_ms) for item in rounds if item.local_alone_ms is not None]
    return [
        _cost_row(f"{name}.cost.cold", cold, target=COST_SHARE_LIMIT),
        _cost_row(f"{name}.cost.unique", unique.pairs, target=COST_SHARE_LIMIT),
        _own_time_row(f"{name}.cost.unique.own_time", unique),
        _cost_row(f"{name}.cost.local_hit", local, target=None),
    ]


def _own_time_row(name: str, unique: UniquePrompts) -> Row:
    ttft_ms = sum(measured for measured, _ in unique.pairs)
    if unique.own_ms is None or not ttft_ms:
        return Row(name=name, value=math.nan, unit="of TTFT", target=COST_SHARE_LIMIT, remark="not counted")
    return Row(name=name, value=unique.own_ms / ttft_ms, unit="of TTFT", target=COST_SHARE_LIMIT,
               count=len(unique.pairs), remark=f"{unique.own_ms / len(unique.pairs):.1f} ms a prompt")  # fmt: skip


def _cost_row(name: str, pairs: Sequence[tuple[float, float]], *, target: float | None) -> Row:
    with_connector = {index: pair[0] for index, pair in enumerate(pairs)}
    alone = {index: pair[1] for index, pair in enumerate(pairs)}
    if len(pairs) < 2:
        return Row(name=name, value=math.nan, unit="of TTFT", target=target, remark="fewer than two pairs")
    difference = paired_difference(with_connector, alone)
    alone_ms = statistics.fmean(alone.values())
    ratio = statistics.median(measured / reference for measured, reference in pairs) - 1
    remark = f"mean {difference.mean_ms:+.1f} ms" + (", within noise" if difference.within_noise else "")
    return Row(name=name, value=ratio, unit="of TTFT", target=target, noise=difference.noise_ms / alone_ms,
               count=len(pairs), remark=remark)  # fmt: skip
