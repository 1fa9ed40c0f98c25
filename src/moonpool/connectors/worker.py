"""A worker's side: loads in the background, saves at the end of a step. Knows no engine's types.

A save is synchronous: when `save` returns, the blocks may be reused. A step in which a load has failed saves
nothing. Every load is reported once, and only after its copying has stopped.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from moonpool.connectors.adapters import unchanged
from moonpool.connectors.elsewhere import OtherNodes
from moonpool.connectors.groups import CacheGroup
from moonpool.connectors.link import NodeLink
from moonpool.connectors.loading import Loader, LoadLimits, RunResult, split_run
from moonpool.connectors.plans import (
    STEP_HAD_LOAD_ERROR,
    BlockRun,
    LoadOrder,
    LoadReport,
    SaveOrder,
    SaveReport,
    StepPlan,
    StepReport,
)
from moonpool.connectors.request_reasons import ADAPTER_CHANGED
from moonpool.identity.keys import block_keys, digest_hints, key_prefix
from moonpool.pool.results import read_results
from moonpool.types import ReadResult, Reason, Status

logger = logging.getLogger("vllm.moonpool")
BLOCKS_PER_CALL_MAX = 1024
SAVE_CLIENT = 0
LOAD_CLIENT = 1
UNANSWERED = frozenset({Reason.TIMED_OUT, Reason.UNAVAILABLE})
# A conflict is another engine's copy of the same tokens with other low bits: as good as ours.
ALREADY_THERE = frozenset({Status.PRESENT, Status.CONFLICT})
IN_POOL = ALREADY_THERE | {Status.STORED}
SAVE_BUDGET = "save_budget"
NO_LAYOUT = "no_layout"
NO_THREAD = "no_thread"
NOT_WORTH_MORE = frozenset({Reason.UNAVAILABLE.label, Reason.TIMED_OUT.label, SAVE_BUDGET})


class Shard(msgspec.Struct, frozen=True):
    """Which part of each block this worker has, and how many parts this node gets."""

    index: int = 0
    count: int = 1
    local_count: int = 1


class Blocks(NamedTuple):
    """Blocks of one native call: the engine's numbers, their keys, and the tags of a put."""

    numbers: Sequence[int]
    keys: Sequence[bytes]
    tags: Any = None


class Port(Protocol):
    """How blocks of one kv_group get from the engine's memory to the node and back."""

    @property
    def block_bytes(self) -> int: ...
    def read(self, client: Any, blocks: Blocks, *, timeout_ms: int) -> Any: ...
    def write(self, client: Any, blocks: Blocks, *, timeout_ms: int) -> Any: ...


class HostPort:
    """Blocks in host memory: the native client copies straight from and to the engine's tensors."""

    def __init__(self, layout: Any) -> None:
        self._layout = layout

    @property
    def block_bytes(self) -> int:
        """Bytes of one block of this group on this shard."""
        return int(self._layout.block_bytes)

    def read(self, client: Any, blocks: Blocks, *, timeout_ms: int) -> Any:
        """Copy each key's value into its block."""
        return client.get_blocks(self._layout, array("Q", blocks.numbers), blocks.keys, timeout_ms=timeout_ms)

    def write(self, client: Any, blocks: Blocks, *, timeout_ms: int) -> Any:
        """Put each block under its key."""
        numbers = array("Q", blocks.numbers)
        return client.put_blocks(self._layout, numbers, blocks.keys, tags=blocks.tags, timeout_ms=timeout_ms)


class WorkerLimits(NamedTuple):
    """``save_ms`` bounds all saves of a step, ``save_call_ms`` one native call of it. A call moves at most
    ``call_bytes_max``, so that its time is bounded and a cancelled load stops soon.
    """

    load: LoadLimits = LoadLimits()
    save_ms: int = 500
    save_call_ms: int = 100
    call_bytes_max: int = 16 * 1024 * 1024


class WorkerSide:
    """Loads and saves of one worker. `register` before the first step."""

    def __init__(
        self,
        groups: Sequence[CacheGroup],
        *,
        shard: Shard,
        link: NodeLink,
        limits: WorkerLimits,
        clock_ms: Callable[[], float],
    ) -> None:
        self._groups = {group.kv_group: group for group in groups}
        self._shard = shard
        self._link = link
        self._limits = limits
        self._clock_ms = clock_ms
        self._ports: Mapping[int, Port] = {}
        self._loader = Loader(self, limits=limits.load, clock_ms=clock_ms)
        self._stillborn: dict[str, LoadReport] = {}
        self._ended: dict[str, LoadReport] = {}
        self._report = StepReport()
        self._plan = StepPlan()
        self._saved = False  # `save` was called in this step
        self.make_tags: Callable[..., Any] = _native_tags
        self.obstacle = ""
        self.others: OtherNodes | None = None  # None: the own node alone

    def register(self, ports: Mapping[int, Port]) -> None:
        """Where the blocks of each kv_group lie. Connects."""
        self._ports = ports
        self._link.start()

    # Loads --------------------------------------------------------------------------------------------------

    def begin(self, plan: StepPlan) -> None:
        """Take the step's plan; loads begin at once, beside the step's computation."""
        self._plan = plan
        self._saved = False
        for request_id in plan.cancelled:
            self._loader.cancel(request_id)
        for order in plan.loads:
            if self.obstacle or not self._ports:
                self._stillborn[order.request_id] = LoadReport(0, 0, 0.0, NO_LAYOUT)
                continue
            try:
                self._loader.submit(order)
            except RuntimeError:  # the process may start no more threads
                logger.warning("moonpool: the thread of loads cannot start, so loads fail")
                self._stillborn[order.request_id] = LoadReport(0, 0, 0.0, NO_THREAD)

    def read(self, order: LoadOrder, run: BlockRun, timeout_ms: int) -> RunResult:
        """Called by the loader's thread."""
        if not self._link.up:
            return RunResult(0, Reason.UNAVAILABLE.label)
        keys = self._keys(order.namespace_id, run)
        port, client = self._ports[run.kv_group], self._link.client(LOAD_CLIENT)
        began_ms = self._clock_ms()
        outcome = port.read(client, Blocks(run.block_numbers, keys), timeout_ms=timeout_ms)
        if first_bad(outcome.statuses, {Status.HIT}) is None:
            return RunResult(int(outcome.byte_count), "")
        results = read_results(outcome, copied=True)
        self._note_unanswered(next(result.reason for result in results if not result))
        left_ms = int(timeout_ms - (self._clock_ms() - began_ms))
        if self.others is not None and left_ms > 0:

            def read(node: Any, positions: Sequence[int], budget_ms: int) -> Sequence[ReadResult]:
                numbers, names = [run.block_numbers[at] for at in positions], [keys[at] for at in positions]
                return read_results(port.read(node, Blocks(numbers, names), timeout_ms=budget_ms), copied=True)

            own = int(client.info["incarnation"])
            self.others.fill(results, keys, read, own_incarnation=own, timeout_ms=left_ms)
        failure = next((result.reason.label for result in results if not result), "")
        return RunResult(sum(result.byte_count for result in results), failure)

    def call_block_count(self, kv_group: int) -> int:
        """Blocks of this group that one native call moves."""
        return max(
            1, min(BLOCKS_PER_CALL_MAX, self._limits.call_bytes_max // max(1, self._ports[kv_group].block_bytes))
        )

    def _keys(self, namespace_id: int, run: BlockRun) -> list[bytes]:
        shard_index = 0 if self._groups[run.kv_group].same_on_every_shard else self._shard.index
        return block_keys(key_prefix(namespace_id, kv_group=run.kv_group, shard_index=shard_index), run.block_hashes)

    def _note_unanswered(self, reason: Reason) -> None:
        if reason is Reason.UNAVAILABLE:
            self._link.lost()
        elif reason is Reason.TIMED_OUT:
            self._link.unanswered()

    # Saves --------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Offer the step's complete blocks to the pool. Bounded; nothing of it is under way when this returns."""
        self._take_ended()
        self._saved = True
        plan, self._plan = self._plan, StepPlan()
        if not plan.saves:
            return
        began_ms = self._clock_ms()
        failed = any(report.failure for report in self._ended.values())
        for order in plan.saves:
            report = SaveReport(first=order.first, end=order.first)
            if failed:
                report.failure = STEP_HAD_LOAD_ERROR
            elif self.obstacle or not self._ports:
                report.failure = NO_LAYOUT
            elif not unchanged(order.stamps):
                report.failure = ADAPTER_CHANGED
            else:
                self._save_order(order, report, began_ms + self._limits.save_ms)
            self._report.saves[order.request_id] = report
        self._report.save_ms += self._clock_ms() - began_ms

    def _save_order(self, order: SaveOrder, report: SaveReport, deadline_ms: float) -> None:
        end = order.end
        for run in order.runs:
            if report.failure in NOT_WORTH_MORE:
                end = min(end, run.first)
                continue
            done = self._save_run(order.namespace_id, run, report=report, deadline_ms=deadline_ms)
            if done < len(run.block_hashes):
                end = min(end, run.first + done)
        report.end = end

    def _save_run(self, namespace_id: int, run: BlockRun, *, report: SaveReport, deadline_ms: float) -> int:
        """Blocks of the run that are in the pool now, from its start on; a failure goes into the report."""
        done = 0
        port = self._ports[run.kv_group]
        for part in split_run(run, block_count_max=self.call_block_count(run.kv_group)):
            left_ms = int(deadline_ms - self._clock_ms())
            if not self._link.up or left_ms <= 0:
                report.failure = SAVE_BUDGET if self._link.up else Reason.UNAVAILABLE.label
                return done
            blocks = Blocks(part.block_numbers, self._keys(namespace_id, part), self._tags(namespace_id, part))
            timeout_ms = min(left_ms, self._limits.save_call_ms)
            outcome = port.write(self._link.client(SAVE_CLIENT), blocks, timeout_ms=timeout_ms)
            stored_count = sum(status == Status.STORED for status in outcome.statuses)
            report.stored_count += stored_count
            report.present_count += sum(status in ALREADY_THERE for status in outcome.statuses)
            report.byte_count += stored_count * port.block_bytes
            bad = first_bad(outcome.statuses, IN_POOL)
            if bad is not None:
                status, reason = Status(outcome.statuses[bad]), Reason(outcome.reasons[bad])
                report.failure = reason.label if reason else status.name.lower()
                self._note_unanswered(reason)
                self._report.node_away = self._report.node_away or reason in UNANSWERED
                return done + bad
            done += len(part.block_hashes)
        return done

    def _tags(self, namespace_id: int, run: BlockRun) -> Any:
        group = self._groups[run.kv_group]
        hints = digest_hints(run.block_hashes)
        parent = digest_hints((run.parent_hash,))[0] if run.parent_hash else 0
        alone = group.same_on_every_shard
        return self.make_tags(
            namespace_id,
            array("Q", hints),
            array("Q", [parent, *hints[:-1]]),
            kv_group=run.kv_group,
            shard_index=0 if alone else self._shard.index,
            shard_count=1 if alone else self._shard.count,
            bundle_count=1 if alone else self._shard.local_count,
            chained=group.chained,
        )

    # Results ------------------------------------------------------------------------------------------------

    def _take_ended(self) -> None:
        self._ended.update(self._loader.take_finished())
        self._ended.update(self._stillborn)
        self._stillborn.clear()

    def take_ended(self) -> tuple[set[str], set[str]]:
        """(loads that have ended, those of them that failed) as `save` saw them; each once.

        An engine need not call `save` in a step that computes nothing (vLLM 0.30 does not): then as they are now.
        """
        if not self._saved and not self._plan.saves:
            self._take_ended()
        ended, self._ended = self._ended, {}
        self._report.loads.update(ended)
        return set(ended), {request_id for request_id, report in ended.items() if report.failure}

    def take_report(self) -> StepReport | None:
        """What the scheduler is to know of this step; None when nothing."""
        report, self._report = self._report, StepReport()
        return None if report.empty else report

    def drain(self, timeout_ms: float) -> bool:
        """Wait until no load writes any more."""
        return self._loader.wait_idle(timeout_ms)

    def stop(self, timeout_ms: float) -> bool:
        """Cancel all, wait for the copying to stop, close the clients."""
        stopped = self._loader.stop(timeout_ms)
        self._link.stop()
        if self.others is not None:
            self.others.close()
        return stopped


def first_bad(statuses: Iterable[int], good: Iterable[int]) -> int | None:
    """Index of the first status that is not good."""
    wanted = set(good)
    return next((index for index, status in enumerate(statuses) if status not in wanted), None)


def _native_tags(*arguments: Any, **keywords: Any) -> Any:
    from moonpool._native import Tags

    return Tags(*arguments, **keywords)
