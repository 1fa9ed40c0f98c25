"""What is wrong with the engines that are connected, or between them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from moonpool.identity import Difference, EngineDescription, field_differences
from moonpool.pool.finding import Finding, problem, remark
from moonpool.types import Reason

# Fewer than these say nothing yet.
_REQUEST_COUNT_MIN = 3
_LOOKUP_COUNT_MIN = 5
_SILENT_S_MAX = 30.0
_TIMEOUT_SHARE_MAX = 0.1
_DETAIL_COUNT_MAX = 12
_REASON_COUNT_MAX = 4

# Fields that people set on purpose in order not to share.
_DELIBERATE = frozenset({"tenant", "salt", "weight_version"})

# What to do for a field that differs; the cause before what follows from it.
FIELD_ADVICE: dict[str, str] = {
    "weights": "load the same weights, of the same revision, in both",
    "hash_algorithm": "start both with --prefix-caching-hash-algo sha256_cbor",
    "hash_seed": "set PYTHONHASHSEED to one value in both, or in neither with --prefix-caching-hash-algo sha256_cbor",
    "block_size_tokens": "start both with the same --block-size",
    "blocks_per_object": "set the connector's blocks per object alike",
    "compute_dtype": "start both with the same --dtype",
    "kv_dtype": "start both with the same --kv-cache-dtype",
    "kv_scales": "use one checkpoint with scales, and the same --calculate-kv-scales, in both",
    "quantization": "start both with the same --quantization",
    "attention_backend": "start both with the same attention backend",
    "instruction_set": "the CPUs differ in a way that changes the layout of blocks: only equal ones can share",
    "layout": "set the same KV cache layout in both",
    "tensor_parallel_size": "start both with the same --tensor-parallel-size",
    "pipeline_parallel_size": "start both with the same --pipeline-parallel-size",
    "context_parallel_size": "start both with the same context parallel size",
    "config_overrides": "start both with the same --hf-overrides (rope, media processing, …)",
    "model_config": "load the same config.json in both",
    "speculative": "start both with the same --speculative-config",
    "adapter": "load the same adapter under the same name in both",
    "engine": "run the same engine, of the same release, in both",
    "architecture": "load the same model in both",
}


def engine_findings(engines: Sequence[EngineDescription], *, stored_object_count: int, now: float) -> Iterator[Finding]:
    """Of each engine alone, then of engines that can never share."""
    schedulers = [engine for engine in engines if engine.role == "scheduler"]
    for engine in schedulers:
        yield from _settings(engine)
        yield from _work(engine, stored_object_count)
        if engine.described_at and now - engine.described_at > _SILENT_S_MAX:
            yield remark(
                "engine_silent",
                _name(engine),
                what=f"said nothing for {now - engine.described_at:.0f} s",
                advice="look whether its process is stopped or stuck",
            )
    yield from _strangers(schedulers)


def _settings(engine: EngineDescription) -> Iterator[Finding]:
    """What its own flags forbid."""
    said = list(engine.reasons)
    if engine.kind == "vllm" and engine.load_failure_policy != "recompute":
        said = [reason for reason in said if "failure_policy" not in reason]
        yield problem(
            "failure_policy",
            _name(engine),
            what=f"kv_load_failure_policy is {engine.load_failure_policy or 'not set'}: one failed load would fail the "
            "request, so it is offered no hits",
            advice='add "kv_load_failure_policy": "recompute" to --kv-transfer-config (`moonpool vllm-args` prints it)',
        )
    if engine.identity_error or not engine.namespace_id:
        said = [reason for reason in said if not engine.identity_error or engine.identity_error not in reason]
        why = engine.identity_error or ("; ".join(said) or "it has no identity")
        said = said if engine.identity_error else []
        yield problem("no_identity", _name(engine), what=f"it shares nothing: {why}", advice="change what it names")
    # What it says of itself is a problem where it keeps it from sharing, else a piece of advice.
    tell = remark if engine.loads and engine.saves else problem
    for reason in said:
        yield tell(
            "engine_degraded", _name(engine), what=reason, advice="as it says; `moonpool vllm-args` prints all flags"
        )
    yield from _partly(engine)


def _partly(engine: EngineDescription) -> Iterator[Finding]:
    """What it does not do without having said why."""
    if engine.reasons or engine.identity_error:
        return
    for wanted, verb, setting in ((engine.loads, "loads", "load"), (engine.saves, "saves", "save")):
        if not wanted:
            yield remark(
                f"never_{verb}",
                _name(engine),
                what=f"it {verb} nothing",
                advice=f"intended? else set connector.{setting} = true",
            )
    for group in engine.kv_groups:
        if not group.stored:
            yield remark(
                "group_not_stored",
                _name(engine),
                what=f"kv_group {group.kv_group} ({group.kind}) is not stored: {group.reason or 'no reason given'}",
                advice="hits need every group: this model gets none",
            )


def _work(engine: EngineDescription, stored_object_count: int) -> Iterator[Finding]:
    """What its numbers say."""
    counters = engine.counters
    stored = counters.blocks_saved + counters.blocks_present
    if engine.saves and not stored and counters.requests_finished >= _REQUEST_COUNT_MIN:
        yield from _never_saves(engine)
    asks = engine.loads and counters.lookups >= _LOOKUP_COUNT_MIN
    if asks and counters.lookup_timeouts > _TIMEOUT_SHARE_MAX * counters.lookups:
        yield problem(
            "slow_lookups",
            _name(engine),
            what=f"{counters.lookup_timeouts} of {counters.lookups} look-ups had no answer in their budget",
            advice="see whether the node is stopped or the host overloaded; raise connector.lookup_budget_ms",
        )
    elif asks and not counters.applied_tokens and stored_object_count:
        yield problem(
            "never_hits",
            _name(engine),
            what=f"{counters.lookups} look-ups and not one token from the pool, though "
            f"it holds {stored_object_count} objects{_reasons(engine)}",
            advice="if prompts repeat: `moonpool why --last 5` says what happened to each request",
        )
    if counters.load_failures:
        yield remark(
            "load_failures",
            _name(engine),
            what=f"{counters.load_failures} requests were recomputed after a failed load{_reasons(engine, 'load_')}",
            advice="`moonpool why --last 5` names the reason of each",
        )


def _never_saves(engine: EngineDescription) -> Iterator[Finding]:
    block_tokens = engine.block_size_tokens
    if engine.outcomes and all(outcome.prompt_tokens < block_tokens for outcome in engine.outcomes):
        yield remark(
            "short_prompts",
            _name(engine),
            what=f"the last prompts were shorter than a block of {block_tokens} tokens: there was nothing to store",
            advice="lower --block-size if such prompts share a prefix",
        )
        return
    refused = engine.counters.blocks_refused
    yield problem(
        "never_saves",
        _name(engine),
        what=f"{engine.counters.requests_finished} requests and not one block stored"
        + (f", {refused} were refused by the node" if refused else "")
        + _reasons(engine),
        advice="see the node's refusals by reason in /metrics, and the engine's log for `moonpool`",
    )


def _strangers(engines: Sequence[EngineDescription]) -> Iterator[Finding]:
    """Engines that look as if they should share, in namespaces that never meet."""
    by_namespace: dict[str, list[EngineDescription]] = {}
    for engine in engines:
        if engine.namespace_id:
            by_namespace.setdefault(engine.namespace_id, []).append(engine)
    for first, second in combinations(by_namespace.values(), 2):
        yield from _compare(first, second)


def _compare(first: Sequence[EngineDescription], second: Sequence[EngineDescription]) -> Iterator[Finding]:
    one, two = first[0], second[0]
    found = list(_all_differences(one, two))
    names = {_root(difference) for difference in found}
    same_model = "weights" not in names or (bool(one.model) and one.model == two.model)
    if not same_model:
        return  # other models have nothing to share
    who = f"{_names(first)} and {_names(second)}"
    details = tuple(f"{each.field}: {_short(each.first)} | {_short(each.second)}" for each in found[:_DETAIL_COUNT_MAX])
    what = f"never share a block: they differ in {', '.join(sorted(names, key=_order)) or 'nothing that they tell'}"
    if names & _DELIBERATE:
        yield remark("apart_on_purpose", who, what=what, advice="intended? else give both the same", details=details)
        return
    advice = [FIELD_ADVICE[name] for name in sorted(names, key=_order) if name in FIELD_ADVICE]
    yield problem(
        "never_match", who, what=what, advice="; ".join(advice) or "compare how they were started", details=details
    )


def _all_differences(one: EngineDescription, two: EngineDescription) -> Iterator[Difference]:
    if one.tenant != two.tenant:
        yield Difference("tenant", one.tenant, two.tenant)
    yield from sorted(field_differences(one.identity, two.identity), key=lambda each: (_order(_root(each)), each.field))


def _root(difference: Difference) -> str:
    return difference.field.partition(".")[0]


def _order(name: str) -> tuple[int, str]:
    names = list(FIELD_ADVICE)
    return (names.index(name) if name in names else len(names), name)


def _reasons(engine: EngineDescription, prefix: str = "") -> str:
    """The most frequent reasons of its misses, to be appended to a sentence; only those of loads with "load_"."""
    counts = {
        name.removeprefix(prefix): count
        for name, count in engine.counters.misses_by_reason.items()
        if count and name.startswith(prefix)
    }
    meanings = {reason.label: f" ({reason.meaning})" for reason in Reason}
    ranked = sorted(counts.items(), key=lambda item: -item[1])[:_REASON_COUNT_MAX]
    told = [f"{name} {count}{meanings.get(name, '')}" for name, count in ranked]
    return f"; reasons: {', '.join(told)}" if told else ""


def _short(value: str, characters_max: int = 60) -> str:
    return value if len(value) <= characters_max else value[: characters_max - 1] + "…"


def _name(engine: EngineDescription) -> str:
    return f"engine {engine.engine_id}"


def _names(engines: Iterable[EngineDescription]) -> str:
    return "engine " + ", ".join(sorted({engine.engine_id for engine in engines}))
