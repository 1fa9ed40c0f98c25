"""The verbs as `await`: same results, a loop that goes on, and cancelled tasks that leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from remote_cluster import MIB, address_of, figures, listening

import moonpool
from moonpool import AsyncPool, Pool, Reason, Status
from moonpool.errors import ClosedError, PeerUnavailable, UsageError
from moonpool.testing.cluster import Cluster, value_of, wait_until

VALUE = value_of("a", 2 * MIB)


def with_pool(cluster: Cluster, body: Callable[[AsyncPool], Any]) -> Any:
    async def run() -> Any:
        async with await moonpool.aconnect(cluster.folder) as pool:
            return await body(pool)

    return asyncio.run(run())


def test_the_verbs_give_what_those_of_a_pool_give(standing: Cluster, pool: Pool) -> None:
    async def body(awaited: AsyncPool) -> None:
        assert (await awaited.put({"a": VALUE}))["a"].status == Status.STORED
        target = bytearray(len(VALUE))
        assert (await awaited.get_into(["a"], [target]))[0].byte_count == len(VALUE)
        assert target == VALUE
        with await awaited.get(["a"]) as views:
            assert views["a"] == VALUE
        assert await awaited.get_bytes(["a", "b"]) == [VALUE, None]
        assert [bool(found) for found in await awaited.exists(["a", "b"])] == [True, False]
        assert (await awaited.why(["b"]))[0].reason == Reason.NEVER_STORED
        assert (await awaited.pin(["a"]))[0]
        assert (await awaited.unpin(["a"]))[0]
        assert [item.key async for item in awaited.list("a")] == [b"a"]
        assert (await awaited.stat())["name"] == "node-under-test"
        assert (await awaited.match(1, [1])).fetchable_block_count == 0
        assert (await awaited.remove(["a"]))[0]
        assert awaited.connected

    with_pool(standing, body)


def test_many_tasks_share_one_pool(standing: Cluster, pool: Pool) -> None:
    values = {f"k{number}": value_of(f"k{number}", 20_000) for number in range(200)}

    async def one(awaited: AsyncPool, key: str) -> bool:
        assert (await awaited.put({key: values[key]}))[key]
        return await awaited.get_bytes([key]) == [values[key]]

    async def body(awaited: AsyncPool) -> None:
        assert all(await asyncio.gather(*(one(awaited, key) for key in values)))

    with_pool(standing, body)


def test_the_loop_goes_on_while_a_node_says_nothing(cluster: Cluster) -> None:
    async def body(awaited: AsyncPool) -> None:
        with cluster.node.stopped():
            waiting = asyncio.create_task(awaited.exists(["a"], timeout_ms=1_000))
            turns = 0
            while not waiting.done():
                await asyncio.sleep(0.001)
                turns += 1
            assert (await waiting)[0].reason == Reason.TIMED_OUT
        assert turns > 2  # a call that kept the loop would leave it one

    with_pool(cluster, body)


def test_a_cancelled_task_leaves_no_hold_and_no_writer(folder: Path) -> None:
    with listening(folder) as cluster, cluster.connect() as local:
        local.put({"a": VALUE})

        async def run() -> None:
            async with await moonpool.aconnect(cluster.folder, node=address_of(cluster)) as awaited:
                for delay in (0.0, 0.0005, 0.002, 0.01):
                    begun: list[Coroutine[Any, Any, Any]] = [
                        awaited.get(["a"]),
                        awaited.get_into(["a"], [bytearray(len(VALUE))]),
                        awaited.put({f"cancelled-{delay}": VALUE}),
                    ]
                    for one in begun:
                        task = asyncio.ensure_future(one)
                        await asyncio.sleep(delay)
                        task.cancel()
                        await asyncio.gather(task, return_exceptions=True)
                assert await awaited.get_bytes(["a"]) == [VALUE]

        asyncio.run(run())
        wait_until(lambda: figures(local)["hold_count"] == 0, "all holds to be let go")
        assert figures(local)["reservation_count"] == 0


def test_wrong_calls_raise_before_anything_is_touched(standing: Cluster) -> None:
    async def body(awaited: AsyncPool) -> AsyncPool:
        with pytest.raises(UsageError):
            await awaited.get_into(["a", "b"], [bytearray(1)])
        with pytest.raises(UsageError, match="unknown option"):
            await awaited.exists(["a"], timout_ms=1)  # type: ignore[call-arg]
        return awaited

    closed = with_pool(standing, body)
    with pytest.raises(ClosedError):
        asyncio.run(closed.exists(["a"]))


def test_connecting_where_nobody_is_raises(folder: Path) -> None:
    async def run() -> None:
        await moonpool.aconnect(folder / "nobody.sock", connect_timeout_ms=100)

    with pytest.raises(PeerUnavailable):
        asyncio.run(run())
