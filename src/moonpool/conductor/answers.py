"""What the HTTP API answers: bodies in, documents out. No HTTP here."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from moonpool.conductor import bodies
from moonpool.conductor.bodies import Asked, Wanted
from moonpool.conductor.books import Reach
from moonpool.conductor.lookup import Found, Lookup, Prompt, hash_prompt, home_of, with_node
from moonpool.conductor.pool_view import NodeReach, PoolView
from moonpool.conductor.registry import Registry, serving
from moonpool.conductor.scoring import Candidate, Load, rank
from moonpool.conductor.worker import Worker
from moonpool.errors import BadRequest, UsageError
from moonpool.scheduling.estimate import Estimator


class Answers:
    """One method a path. Each takes the body and gives the document, or raises `BadRequest`."""

    def __init__(
        self,
        registry: Registry,
        lookup: Lookup,
        *,
        estimator: Estimator,
        pool: PoolView | None = None,
        registered: Callable[[Worker], None] = lambda worker: None,
    ) -> None:
        self._registry = registry
        self._lookup = lookup
        self._estimator = estimator
        self._pool = pool
        self._registered = registered
        self._turns = itertools.count()
        self.counts: dict[str, int] = {}

    def register(self, body: bytes) -> dict[str, Any]:
        """POST /register."""
        registration = bodies.registration(bodies.parse(body))
        try:
            worker = self._registry.register(registration)
        except UsageError as error:
            raise BadRequest(str(error), "invalid_registration") from error
        self._registered(worker)
        return {"status": "registered successfully", "instance_id": registration.instance_id}

    def unregister(self, body: bytes) -> dict[str, Any]:
        """POST /unregister."""
        instance_id, tenant, data_rank = bodies.unregistration(bodies.parse(body))
        removed = self._registry.unregister(instance_id, tenant=tenant, data_rank=data_rank)
        if not removed:
            raise BadRequest(f"no worker {instance_id} is registered", "not_found", status=404)
        names = [f"{key.instance_id}|{key.tenant}|{key.data_rank}" for key in removed]
        return {"status": "unregistered successfully", "removed_instances": names}

    def query(self, body: bytes) -> dict[str, Any]:
        """POST /query."""
        return self._matches(bodies.question(bodies.parse(body)))

    def query_by_hash(self, body: bytes) -> dict[str, Any]:
        """POST /query_by_hash."""
        return self._matches(bodies.question(bodies.parse(body), by_hash=True))

    def score(self, body: bytes) -> dict[str, Any]:
        """POST /score."""
        asked, wanted = bodies.scoring(bodies.parse(body))
        workers = self._chosen(asked)
        loads = _loads(workers, wanted)
        chosen = [worker for worker in workers if worker.registration.key in loads]
        prompt = _prompt(asked)
        found = self._lookup.find(prompt, chosen)
        nodes = self._nodes(prompt, chosen)
        candidates = [
            _candidate(each, load=loads[each.worker.registration.key], nodes=held)
            for each, held in zip(found, nodes, strict=True)
        ]
        size = max((each.block_size_tokens for each in found), default=1)
        token_count = asked.token_count or prompt.token_count(size)
        scored = rank(candidates, token_count=token_count, estimator=self._estimator, turn=next(self._turns))
        known = {key.instance_id for key in loads}
        unknown = [each.instance_id for each in wanted if each.instance_id not in known]
        return {"workers": msgspec.to_builtins(scored), "token_count": token_count, "unknown": unknown}

    def services(self, body: bytes = b"") -> dict[str, Any]:
        """GET /services."""
        del body
        listed = [_service(worker) for worker in self._registry.workers()]
        return {"count": len(listed), "services": listed}

    def global_view(self, body: bytes = b"") -> dict[str, Any]:
        """GET /global_view."""
        del body
        contexts: dict[tuple[int, str], list[Worker]] = {}
        for worker in self._registry.workers():
            contexts.setdefault((worker.namespace_id, worker.registration.lora_name), []).append(worker)
        listed = [_context(workers) for workers in contexts.values()]
        return {"context_count": len(listed), "contexts": listed}

    # Parts --------------------------------------------------------------------------------------------------

    def _chosen(self, asked: Asked) -> list[Worker]:
        workers = serving(self._registry.workers(), model=asked.model, tenant=asked.tenant)
        return [
            worker
            for worker in workers
            if asked.instance_id in ("", worker.registration.instance_id)
            and asked.block_size_tokens in (0, worker.registration.rules.block_size_tokens)
        ]

    def _matches(self, asked: Asked) -> dict[str, Any]:
        workers = self._chosen(asked)
        prompt = _prompt(asked)
        instances: dict[str, dict[str, Any]] = {}
        for each, held in zip(self._lookup.find(prompt, workers), self._nodes(prompt, workers), strict=True):
            match = instances.setdefault(each.worker.registration.instance_id, _no_match())
            _add_rank(match, each, with_node(each, held))
        documented = {
            name: {
                "longest_matched": match["longest_matched"],
                "GPU": match["gpu"],
                "DP": match["dp"],
                "CPU": match["cpu"],
                "DISK": match["disk"],
            }
            for name, match in instances.items()
        }
        return {"instances": instances, asked.tenant: documented}

    def _nodes(self, prompt: Prompt, workers: Sequence[Worker]) -> list[list[NodeReach]]:
        """What the pool's nodes hold that each worker can use; one question for each namespace."""
        answers: list[list[NodeReach]] = []
        asked: dict[int, list[NodeReach]] = {}
        for worker in workers:
            facts = worker.registration.pool
            if self._pool is None or facts is None:
                answers.append([])
                continue
            if facts.namespace_id not in asked:
                hashed = hash_prompt(prompt, worker.registration.rules)
                asked[facts.namespace_id] = [] if hashed.reason else self._pool.holders(facts, hashed.hints)
            answers.append(asked[facts.namespace_id])
        return answers


def _prompt(asked: Asked) -> Prompt:
    return Prompt(tokens=asked.tokens, hashes=asked.hashes, extras=asked.extras)


def _loads(workers: Iterable[Worker], wanted: Sequence[Wanted]) -> dict[Any, Load]:
    """The candidates by key, with their loads; all workers when none is named."""
    if not wanted:
        return {worker.registration.key: Load() for worker in workers}
    named = {(each.instance_id, each.data_rank): each.load for each in wanted}
    loads = {}
    for worker in workers:
        key = worker.registration.key
        load = named.get((key.instance_id, key.data_rank), named.get((key.instance_id, None)))
        if load is not None:
            loads[key] = load
    return loads


def _candidate(found: Found, *, load: Load, nodes: Sequence[NodeReach]) -> Candidate:
    """One worker with its own tiers, those of the node on its host, and the best of the other nodes."""
    size, reach, registration = found.block_size_tokens, with_node(found, nodes), found.worker.registration
    others = [node for node in nodes if node.incarnation != home_of(found)]
    best = max(others, key=lambda node: node.block_count, default=None)
    return Candidate(
        name=registration.instance_id,
        data_rank=registration.data_rank,
        engine_tokens=reach.engine * size,
        dram_tokens=(reach.near - reach.engine) * size,
        disk_tokens=(reach.total - reach.near) * size,
        source=best.name if best else "",
        source_tokens=best.block_count * size if best else 0,
        load=load,
        reason=found.reason,
    )


def _no_match() -> dict[str, Any]:
    return {"longest_matched": 0, "dp": {}, "rank_matches": {}, "gpu": 0, "cpu": 0, "disk": 0}


def _add_rank(match: dict[str, Any], found: Found, reach: Reach) -> None:
    """Of an instance the best rank counts; numbers are tokens."""
    size, data_rank = found.block_size_tokens, str(found.worker.registration.data_rank)
    tiers = {"gpu": reach.engine * size, "cpu": reach.dram * size, "disk": reach.disk * size}
    match["dp"][data_rank] = reach.total * size
    match["rank_matches"][data_rank] = tiers
    match["longest_matched"] = max(match["longest_matched"], reach.total * size)
    for tier, tokens in tiers.items():
        match[tier] = max(match[tier], tokens)


def _profile(worker: Worker) -> dict[str, Any]:
    rules = worker.registration.rules
    return {
        "strategy": "vllm_v1" if rules.strategy == "vllm" else rules.strategy,
        "algorithm": rules.algorithm if rules.strategy == "vllm" else "sha256",
        "python_hash_seed": rules.seed,
        "index_projection": "low64_be" if rules.strategy == "vllm" else "high64_be",
    }


def _service(worker: Worker) -> dict[str, Any]:
    registration = worker.registration
    return {
        "Endpoint": registration.endpoint,
        "ReplayEndpoint": registration.replay_endpoint,
        "Type": registration.kind,
        "ModelName": registration.model,
        "LoraName": registration.lora_name,
        "TenantID": registration.tenant,
        "InstanceID": registration.instance_id,
        "BlockSize": registration.rules.block_size_tokens,
        "DPRank": registration.data_rank,
        "CacheGroup": None,
        "HashProfile": _profile(worker),
    }


def _context(workers: Sequence[Worker]) -> dict[str, Any]:
    first = workers[0].registration
    instances: dict[str, list[int]] = {}
    for worker in workers:
        instances.setdefault(worker.registration.instance_id, []).append(worker.registration.data_rank)
    return {
        "model_name": first.model,
        "lora_name": first.lora_name,
        "block_size": first.rules.block_size_tokens,
        "tenant_id": first.tenant,
        "prefix_count": sum(worker.entry_count() for worker in workers),
        "hash_profile": _profile(workers[0]),
        "instances": {name: sorted(ranks) for name, ranks in instances.items()},
    }
