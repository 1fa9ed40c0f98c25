"""The scheduler's side: what to load, what to save, what became of each request. Knows no engine's types.

Nothing here waits except the look-up (a bounded call), and nothing here talks to a worker except through plans.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from moonpool.connectors import saving
from moonpool.connectors.adapters import Sharing, refuse
from moonpool.connectors.groups import CacheGroup, blocks_to_load
from moonpool.connectors.link import NodeLink
from moonpool.connectors.lookup import NODE_AWAY, Ask, Decision, LookupDesk
from moonpool.connectors.outcomes import Ledger, Outcome
from moonpool.connectors.plans import (
    STEP_HAD_LOAD_ERROR,
    BlockRun,
    FileStamp,
    LoadOrder,
    LoadReport,
    SaveOrder,
    StepPlan,
    StepReport,
)
from moonpool.connectors.request_reasons import ABORTED, ADAPTER_CHANGED, OFF
from moonpool.types import Reason


class Request(Protocol):
    """What the scheduler's side reads of an engine's request; the hashes grow while it runs."""

    @property
    def request_id(self) -> str: ...
    @property
    def block_hashes(self) -> Sequence[bytes]: ...
    @property
    def token_count(self) -> int: ...
    @property
    def prompt_token_count(self) -> int: ...
    @property
    def attempt(self) -> int:
        """Grows each time the request starts anew."""
        ...


class Scope(msgspec.Struct, frozen=True):
    """What an engine may do with the pool, and in which namespace.

    The obstacles say in words why nothing is loaded or saved; empty: all is well. A namespace of 0 means that the
    identity is not known yet, or never will be.
    """

    namespace_id: int = 0
    load_obstacle: str = ""
    save_obstacle: str = ""


class Tracked(msgspec.Struct):
    """One admitted request."""

    request: Request
    namespace_id: int
    outcome: Outcome
    progress: saving.SaveProgress
    attempt: int = 0
    may_save: bool = True
    stamps: tuple[FileStamp, ...] = ()
    loading: bool = False
    load_token_count: int = 0
    load: LoadReport | None = None


class Matched(NamedTuple):
    """What was decided for a request until its blocks are allocated."""

    local_token_count: int
    decision: Decision
    sharing: Sharing


class SchedulerSide:
    """All requests of one engine."""

    def __init__(
        self,
        groups: Sequence[CacheGroup],
        *,
        desk: LookupDesk,
        link: NodeLink,
        ledger: Ledger,
        clock_ms: Callable[[], float],
    ) -> None:
        self.groups = tuple(groups)
        self.block_size = groups[0].block_size if groups else 1
        self.scope = Scope(load_obstacle="the identity is not known yet", save_obstacle="the identity is not known yet")
        self.save_limits = saving.SaveLimits()
        self._desk = desk
        self._link = link
        self._ledger = ledger
        self._clock_ms = clock_ms
        self._tracked: dict[str, Tracked] = {}
        self._closing: list[Tracked] = []
        self._matched: dict[str, Matched] = {}
        self._orders: list[LoadOrder] = []
        self._cancelled: list[str] = []

    # Before a step ------------------------------------------------------------------------------------------

    def matched(self, request: Request, *, local_token_count: int, sharing: Sharing | None = None) -> Decision:
        """How many tokens beyond the local hit this request is to load, or `pending`. Without ``sharing`` it may do
        what the engine may.
        """
        sharing = sharing or Sharing(self.scope.namespace_id)
        began_ms = self._clock_ms()
        decision = self._desk.decide(
            Ask(
                request_id=request.request_id,
                namespace_id=sharing.namespace_id,
                block_hashes=request.block_hashes,
                token_count=request.token_count,
                block_size=self.block_size,
                local_token_count=local_token_count,
                attempt=request.attempt,
                obstacle=OFF if self.scope.load_obstacle else sharing.obstacle,
            )
        )
        self._ledger.count("schedule_ms_total", self._clock_ms() - began_ms)
        self._matched[request.request_id] = Matched(local_token_count, decision, sharing)
        return decision

    def admitted(self, request: Request, *, block_numbers: Sequence[Sequence[int]], load_token_count: int) -> None:
        """Blocks were allocated; those of ``load_token_count`` tokens after the local hit are to be loaded."""
        request_id = request.request_id
        matched = self._matched.pop(request_id, None)
        tracked = self._tracked.get(request_id)
        if tracked is None or tracked.attempt != request.attempt:
            tracked = self._track(request, earlier=tracked, sharing=matched.sharing if matched else refuse(OFF))
        if matched is None:
            return  # the second call after a load: nothing new
        local_token_count, decision, sharing = matched
        outcome = tracked.outcome
        if request.attempt == 0 or load_token_count:
            outcome.local_tokens = min(local_token_count, request.prompt_token_count)
            outcome.promised_tokens = max(outcome.promised_tokens, load_token_count)
        outcome.reason = outcome.reason or decision.reason
        outcome.detail = self.scope.load_obstacle or sharing.detail
        outcome.lookup_ms = self._desk.duration_ms(request_id)
        if load_token_count:
            self._order_load(tracked, block_numbers, local_token_count=local_token_count, token_count=load_token_count)

    def _track(self, request: Request, *, earlier: Tracked | None, sharing: Sharing) -> Tracked:
        progress = saving.SaveProgress()
        known = self._desk.known_block_count(request.request_id)
        saving.offered(progress, end=min(known, len(request.block_hashes)), block_hashes=request.block_hashes)
        outcome = Outcome(request_id=request.request_id, prompt_tokens=request.prompt_token_count)
        if earlier is not None:
            outcome = earlier.outcome
            progress.stored_count = earlier.progress.stored_count
        tracked = Tracked(
            request=request,
            namespace_id=sharing.namespace_id,
            outcome=outcome,
            progress=progress,
            attempt=request.attempt,
            may_save=sharing.may_save and sharing.namespace_id != 0,
            stamps=sharing.stamps,
        )
        self._tracked[request.request_id] = tracked
        if earlier is None:
            self._ledger.count("requests_seen")
        return tracked

    def _order_load(
        self, tracked: Tracked, block_numbers: Sequence[Sequence[int]], *, local_token_count: int, token_count: int
    ) -> None:
        first = local_token_count // self.block_size
        end = (local_token_count + token_count) // self.block_size
        runs: list[BlockRun] = []
        for group in self.groups:
            positions = blocks_to_load(group, first=first, end=end)
            runs.extend(
                saving.make_runs(
                    (group,),
                    block_hashes=tracked.request.block_hashes,
                    block_numbers=block_numbers,
                    positions=positions,
                )
            )
        tracked.loading = True
        tracked.load_token_count = token_count
        tracked.load = None
        self._orders.append(LoadOrder(tracked.request.request_id, tracked.namespace_id, tuple(runs)))
        self._ledger.count("promised_tokens", token_count)

    def plan(
        self,
        complete: Iterable[tuple[str, int]],
        *,
        resolve_blocks: Callable[[str], Sequence[Sequence[int]] | None],
        preempted: bool = False,
    ) -> StepPlan:
        """The plan of the step that is about to run.

        ``complete`` gives, for each request of the step, how many blocks will be complete once the step is done.
        """
        saves: list[SaveOrder] = []
        if not self.scope.save_obstacle and self._link.up:
            now_ms = self._clock_ms()
            for request_id, complete_count in complete:
                order = self._order_save(request_id, complete_count, resolve_blocks=resolve_blocks, now_ms=now_ms)
                if order is not None:
                    saves.append(order)
        plan = StepPlan(tuple(self._orders), tuple(saves), tuple(self._cancelled), preempted)
        self._orders.clear()
        self._cancelled.clear()
        return plan

    def _order_save(
        self,
        request_id: str,
        complete_count: int,
        *,
        resolve_blocks: Callable[[str], Sequence[Sequence[int]] | None],
        now_ms: float,
    ) -> SaveOrder | None:
        tracked = self._tracked.get(request_id)
        if tracked is None or not tracked.may_save or complete_count <= tracked.progress.offered:
            return None
        hashes = tracked.request.block_hashes
        positions = saving.due_range(
            tracked.progress, block_hashes=hashes, complete=complete_count, now_ms=now_ms, limits=self.save_limits
        )
        block_numbers = resolve_blocks(request_id) if positions else None
        if block_numbers is None:
            return None
        runs = saving.make_runs(self.groups, block_hashes=hashes, block_numbers=block_numbers, positions=positions)
        saving.offered(tracked.progress, end=positions.stop, block_hashes=hashes)
        return SaveOrder(request_id, tracked.namespace_id, positions.start, positions.stop, runs, tracked.stamps)

    # After a step -------------------------------------------------------------------------------------------

    def received(self, report: StepReport | None, *, finished: Iterable[str], failed: Iterable[str]) -> None:
        """What the workers tell of a step; ``finished`` are loads that all of them have ended."""
        if report is not None:
            for request_id, load in report.loads.items():
                tracked = self._tracked.get(request_id)
                if tracked is not None and tracked.loading:
                    tracked.load = load if tracked.load is None else tracked.load.merge(load)
            for request_id, save in report.saves.items():
                tracked = self._tracked.get(request_id) or self._find_closing(request_id)
                if tracked is not None:
                    self._note_save(tracked, end=save.end, stored_count=save.stored_count, failure=save.failure)
                self._ledger.count("blocks_saved", save.stored_count)
                self._ledger.count("blocks_present", save.present_count)
                self._ledger.count("bytes_saved", save.byte_count)
            self._ledger.count("save_ms_total", report.save_ms)
            if report.node_away:
                self._link.unanswered()
        failures = set(failed)
        for request_id in finished:
            tracked = self._tracked.get(request_id)
            if tracked is not None and tracked.loading:
                self._note_load(tracked, failed=request_id in failures)
        self._close_finished()

    def _find_closing(self, request_id: str) -> Tracked | None:
        return next((tracked for tracked in self._closing if tracked.request.request_id == request_id), None)

    def _note_save(self, tracked: Tracked, *, end: int, stored_count: int, failure: str) -> None:
        tracked.progress.stored_count += stored_count
        if not failure:
            saving.stored(tracked.progress)
            return
        if failure == ADAPTER_CHANGED:  # its blocks may be of other weights than those of its namespace
            tracked.may_save = False
            self._ledger.miss(f"save_{failure}")
            return
        if failure == STEP_HAD_LOAD_ERROR:  # nothing is wrong with these blocks: offer them in the next step
            hashes = tracked.request.block_hashes
            saving.offered(tracked.progress, end=min(end, tracked.progress.offered), block_hashes=hashes)
            return
        self._ledger.count("blocks_refused")
        self._ledger.miss(f"save_{failure}")
        if failure == Reason.NO_PARENT.label:
            end = 0  # the pool has lost the start of the chain since it was looked up
        saving.fell_short(
            tracked.progress,
            end=end,
            block_hashes=tracked.request.block_hashes,
            now_ms=self._clock_ms(),
            limits=self.save_limits,
        )

    def _note_load(self, tracked: Tracked, *, failed: bool) -> None:
        tracked.loading = False
        load = tracked.load or LoadReport(0, 0, 0.0, NODE_AWAY if failed else "")
        outcome = tracked.outcome
        outcome.load_ms += load.duration_ms
        self._ledger.count("load_ms_total", load.duration_ms)
        if failed:
            outcome.reason = load.failure or "load_failed"
            self._desk.give_up(tracked.request.request_id)
            # Whatever the pool said that it holds is not believed: everything is offered again.
            saving.offered(tracked.progress, end=0, block_hashes=tracked.request.block_hashes)
            self._ledger.count("load_failures")
            self._ledger.count("blocks_failed", tracked.load_token_count // self.block_size)
            self._ledger.miss(f"load_{outcome.reason}")
            return
        outcome.byte_count += load.byte_count
        outcome.applied_tokens = max(outcome.applied_tokens, tracked.load_token_count)
        self._ledger.count("blocks_loaded", load.block_count)
        self._ledger.count("bytes_loaded", load.byte_count)
        self._ledger.count("applied_tokens", tracked.load_token_count)

    def ended(self, request_id: str) -> None:
        """The request is done, or was aborted; its blocks may be reused unless it is still loading."""
        self._desk.forget(request_id)
        self._matched.pop(request_id, None)
        tracked = self._tracked.pop(request_id, None)
        if tracked is None:
            return
        if tracked.loading:
            self._cancelled.append(request_id)
            tracked.outcome.reason = ABORTED
        self._closing.append(tracked)

    def _close_finished(self) -> None:
        for tracked in self._closing:
            tracked.outcome.saved_blocks = tracked.progress.stored_count
            if tracked.outcome.reason and not tracked.outcome.applied_tokens:
                self._ledger.miss(tracked.outcome.reason)
            self._ledger.close(tracked.outcome.closed(time.time()))
        self._closing.clear()

    # Seldom -------------------------------------------------------------------------------------------------

    def request(self, request_id: str) -> Request | None:
        """The engine's request of this id, if it was admitted and has not ended."""
        tracked = self._tracked.get(request_id)
        return None if tracked is None else tracked.request

    @property
    def loading_count(self) -> int:
        """Requests whose blocks are being written."""
        return sum(tracked.loading for tracked in self._tracked.values())

    def roll(self, namespace_id: int) -> bool:
        """Move to another namespace. False, and nothing done, while a load of the old one is under way."""
        if self.loading_count or self._orders:
            return False
        self.scope = msgspec.structs.replace(self.scope, namespace_id=namespace_id)
        self._desk.forget_answers()
        for tracked in self._tracked.values():
            tracked.may_save = False  # its blocks are of the old namespace until it starts anew
        return True

    def close(self) -> None:
        """The engine goes: tell what is known of every request."""
        self._closing.extend(self._tracked.values())
        self._tracked.clear()
        self._close_finished()
