"""Worker's side and loader against a pool of plain dicts; threads, but no sockets and no sleeps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from connector_fakes import GROUP, NAMESPACE, WAIT_MS, FakeLink, hashes

from moonpool.connectors.adapters import take_stamps
from moonpool.connectors.groups import CacheGroup
from moonpool.connectors.loading import CANCELLED, DEADLINE, Loader, LoadLimits, RunResult
from moonpool.connectors.plans import BlockRun, LoadOrder, StepPlan, StepReport
from moonpool.connectors.worker import Blocks, Shard, WorkerLimits, WorkerSide
from moonpool.types import Reason, Status

# Loader -----------------------------------------------------------------------------------------------------


class Source:
    """Reads that wait for the test to let them go."""

    def __init__(self, *, gated: bool = False, answer: str = "") -> None:
        self.reading = threading.Event()
        self.gate = threading.Event()
        if not gated:
            self.gate.set()
        self.answer = answer
        self.parts: list[tuple[str, int, int]] = []
        self.inside = 0

    def read(self, order: LoadOrder, run: BlockRun, timeout_ms: int) -> RunResult:
        self.inside += 1
        self.parts.append((order.request_id, run.first, len(run.block_hashes)))
        self.reading.set()
        assert self.gate.wait(WAIT_MS / 1000)
        self.inside -= 1
        return RunResult(0 if self.answer else len(run.block_hashes) * 8, self.answer)

    def call_block_count(self, kv_group: int) -> int:
        return 4


def order(request_id: str, count: int = 10) -> LoadOrder:
    run = BlockRun(0, 0, b"", tuple(hashes(count)), tuple(range(count)))
    return LoadOrder(request_id, NAMESPACE, (run,))


def make_loader(source: Source, clock: Callable[[], float] = lambda: 0.0) -> Loader:
    return Loader(source, limits=LoadLimits(deadline_ms=1000, call_ms=100), clock_ms=clock)


def test_a_load_is_read_in_bounded_parts_and_reported_once() -> None:
    source = Source()
    loader = make_loader(source)
    loader.submit(order("r"))
    assert loader.wait_idle(WAIT_MS)
    assert source.parts == [("r", 0, 4), ("r", 4, 4), ("r", 8, 2)]
    finished = loader.take_finished()
    assert {name: (report.block_count, report.byte_count, report.failure) for name, report in finished.items()} == {
        "r": (10, 80, "")
    }
    assert loader.take_finished() == {}
    assert loader.stop(WAIT_MS)


def test_the_first_miss_ends_a_load() -> None:
    source = Source(answer="evicted")
    loader = make_loader(source)
    loader.submit(order("r"))
    assert loader.wait_idle(WAIT_MS)
    assert loader.take_finished()["r"].failure == "evicted"
    assert len(source.parts) == 1
    assert loader.stop(WAIT_MS)


def test_a_cancelled_load_is_not_reported_before_its_copying_has_stopped() -> None:
    source = Source(gated=True)
    loader = make_loader(source)
    loader.submit(order("r"))
    assert source.reading.wait(WAIT_MS / 1000)
    loader.cancel("r")
    assert loader.take_finished() == {}, "a thread is still writing into the blocks"
    source.gate.set()
    assert loader.wait_idle(WAIT_MS)
    assert source.inside == 0
    assert loader.take_finished()["r"].failure == CANCELLED
    assert len(source.parts) == 1
    assert loader.stop(WAIT_MS)


def test_a_load_past_its_deadline_ends() -> None:
    now = [0.0]
    source = Source()

    def clock() -> float:
        now[0] += 400
        return now[0]

    loader = make_loader(source, clock)
    loader.submit(order("r", 40))
    assert loader.wait_idle(WAIT_MS)
    assert loader.take_finished()["r"].failure == DEADLINE
    assert loader.stop(WAIT_MS)


def test_a_load_that_raises_is_reported_too_and_the_next_one_runs() -> None:
    class Broken(Source):
        def read(self, order: LoadOrder, run: BlockRun, timeout_ms: int) -> RunResult:
            if order.request_id == "broken":
                raise ValueError("planted")
            return super().read(order, run, timeout_ms)

    loader = make_loader(Broken())
    loader.submit(order("broken"))
    loader.submit(order("whole"))
    assert loader.wait_idle(WAIT_MS)
    assert {name: report.failure for name, report in loader.take_finished().items()} == {
        "broken": "internal",
        "whole": "",
    }
    assert loader.stop(WAIT_MS)


def test_stopping_cancels_what_waits_and_reports_it() -> None:
    source = Source(gated=True)
    loader = make_loader(source)
    for index in range(5):
        loader.submit(order(str(index)))
    assert source.reading.wait(WAIT_MS / 1000)
    assert not loader.stop(1), "the copying has not stopped yet, and that is said"
    source.gate.set()
    assert loader.stop(WAIT_MS)
    assert {report.failure for report in loader.take_finished().values()} == {CANCELLED}


# Worker -----------------------------------------------------------------------------------------------------


class DictPort:
    """Engine blocks and node as dicts."""

    block_bytes = 16

    def __init__(self) -> None:
        self.engine: dict[int, str] = {}
        self.node: dict[bytes, str] = {}
        self.tags: list[Any] = []
        self.fail_with: tuple[Status, Reason] | None = None
        self.fail_from = 0
        self.gate = threading.Event()  # reads wait for it
        self.gate.set()

    def read(self, client: Any, blocks: Blocks, *, timeout_ms: int) -> Any:
        assert self.gate.wait(WAIT_MS / 1000)
        statuses, reasons = [], []
        for number, key in zip(blocks.numbers, blocks.keys, strict=True):
            if key in self.node and self.fail_with is None:
                self.engine[number] = self.node[key]
                statuses.append(Status.HIT)
                reasons.append(Reason.NONE)
            else:
                statuses.append(Status.MISS)
                reasons.append(self.fail_with[1] if self.fail_with else Reason.NEVER_STORED)
        hit_count = statuses.count(Status.HIT)
        count = len(statuses)
        return SimpleNamespace(
            statuses=statuses,
            reasons=reasons,
            lengths=[16] * count,
            checksums=[0] * count,
            generations=[0] * count,
            byte_count=hit_count * 16,
        )

    def write(self, client: Any, blocks: Blocks, *, timeout_ms: int) -> Any:
        self.tags.append(blocks.tags)
        statuses, reasons = [], []
        for index, (number, key) in enumerate(zip(blocks.numbers, blocks.keys, strict=True)):
            if self.fail_with and index >= self.fail_from:
                statuses.append(self.fail_with[0])
                reasons.append(self.fail_with[1])
                continue
            statuses.append(Status.PRESENT if key in self.node else Status.STORED)
            self.node.setdefault(key, self.engine.get(number, ""))
            reasons.append(Reason.NONE)
        return SimpleNamespace(statuses=statuses, reasons=reasons)


class WorkerBench:
    def __init__(self, shard: Shard | None = None, group: CacheGroup = GROUP) -> None:
        self.link = FakeLink()
        self.port = DictPort()
        self.side = WorkerSide(
            [group],
            shard=shard or Shard(),
            link=self.link,
            limits=WorkerLimits(),
            clock_ms=lambda: 0.0,  # type: ignore[arg-type]
        )
        self.side.make_tags = lambda *numbers, **named: (numbers, named)
        self.side.register({0: self.port})

    def save(self, *orders: Any) -> StepReport | None:
        self.side.begin(StepPlan(saves=orders))
        self.side.save()
        self.side.take_ended()
        return self.side.take_report()

    def load(self, *orders: LoadOrder) -> tuple[set[str], set[str], StepReport | None]:
        self.side.begin(StepPlan(loads=orders))
        assert self.side.drain(WAIT_MS)
        self.side.save()
        ended, failed = self.side.take_ended()
        return ended, failed, self.side.take_report()


def save_order(request_id: str = "r", *, first: int = 0, count: int = 6) -> Any:
    from moonpool.connectors.plans import SaveOrder

    chain = hashes(first + count)
    run = BlockRun(
        0, first, chain[first - 1] if first else b"", tuple(chain[first:]), tuple(range(first, first + count))
    )
    return SaveOrder(request_id, NAMESPACE, first, first + count, (run,))


def test_what_one_worker_saves_another_loads() -> None:
    bench = WorkerBench()
    bench.port.engine = {number: f"bytes {number}" for number in range(6)}
    report = bench.save(save_order())
    assert report is not None
    assert (report.saves["r"].end, report.saves["r"].stored_count, report.saves["r"].failure) == (6, 6, "")
    bench.port.engine = {}
    ended, failed, loads = bench.load(order("s", 6))
    assert (ended, failed) == ({"s"}, set())
    assert loads is not None
    assert loads.loads["s"].block_count == 6
    assert bench.port.engine == {number: f"bytes {number}" for number in range(6)}


def test_tags_name_parents_and_the_shard() -> None:
    bench = WorkerBench(Shard(1, 2, 2))
    bench.save(save_order(first=2, count=3))
    ((namespace, block_hashes, parents), named) = bench.port.tags[0]
    assert namespace == NAMESPACE
    assert list(block_hashes) == [3, 4, 5]
    assert list(parents) == [2, 3, 4]
    assert named == {"kv_group": 0, "shard_index": 1, "shard_count": 2, "bundle_count": 2, "chained": True}


def test_shards_have_different_keys_and_equal_bytes_have_one() -> None:
    latent = CacheGroup(kv_group=0, kind="full_attention", block_size=32, layer_names=("a",), same_on_every_shard=True)
    keys = []
    for group in (GROUP, latent):
        for index in range(2):
            bench = WorkerBench(Shard(index, 2, 2), group)
            bench.save(save_order())
            keys.append(frozenset(bench.port.node))
    assert not keys[0] & keys[1]
    assert keys[2] == keys[3]


def test_a_step_with_a_load_error_saves_nothing_and_says_so() -> None:
    bench = WorkerBench()
    bench.side.begin(StepPlan(loads=(order("missing"),), saves=(save_order(),)))
    assert bench.side.drain(WAIT_MS)
    bench.side.save()
    assert bench.port.node == {}
    assert bench.side.take_ended() == ({"missing"}, {"missing"})
    report = bench.side.take_report()
    assert report is not None
    assert (report.saves["r"].end, report.saves["r"].failure) == (0, "step_had_load_error")
    assert bench.save(save_order()).saves["r"].end == 6  # type: ignore[union-attr]


def test_blocks_of_an_adapter_whose_files_changed_meanwhile_are_not_saved(tmp_path: Path) -> None:
    bench = WorkerBench()
    stamps = take_stamps(tmp_path, tmp_path)
    guarded = msgspec.structs.replace(save_order(), stamps=stamps)
    assert bench.save(guarded).saves["r"].end == 6  # type: ignore[union-attr]
    bench.port.node.clear()
    (tmp_path / "adapter_model.safetensors").write_bytes(b"other weights")
    report = bench.save(guarded)
    assert report is not None
    assert (report.saves["r"].stored_count, report.saves["r"].failure) == (0, "adapter_changed")
    assert bench.port.node == {}


def test_a_load_that_fails_after_the_save_is_reported_in_the_next_step() -> None:
    bench = WorkerBench()
    bench.port.gate.clear()
    bench.side.begin(StepPlan(loads=(order("missing", 12),), saves=(save_order(),)))
    bench.side.save()
    bench.port.gate.set()
    assert bench.side.drain(WAIT_MS)
    assert bench.side.take_ended() == (set(), set()), "this step's save did not know of it"
    bench.side.begin(StepPlan())
    bench.side.save()
    assert bench.side.take_ended() == ({"missing"}, {"missing"})


def test_a_load_is_reported_in_a_step_that_computes_nothing_and_saves_nothing() -> None:
    bench = WorkerBench()
    bench.save(save_order())
    bench.side.begin(StepPlan(loads=(order("r", 6),)))
    assert bench.side.drain(WAIT_MS)
    assert bench.side.take_ended() == ({"r"}, set())
    assert bench.side.take_ended() == (set(), set())


def test_a_failed_load_is_not_reported_before_the_saves_of_its_step_have_seen_it() -> None:
    bench = WorkerBench()
    bench.side.begin(StepPlan(loads=(order("missing"),), saves=(save_order(),)))
    assert bench.side.drain(WAIT_MS)
    assert bench.side.take_ended() == (set(), set()), "vLLM may ask before it saves"
    bench.side.save()
    assert bench.port.node == {}
    assert bench.side.take_ended() == ({"missing"}, {"missing"})


def test_every_load_is_reported_once_though_the_layout_is_unknown() -> None:
    link = FakeLink()
    side = WorkerSide([GROUP], shard=Shard(), link=link, limits=WorkerLimits(), clock_ms=lambda: 0.0)  # type: ignore[arg-type]
    side.begin(StepPlan(loads=(order("r"),)))
    side.save()
    assert side.take_ended() == ({"r"}, {"r"})
    assert side.take_ended() == (set(), set())


@pytest.mark.parametrize(
    ("status", "reason", "label"),
    [
        (Status.NO_ROOM, Reason.NONE, "no_room"),
        (Status.REFUSED, Reason.NO_PARENT, "no_parent"),
        (Status.REFUSED, Reason.TIMED_OUT, "timed_out"),
        (Status.REFUSED, Reason.UNAVAILABLE, "unavailable"),
    ],
)
def test_a_save_that_fails_tells_how_far_it_came(status: Status, reason: Reason, label: str) -> None:
    bench = WorkerBench()
    bench.port.fail_with, bench.port.fail_from = (status, reason), 2
    report = bench.save(save_order())
    assert report is not None
    assert (report.saves["r"].end, report.saves["r"].failure) == (2, label)
    assert report.node_away == (reason in (Reason.TIMED_OUT, Reason.UNAVAILABLE))
    assert (bench.link.unanswered_count, bench.link.lost_count) == (
        int(reason is Reason.TIMED_OUT),
        int(reason is Reason.UNAVAILABLE),
    )


def test_another_engine_s_copy_of_a_block_is_as_good() -> None:
    bench = WorkerBench()
    bench.port.fail_with, bench.port.fail_from = (Status.CONFLICT, Reason.NONE), 3
    report = bench.save(save_order())
    assert report is not None
    assert (report.saves["r"].end, report.saves["r"].failure) == (6, "")


def test_a_node_that_is_away_costs_no_call() -> None:
    bench = WorkerBench()
    bench.link.up = False
    report = bench.save(save_order())
    assert report is not None
    assert (report.saves["r"].end, report.saves["r"].failure) == (0, "unavailable")
    assert bench.load(order("r"))[1] == {"r"}
    assert bench.port.tags == []
