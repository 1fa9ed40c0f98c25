"""The scheduler's side of one engine with its identity and its reporter, told about the engine by a probe."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec

from moonpool.connectors import engine_facts
from moonpool.connectors.adapters import AdapterBook, AdapterPolicy, Sharing, read_adapter, refuse
from moonpool.connectors.assembly import clock_ms, connector_config, find_peers, make_scheduler_parts
from moonpool.connectors.description import EngineSelf, describe_engine
from moonpool.connectors.event_facts import HashFacts, read_events
from moonpool.connectors.groups import CacheGroup, find_obstacle
from moonpool.connectors.plans import StepPlan
from moonpool.connectors.reporter import Reporter
from moonpool.connectors.scheduler import Scope
from moonpool.errors import IdentityError, MoonpoolError
from moonpool.identity import (
    Adapter,
    EngineDescription,
    Identity,
    fingerprint_adapter,
    fingerprint_weights,
    namespace_id,
    with_weight_version,
)

logger = logging.getLogger("vllm.moonpool")
STOP_TIMEOUT_MS = 2_000
# Fingerprinting large weights takes long: the engine starts meanwhile, and is offered nothing until it is done.
IDENTITY_WAIT_MS = 5_000
HASH_SEED_WAIT_MS = 120_000
HASH_SEED_POLL_MS = 20


class EngineProbe(Protocol):
    """What only an import of the engine can tell."""

    vllm_config: Any
    kv_cache_config: Any

    def engine_version(self) -> str: ...
    def hash_block_size(self) -> int: ...
    def local_folder(self, name: str, revision: str | None = None) -> Path: ...
    def adapters_may_change(self) -> bool: ...
    def hash_seed(self) -> tuple[str, str]: ...
    def hash_facts(self) -> HashFacts: ...
    def attention_backend(self) -> str: ...
    def instruction_set(self) -> str: ...


class EngineFace:
    """One engine's scheduler. `start` once its cache is there; nothing is opened before."""

    def __init__(self, probe: EngineProbe, groups: tuple[CacheGroup, ...]) -> None:
        self._probe = probe
        self._vllm_config = probe.vllm_config
        transfer = self._vllm_config.kv_transfer_config
        self.config = connector_config(transfer.kv_connector_extra_config)
        self._identity: Identity | None = None
        self._identified = threading.Event()  # set when it is known, or known that there is none
        self._waited = False
        self._roll_count = 0
        self.engine = self._make_self(groups)
        peers = find_peers(self.config)
        engine_id = self.engine.engine_id
        self.parts = make_scheduler_parts(
            self.config, groups, peers=peers, name=f"{engine_id} scheduler", shard_count=self.engine.shard_count
        )
        self.side = self.parts.side
        self._adapters = self._make_adapters()
        self._reporter = Reporter(
            self._describe,
            make_listeners=lambda: [
                peers.node_client(engine_id, shared_memory=False),
                *peers.directory_clients(engine_id),
            ],
            ledger=self.parts.ledger,
            interval_ms=self.config.connector.describe_interval_ms,
            report_path=self.config.connector.report_path,
        )

    def _make_self(self, groups: tuple[CacheGroup, ...]) -> EngineSelf:
        vllm_config = self._vllm_config
        transfer = vllm_config.kv_transfer_config
        return EngineSelf(
            engine_id=engine_facts.engine_label(vllm_config, self.config.connector.engine_id),
            kind_version=self._probe.engine_version(),
            model=str(getattr(vllm_config.model_config, "served_model_name", None) or vllm_config.model_config.model),
            process_id=os.getpid(),
            tenant=self.config.client.tenant,
            groups=groups,
            hash_block_size=self._probe.hash_block_size(),
            shard_count=engine_facts.shard_count(vllm_config, self._probe.kv_cache_config),
            hash_algorithm=str(vllm_config.cache_config.prefix_caching_hash_algo),
            load_failure_policy=str(transfer.kv_load_failure_policy),
            prefix_caching=bool(vllm_config.cache_config.enable_prefix_caching),
            started_at=time.time(),
            warnings=engine_facts.find_warnings(vllm_config),
            events=read_events(vllm_config, host=self.config.connector.event_host),
        )

    def _describe(self) -> EngineDescription:
        described = describe_engine(
            self.engine,
            scope=self.side.scope,
            ledger=self.parts.ledger,
            health=self.parts.health,
            node_incarnation=self._node_incarnation(),
        )
        return msgspec.structs.replace(described, adapters=self._adapters.described())

    def _node_incarnation(self) -> int:
        link = self.parts.link
        return int(link.client(0).info.get("incarnation", 0)) if link.up else 0

    def start(self) -> None:
        """Connect, begin to report, and find out who this engine is."""
        self.engine.process_id = os.getpid()
        self.parts.link.start()
        threading.Thread(target=self._identify, name="moonpool-identity", daemon=True).start()
        self._reporter.start()
        for warning in self.engine.warnings:
            logger.warning("moonpool: engine could be set up better advice=%s", warning)

    def wait_ready(self) -> None:
        """Give identity and connection a moment before the first request; later ones do not wait."""
        if not self._waited:
            self._waited = True
            self._identified.wait(IDENTITY_WAIT_MS / 1000)

    def sharing(self, request: Any) -> Sharing:
        """What this request may do with the pool now."""
        obstacle = engine_facts.find_request_obstacle(request, share_media=self.config.connector.share_media)
        if obstacle:
            return refuse(obstacle)
        scope = self.side.scope
        use = engine_facts.adapter_use(request)
        if use is None or not scope.namespace_id:  # of an engine without one everybody is refused
            return Sharing(scope.namespace_id)
        return self._adapters.sharing(use)

    def _make_adapters(self) -> AdapterBook:
        settings = self.config.connector
        policy = AdapterPolicy(
            started_ns=time.time_ns(),
            vouched=settings.adapters_stay,
            may_change=self._probe.adapters_may_change(),
            several_hosts=int(getattr(self._vllm_config.parallel_config, "nnodes", 1)) > 1,
        )
        return AdapterBook(
            policy,
            read=lambda use: read_adapter(use, self._probe.local_folder(use.path), fingerprint=fingerprint_adapter),
            derive=self._adapter_namespace_id,
            clock_ms=clock_ms,
            pending_ms_max=settings.pending_ms_max,
        )

    def _adapter_namespace_id(self, adapter: Adapter) -> int:
        """In the thread that reads adapters."""
        if self._identity is None:
            raise IdentityError("this engine has no identity", kind="incomplete_identity")
        identity = engine_facts.with_lora(self._identity, adapter, self._vllm_config)
        return namespace_id(identity, tenant=self.engine.tenant)

    # Identity -----------------------------------------------------------------------------------------------

    def _identify(self) -> None:
        try:
            self._wait_hash_seed()
            self.engine.hashing = self._probe.hash_facts()
            self._identity = self._make_identity()
            self._set_scope(self._identity)
        except MoonpoolError as error:
            self._refuse(str(error))
        except Exception as error:
            logger.exception("moonpool: identity could not be computed")
            self._refuse(f"{type(error).__name__}: {error}")
        finally:
            self._identified.set()

    def _make_identity(self) -> Identity:
        engine = self.engine
        obstacle = engine_facts.find_engine_obstacle(self._vllm_config) or find_obstacle(
            engine.groups, hash_block_size=engine.hash_block_size
        )
        if obstacle:
            raise IdentityError(obstacle)
        load_format = str(self._vllm_config.load_config.load_format)
        model = self._vllm_config.model_config
        weights = fingerprint_weights(self._probe.local_folder(model.model, model.revision), load_format=load_format)
        seed, engine.hash_seed = self._wait_hash_seed()
        facts = engine_facts.PlatformFacts(
            engine_version=engine.kind_version,
            attention_backend=self._probe.attention_backend(),
            instruction_set=self._probe.instruction_set(),
            hash_seed_fingerprint=seed,
            weights=weights,
        )
        stated = getattr(self._probe.kv_cache_config, "kv_cache_layout", None)
        layout = str(stated or self._vllm_config.cache_config.kv_cache_layout)
        return engine_facts.build_identity(self._vllm_config, engine.groups, layout=layout, facts=facts)

    def _wait_hash_seed(self) -> tuple[str, str]:
        deadline = time.monotonic() + HASH_SEED_WAIT_MS / 1000
        while True:
            try:
                return self._probe.hash_seed()
            except IdentityError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(HASH_SEED_POLL_MS / 1000)

    def _set_scope(self, identity: Identity) -> None:
        settings = self.config.connector
        self.engine.identity = identity.fields()
        self.side.scope = Scope(
            namespace_id=namespace_id(identity, tenant=self.engine.tenant),
            load_obstacle=engine_facts.find_load_obstacle(self._vllm_config)
            or ("" if settings.load else "connector.load is off"),
            save_obstacle=engine_facts.find_save_obstacle(self._vllm_config)
            or ("" if settings.save else "connector.save is off"),
        )
        if self.side.scope.load_obstacle:
            logger.warning("moonpool: no hits are offered reason=%s", self.side.scope.load_obstacle)
        logger.info("moonpool: identity is known namespace=%016x", self.side.scope.namespace_id)

    def _refuse(self, reason: str) -> None:
        self.engine.identity_error = reason
        self.side.scope = Scope(load_obstacle=reason, save_obstacle=reason)
        logger.warning("moonpool: no hits are offered and nothing is saved reason=%s", reason)

    def roll(self) -> bool:
        """Another namespace, for weights that changed under the engine. False while a load is under way."""
        if self._identity is None:
            # There is none: nothing is shared, nothing will be. Not known yet: weights that change now would be taken
            # for those that are being fingerprinted.
            return self._identified.is_set()
        self._roll_count += 1
        version = f"rolled {self.engine.engine_id} {os.getpid()} {time.time_ns()} {self._roll_count}"
        rolled = with_weight_version(self._identity, version)
        if not self.side.roll(namespace_id(rolled, tenant=self.engine.tenant)):
            return False
        self._identity = rolled
        self._adapters.forget_namespaces()
        self.engine.identity = rolled.fields()
        return True

    # Steps --------------------------------------------------------------------------------------------------

    def plan(self, output: Any) -> StepPlan:
        """The plan of the step that vLLM's `SchedulerOutput` describes."""
        blocks = output.kv_connector_block_state
        return self.side.plan(
            self._complete_blocks(output),
            resolve_blocks=blocks.get_block_ids if blocks is not None else lambda _: None,
            preempted=bool(output.preempted_req_ids),
        )

    def _complete_blocks(self, output: Any) -> Iterator[tuple[str, int]]:
        """How many blocks of each request hold no token that may still be rejected, once the step is done."""
        for request_id, token_count in output.num_scheduled_tokens.items():
            request = self.side.request(request_id)
            if isinstance(request, engine_facts.RequestFacts):
                drafts = len(output.scheduled_spec_decode_tokens.get(request_id, ()))
                yield request_id, (request.source.num_computed_tokens + token_count - drafts) // self.side.block_size

    def stop(self) -> None:
        """Report what is left and close."""
        self.side.close()
        self._adapters.stop()
        self._reporter.stop(STOP_TIMEOUT_MS)
        self.parts.link.stop()
