"""The connector's two sides on two hosts: one engine saves through its node, another one loads through its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from remote_cluster import several

from moonpool import Layout
from moonpool.connectors import assembly
from moonpool.connectors.groups import CacheGroup
from moonpool.connectors.plans import BlockRun, LoadOrder, SaveOrder, StepPlan
from moonpool.connectors.scheduler import Scope
from moonpool.connectors.worker import HostPort, Shard, WorkerSide
from moonpool.testing.cluster import Cluster, wait_until

BLOCK_COUNT, BLOCK_BYTES, TOKENS = 12, 64 * 1024, 16
GROUP = CacheGroup(kv_group=0, kind="full_attention", block_size=TOKENS, layer_names=("layer",))
NAMESPACE_ID = 99
HASHES = tuple(number.to_bytes(32, "big") for number in range(1, BLOCK_COUNT + 1))
RUN = BlockRun(0, 0, b"", HASHES, tuple(range(BLOCK_COUNT)))


class Prompt(msgspec.Struct, frozen=True):
    """A request whose whole prompt another engine has computed."""

    request_id: str
    block_hashes: tuple[bytes, ...] = HASHES
    attempt: int = 0
    token_count: int = BLOCK_COUNT * TOKENS + 1
    prompt_token_count: int = BLOCK_COUNT * TOKENS + 1


@contextlib.contextmanager
def worker_on(cluster: Cluster, cache: bytearray) -> Iterator[WorkerSide]:
    side = assembly.make_worker_side(
        cluster.config, [GROUP], peers=assembly.find_peers(cluster.config), name="engine", shard=Shard()
    )
    from moonpool._native import address_of

    address, _ = address_of(cache, writable=True)
    side.register({0: HostPort(Layout([address], [BLOCK_BYTES], [BLOCK_BYTES], BLOCK_COUNT))})
    wait_until(lambda: side._link.up, "the worker to find its node")
    try:
        yield side
    finally:
        side.stop(5_000)


def save(side: WorkerSide) -> None:
    side.begin(StepPlan(saves=[SaveOrder("w", NAMESPACE_ID, 0, BLOCK_COUNT, (RUN,))]))
    side.save()
    side.take_ended()
    report = side.take_report()
    assert report is not None
    assert report.saves["w"].end == BLOCK_COUNT, report


def load(side: WorkerSide, request_id: str) -> str:
    """The failure of the load; empty when every block was verified and applied."""
    side.begin(StepPlan(loads=[LoadOrder(request_id, NAMESPACE_ID, (RUN,))]))
    assert side.drain(30_000)
    side.save()
    side.take_ended()
    report = side.take_report()
    assert report is not None
    return report.loads[request_id].failure


def offered(cluster: Cluster) -> int:
    """Tokens that the scheduler's side offers, once it has found its node and its directory."""
    parts = assembly.make_scheduler_parts(
        cluster.config, [GROUP], peers=assembly.find_peers(cluster.config), name="engine", shard_count=1
    )
    parts.link.start()
    wait_until(lambda: parts.link.up, "the scheduler to find its node")
    parts.side.scope = Scope(namespace_id=NAMESPACE_ID)
    found: list[int] = []

    def look_up() -> bool:
        request = Prompt(f"r{len(found)}")
        found.append(parts.side.matched(request, local_token_count=0).token_count)
        parts.side.ended(request.request_id)
        return found[-1] > 0

    with contextlib.suppress(AssertionError):
        wait_until(look_up, "blocks to be offered", timeout_s=20)
    parts.link.stop()
    return found[-1]


@pytest.mark.parametrize("second_is_killed", [False, True])
def test_blocks_that_another_host_saved_are_offered_and_loaded(folder: Path, second_is_killed: bool) -> None:
    cache = bytearray(os.urandom(BLOCK_COUNT * BLOCK_BYTES))
    copy = bytearray(len(cache))
    with several(folder, 2) as (here, there), worker_on(there, cache) as writer, worker_on(here, copy) as reader:
        save(writer)
        assert offered(here) == BLOCK_COUNT * TOKENS
        if second_is_killed:
            there.node.kill()
            assert load(reader, "lost") != ""
            assert load(reader, "lost again") != ""
        else:
            assert load(reader, "r") == ""
            assert copy == cache
