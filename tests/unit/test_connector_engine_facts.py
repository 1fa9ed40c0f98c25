"""What an engine's configuration says: groups, identity, obstacles; with plain objects instead of vLLM's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moonpool.connectors import engine_facts
from moonpool.connectors.assembly import connector_config
from moonpool.connectors.description import EngineSelf, describe_engine
from moonpool.connectors.engine import EngineFace
from moonpool.connectors.engine_facts import PlatformFacts, build_identity, read_groups
from moonpool.connectors.event_facts import read_events
from moonpool.connectors.groups import find_obstacle
from moonpool.connectors.health import Health
from moonpool.connectors.outcomes import Ledger, Outcome
from moonpool.connectors.reporter import Reporter
from moonpool.connectors.scheduler import Scope
from moonpool.errors import ConfigError
from moonpool.identity import Adapter, differences, namespace_id


def spec(name: str = "FullAttentionSpec", **fields: Any) -> Any:
    return type(name, (), {"block_size": 32, "page_size_bytes": 4096, **fields})()


def cache(*specs: Any) -> Any:
    groups = [SimpleNamespace(layer_names=[f"layer{index}"], kv_cache_spec=item) for index, item in enumerate(specs)]
    return SimpleNamespace(kv_cache_groups=groups, kv_tp_replicas=1)


def engine(**changes: Any) -> Any:
    """A vllm_config; ``changes`` are dotted with two underscores, as in ``model__dtype``."""
    config = SimpleNamespace(
        model_config=SimpleNamespace(
            dtype="torch.float32",
            architecture="LlamaForCausalLM",
            quantization=None,
            hf_config={"hidden_size": 128, "rope_theta": 1e4, "_name_or_path": "/a"},
            hf_overrides={},
            get_total_num_kv_heads=lambda: 2,
            get_head_size=lambda: 32,
        ),
        cache_config=SimpleNamespace(cache_dtype="auto", prefix_caching_hash_algo="sha256_cbor"),
        parallel_config=SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=1),
        load_config=SimpleNamespace(load_format="auto"),
        kv_transfer_config=SimpleNamespace(
            kv_load_failure_policy="recompute", kv_role="kv_both", is_kv_consumer=True, is_kv_producer=True
        ),
        speculative_config=None,
    )
    for name, value in changes.items():
        section, _, field = name.partition("__")
        if field:
            setattr(getattr(config, section), field, value)
        else:
            setattr(config, section, value)
    return config


FACTS = PlatformFacts(
    engine_version="0.32.0",
    attention_backend="CPU_ATTN",
    instruction_set="x86_64 avx2",
    hash_seed_fingerprint="aa",
    weights="full:1",
)


def identity(config: Any = None, facts: PlatformFacts = FACTS, specs: tuple[Any, ...] = (spec(),)) -> Any:
    return build_identity(config or engine(), read_groups(cache(*specs)), layout="LBHNC", facts=facts)


# Groups -----------------------------------------------------------------------------------------------------


def test_the_rules_of_known_groups_are_read() -> None:
    full, window, latent = read_groups(
        cache(spec(), spec("SlidingWindowSpec", sliding_window=64), spec("MLAAttentionSpec"))
    )
    assert (full.kind, full.same_on_every_shard) == ("full_attention", False)
    assert (window.kind, window.window_block_count) == ("window", 2)
    assert (latent.kind, latent.same_on_every_shard) == ("full_attention", True)


@pytest.mark.parametrize(
    "unknown",
    [
        spec("MambaSpec"),
        spec("ChunkedLocalAttentionSpec"),
        spec("RSWASpec"),
        spec("SlidingWindowMLASpec", sliding_window=64, bounded_replay=True),
        spec(
            "UniformTypeKVCacheSpecs", kv_cache_specs={"a": spec(), "b": spec("SlidingWindowSpec", sliding_window=64)}
        ),
        spec(
            "UniformTypeKVCacheSpecs",
            kv_cache_specs={
                "a": spec("SlidingWindowSpec", sliding_window=32),
                "b": spec("SlidingWindowSpec", sliding_window=64),
            },
        ),
    ],
    ids=lambda item: type(item).__name__,
)
def test_a_group_of_another_rule_is_an_obstacle_that_names_it(unknown: Any) -> None:
    obstacle = find_obstacle(read_groups(cache(spec(), unknown)), hash_block_size=32)
    assert "kv_group 1" in obstacle


def test_layers_of_one_rule_and_different_sizes_are_one_group() -> None:
    both = spec("UniformTypeKVCacheSpecs", kv_cache_specs={"a": spec(), "b": spec(page_size_bytes=64)})
    assert find_obstacle(read_groups(cache(both)), hash_block_size=32) == ""


# Identity ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model_config__dtype": "torch.bfloat16"}, "compute_dtype"),
        ({"cache_config__cache_dtype": "fp8"}, "kv_dtype"),
        ({"cache_config__prefix_caching_hash_algo": "sha256"}, "hash_algorithm"),
        ({"model_config__quantization": "awq"}, "quantization"),
        ({"model_config__hf_overrides": {"rope_theta": 5.0}}, "config_overrides.rope_theta"),
        ({"model_config__hf_config": {"hidden_size": 128, "rope_theta": 5.0}}, "model_config.rope_theta"),
        ({"parallel_config__tensor_parallel_size": 2}, "tensor_parallel_size"),
    ],
)
def test_a_setting_that_bytes_depend_on_is_another_namespace_and_is_named(changes: dict[str, Any], field: str) -> None:
    first, second = identity(), identity(engine(**changes))
    assert field in [difference.field for difference in differences(first, second)]
    assert namespace_id(first, tenant="t") != namespace_id(second, tenant="t")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"weights": "full:2"}, "weights"),
        ({"hash_seed_fingerprint": "bb"}, "hash_seed"),
        ({"instruction_set": "x86_64 amx_bf16"}, "instruction_set"),
        ({"attention_backend": "FLASH_ATTN"}, "attention_backend"),
        ({"engine_version": "0.33.0"}, "engine"),
    ],
)
def test_a_fact_that_bytes_depend_on_is_another_namespace_and_is_named(change: dict[str, str], field: str) -> None:
    import msgspec

    second = identity(facts=msgspec.structs.replace(FACTS, **change))
    assert [difference.field for difference in differences(identity(), second)] == [field]


def test_where_the_model_lies_does_not_matter() -> None:
    moved = engine(model_config__hf_config={"rope_theta": 10000, "hidden_size": 128, "_name_or_path": "/b"})
    assert identity() == identity(moved)


def test_blocks_that_every_shard_has_alike_are_shared_between_engines_of_any_size() -> None:
    latent = (spec("MLAAttentionSpec"),)
    assert identity(specs=latent) == identity(engine(parallel_config__tensor_parallel_size=4), specs=latent)


def test_an_engine_is_called_as_configured_and_ranks_side_by_side_are_told_apart() -> None:
    config = engine(kv_transfer_config__engine_id="uuid")
    assert (engine_facts.engine_label(config, "A"), engine_facts.engine_label(config, "")) == ("A", "uuid")
    ranks = engine(
        kv_transfer_config__engine_id="uuid",
        parallel_config__data_parallel_size=2,
        parallel_config__data_parallel_rank=1,
    )
    assert engine_facts.engine_label(ranks, "A") == "A-1"


def test_shards_are_counted_without_replicas() -> None:
    config = engine(parallel_config__tensor_parallel_size=8)
    replicated = cache(spec())
    replicated.kv_tp_replicas = 4
    assert engine_facts.shard_count(config, cache(spec())) == 8
    assert engine_facts.shard_count(config, replicated) == 2


# Obstacles --------------------------------------------------------------------------------------------------


def test_the_default_failure_policy_is_no_hits_with_advice() -> None:
    assert engine_facts.find_load_obstacle(engine()) == ""
    obstacle = engine_facts.find_load_obstacle(engine(kv_transfer_config__kv_load_failure_policy="fail"))
    assert "recompute" in obstacle
    assert engine_facts.find_save_obstacle(engine(kv_transfer_config__kv_load_failure_policy="fail")) == ""


def test_roles_decide_what_is_loaded_and_saved() -> None:
    assert "kv_both" in engine_facts.find_load_obstacle(engine(kv_transfer_config__is_kv_consumer=False))
    assert "kv_both" in engine_facts.find_save_obstacle(engine(kv_transfer_config__is_kv_producer=False))


def test_what_adds_layers_or_splits_blocks_is_an_obstacle() -> None:
    assert engine_facts.find_engine_obstacle(engine()) == ""
    assert "eagle" in engine_facts.find_engine_obstacle(engine(speculative_config=SimpleNamespace(method="eagle")))
    assert engine_facts.find_engine_obstacle(engine(speculative_config=SimpleNamespace(method="ngram"))) == ""
    context = engine(parallel_config__decode_context_parallel_size=2)
    assert "context" in engine_facts.find_engine_obstacle(context)
    assert "dummy" in engine_facts.find_engine_obstacle(engine(load_config__load_format="dummy"))


def test_another_hash_algorithm_is_advised_against() -> None:
    assert engine_facts.find_warnings(engine()) == []
    (warning,) = engine_facts.find_warnings(engine(cache_config__prefix_caching_hash_algo="sha256"))
    assert "sha256_cbor" in warning


@pytest.mark.parametrize(
    ("field", "value", "obstacle"),
    [
        ("mm_features", [object()], "media"),
        ("prompt_embeds", object(), "prompt_embeddings"),
    ],
)
def test_requests_whose_hash_does_not_say_it_all_share_nothing(field: str, value: Any, obstacle: str) -> None:
    request = SimpleNamespace(lora_request=None, mm_features=[], prompt_embeds=None)
    assert engine_facts.find_request_obstacle(request, share_media=False) == ""
    setattr(request, field, value)
    assert engine_facts.find_request_obstacle(request, share_media=False) == obstacle
    assert engine_facts.find_request_obstacle(request, share_media=True) == ""


def lora_request(**changes: Any) -> Any:
    return SimpleNamespace(**{"lora_name": "sql", "lora_path": "/adapters/sql", "lora_int_id": 3, **changes})


def test_what_a_request_says_of_its_adapter_is_read() -> None:
    assert engine_facts.adapter_use(SimpleNamespace(lora_request=None)) is None
    plain = engine_facts.adapter_use(SimpleNamespace(lora_request=lora_request()))
    assert plain == ("sql", "/adapters/sql", 3, "", False)
    special = lora_request(load_inplace=True, is_3d_lora_weight=True)
    assert engine_facts.adapter_use(SimpleNamespace(lora_request=special)) == ("sql", "/adapters/sql", 3, "3d", True)


def test_how_an_engine_applies_adapters_is_part_of_their_namespace_and_not_of_the_base_model_s() -> None:
    adapter = Adapter("sql", "full:1")
    plain = engine_facts.with_lora(identity(), adapter, engine(lora_config=SimpleNamespace(lora_dtype="float32")))
    fewer = engine_facts.with_lora(
        identity(), adapter, engine(lora_config=SimpleNamespace(lora_dtype="float32", target_modules=["o_proj"]))
    )
    assert [difference.field for difference in differences(plain, fewer)] == ["config_overrides.lora.target_modules"]
    assert "adapter" in str(differences(plain, identity()))
    assert len({namespace_id(item, tenant="t") for item in (plain, fewer, identity())}) == 3


# Events -----------------------------------------------------------------------------------------------------


def events(rank: int = 0, **changes: Any) -> Any:
    settings = SimpleNamespace(
        enable_kv_cache_events=True,
        publisher="zmq",
        endpoint="tcp://*:5557",
        replay_endpoint="tcp://*:5558",
        topic="kv",
    )
    for name, value in changes.items():
        setattr(settings, name, value)
    return engine(kv_events_config=settings, parallel_config__data_parallel_index=rank)


def test_where_kv_events_are_published_is_told_as_others_reach_it() -> None:
    facts = read_events(events(rank=2), host="10.0.0.7")
    assert (facts.endpoint, facts.replay_endpoint) == ("tcp://10.0.0.7:5559", "tcp://10.0.0.7:5560")
    assert (facts.topic, facts.data_rank) == ("kv", 2)
    local = read_events(events(endpoint="ipc:///run/a.sock", replay_endpoint=None), host="10.0.0.7")
    assert (local.endpoint, local.replay_endpoint) == ("ipc:///run/a.sock", "")


@pytest.mark.parametrize(
    "config",
    [
        engine(),
        engine(kv_events_config=None),
        events(enable_kv_cache_events=False),
        events(publisher="null"),
        events(endpoint="tcp://10.0.0.1:5557"),  # the engine connects there: nobody can subscribe
        events(endpoint="tcp://*:0"),
        events(endpoint="inproc://a"),
    ],
)
def test_an_engine_that_nobody_can_hear_says_so(config: Any) -> None:
    assert read_events(config, host="10.0.0.7").endpoint == ""


# Settings and reports ---------------------------------------------------------------------------------------


def test_extra_config_of_the_engine_is_settings_and_mistakes_are_loud() -> None:
    config = connector_config(
        {"moonpool.engine_id": "A", "moonpool.runtime_folder": "/tmp/x", "moonpool.client.tenant": "t", "other": 1}
    )
    assert (config.connector.engine_id, config.runtime_folder, config.client.tenant) == ("A", "/tmp/x", "t")
    with pytest.raises(ConfigError, match="engine_idd"):
        connector_config({"moonpool.engine_idd": "A"})


class Listener:
    def __init__(self, *, hears: bool = True) -> None:
        self.hears = hears
        self.documents: list[str] = []
        self.closed = False

    def connect(self, timeout_ms: int) -> tuple[int, str]:
        return 0, ""

    def describe(self, document: str, *, timeout_ms: int = 0) -> bool:
        self.documents.append(document)
        return self.hears

    def close(self) -> None:
        self.closed = True


def test_outcomes_reach_listeners_and_the_file_and_nothing_is_sent_twice(tmp_path: Any) -> None:
    import msgspec

    from moonpool.identity import RequestOutcome, decode_description

    ledger = Ledger(outcome_count=2)
    me = EngineSelf(
        engine_id="A", kind_version="1", model="m", process_id=1, tenant="t", groups=read_groups(cache(spec())),
        hash_block_size=32, shard_count=1, hash_algorithm="sha256_cbor", load_failure_policy="recompute",
        prefix_caching=True, started_at=0.0,
    )  # fmt: skip
    hearing, deaf = Listener(), Listener(hears=False)
    reporter = Reporter(
        lambda: describe_engine(me, scope=Scope(7, "no loads"), ledger=ledger, health=Health(failure_count_max=1)),
        make_listeners=lambda: [hearing, deaf],
        ledger=ledger,
        interval_ms=50,
        report_path=str(tmp_path / "report.jsonl"),
    )
    for index in range(3):
        ledger.close(Outcome(request_id=str(index), prompt_tokens=9, applied_tokens=index).closed(1.0))
    reporter.start()
    reporter.stop(10_000)
    description = decode_description(hearing.documents[-1])
    assert description is not None
    assert [outcome.request_id for outcome in description.outcomes] == ["1", "2"], "the last ones only"
    assert (description.engine_id, description.reasons, description.loads, description.saves) == (
        "A", ["no loads"], False, True,
    )  # fmt: skip
    assert len(hearing.documents) == 1, "nothing changed, nothing is sent"
    lines = (tmp_path / "report.jsonl").read_bytes().splitlines()
    written = [msgspec.json.decode(line, type=RequestOutcome) for line in lines]
    assert [(outcome.request_id, outcome.applied_tokens) for outcome in written] == [("0", 0), ("1", 1), ("2", 2)]
    assert hearing.closed
    assert deaf.closed


# Rolling ----------------------------------------------------------------------------------------------------


def test_nothing_is_rolled_before_the_identity_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moonpool.connectors.engine.IDENTITY_WAIT_MS", 1)
    config = engine(
        model_config__served_model_name="m",
        cache_config__enable_prefix_caching=True,
        kv_transfer_config__engine_id="e",
        kv_transfer_config__kv_connector_extra_config={"moonpool.runtime_folder": str(tmp_path / "run")},
    )
    probe = SimpleNamespace(
        vllm_config=config,
        kv_cache_config=cache(spec()),
        engine_version=lambda: "0.32.0",
        hash_block_size=lambda: 32,
        adapters_may_change=lambda: False,
    )
    face = EngineFace(probe, read_groups(cache(spec())))  # type: ignore[arg-type]
    face.wait_ready()  # large weights: the wait is over, and the fingerprint is not
    assert not face.roll()
