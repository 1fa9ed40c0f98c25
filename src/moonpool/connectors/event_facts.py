"""Where an engine publishes its KV events and how it hashes blocks: what a conductor has to know of it.

Reads vLLM's configuration objects by attribute only.
"""

from __future__ import annotations

from typing import Any

import msgspec


class HashFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine hashes blocks, as its own functions show; empty until it has drawn its seed."""

    root: str = ""
    extra_keys: str = ""
    sample: str = ""


class EventFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Where the engine publishes KV events; empty when it does not."""

    endpoint: str = ""
    replay_endpoint: str = ""
    topic: str = ""
    data_rank: int = 0


def read_events(vllm_config: Any, *, host: str) -> EventFacts:
    """Where the engine publishes KV events, as others reach it; empty when it does not.

    Each rank of data parallelism adds its number to the ports (vllm/distributed/kv_events.py). An endpoint that names
    a host is one to which the engine connects: nobody can subscribe there.
    """
    settings = getattr(vllm_config, "kv_events_config", None)
    if settings is None or not settings.enable_kv_cache_events or settings.publisher != "zmq":
        return EventFacts()
    parallel = vllm_config.parallel_config
    rank = int(getattr(parallel, "data_parallel_index", getattr(parallel, "data_parallel_rank", 0)) or 0)
    return EventFacts(
        endpoint=_reachable(settings.endpoint, host=host, rank=rank, may_connect=True),
        replay_endpoint=_reachable(settings.replay_endpoint, host=host, rank=rank, may_connect=False),
        topic=str(settings.topic),
        data_rank=rank,
    )


def _reachable(endpoint: str | None, *, host: str, rank: int, may_connect: bool) -> str:
    if not endpoint or endpoint.startswith("inproc"):
        return ""
    if endpoint.startswith("ipc://"):
        return endpoint
    place, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    if not port.isdigit() or int(port) == 0:
        return ""
    wildcard = place in ("*", "0.0.0.0", "::", "[::]")
    if not wildcard and may_connect:
        return ""
    return f"tcp://{host if wildcard else place}:{int(port) + rank}"
