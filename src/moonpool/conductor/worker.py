"""One registered worker: its stream, what it was found to do, and its place in the index. No sockets."""

from __future__ import annotations

from typing import Any

import msgspec

from moonpool.conductor.books import Books
from moonpool.conductor.events import Cleared, Removed, Stored, decode
from moonpool.conductor.parity import Parity
from moonpool.conductor.registration import Registration
from moonpool.conductor.stream import Action, Apply, AskReplay, Clear, EventStream, StreamLimits
from moonpool.errors import ProtocolError


class WorkerLimits(msgspec.Struct, frozen=True):
    """How long a worker may take to prove itself."""

    stream_ms: int = 5_000  # for its event stream to answer
    probe_ms: int = 8_000  # for the blocks of our prompt to show up
    stream: StreamLimits = StreamLimits()


class WorkerCounters(msgspec.Struct):
    """Since the registration."""

    batches: int = 0
    blocks_stored: int = 0
    blocks_removed: int = 0
    blocks_refused: int = 0  # the index was full, or the worker's share of it
    cleared: int = 0
    events_skipped: int = 0  # not understood
    malformed: int = 0  # messages that were no batch of events


class Worker:
    """Changed by the intake's thread alone; read by others, who see each number as it was a moment ago."""

    def __init__(self, registration: Registration, books: Books, *, limits: WorkerLimits, now_ms: float) -> None:
        self.registration = registration
        self.limits = limits
        self.stream = EventStream(has_replay=bool(registration.replay_endpoint), limits=limits.stream)
        self.parity = Parity(registration)
        self.counters = WorkerCounters()
        self.registered_ms = now_ms
        self.namespace_id = registration.context.namespace_id
        self.holder = books.open()
        self.closed = False
        self._books = books
        self._silent_since_ms: float | None = now_ms
        self._last_heard_ms: float | None = None
        self._probe_sent_ms: float | None = None
        self.probe_failure = ""

    # Events -------------------------------------------------------------------------------------------------

    def connected(self, now_ms: float) -> AskReplay | None:
        """The publisher accepted us."""
        self._silent_since_ms = None
        return self._do(self.stream.connect(now_ms))

    def disconnected(self, now_ms: float) -> None:
        """The publisher is away."""
        if self._silent_since_ms is None:
            self._silent_since_ms = now_ms
        self.stream.disconnect()

    def live(self, number: int, payload: bytes, now_ms: float) -> AskReplay | None:
        """A message of the subscription. The replay that is to be asked for, if one is."""
        self._silent_since_ms = None
        self._last_heard_ms = now_ms
        return self._do(self.stream.live(number, payload, now_ms))

    def replayed(self, number: int, payload: bytes, now_ms: float) -> AskReplay | None:
        """A message of a replay."""
        return self._do(self.stream.replayed(number, payload, now_ms))

    def replay_ended(self, now_ms: float) -> AskReplay | None:
        """The replay is whole."""
        return self._do(self.stream.replay_ended(now_ms))

    def tick(self, now_ms: float) -> AskReplay | None:
        """A few times a second."""
        return self._do(self.stream.tick(now_ms))

    def _do(self, actions: list[Action]) -> AskReplay | None:
        asked = None
        for action in actions:
            if isinstance(action, Apply):
                self._take(action.payload)
            elif isinstance(action, Clear):
                self._books.cleared(self.holder)
            else:
                asked = action
        return asked

    def _take(self, payload: bytes) -> None:
        try:
            batch = decode(payload, strategy=self.registration.rules.strategy)
        except ProtocolError:
            self.counters.malformed += 1
            return
        self.counters.batches += 1
        self.counters.events_skipped += batch.skipped
        for event in batch.events:
            if isinstance(event, Stored):
                self._take_stored(event, batch.rank)
            elif isinstance(event, Removed):
                self._take_removed(event)
            else:
                assert isinstance(event, Cleared)
                self.counters.cleared += 1
                self._books.cleared(self.holder)

    def _take_stored(self, event: Stored, rank: int | None) -> None:
        failed_before = bool(self.parity.failure)
        self.parity.observe(event, rank)
        if self.parity.failure:
            if not failed_before:
                self._books.cleared(self.holder)  # what it claims is worth nothing
            return
        group = event.kv_group or 0
        if not self.parity.counts(group):
            return
        taken = self._books.stored(self.holder, self.namespace_id, event.hashes, kv_group=group, tier=event.tier)
        self.counters.blocks_stored += taken
        self.counters.blocks_refused += len(event.hashes) - taken

    def _take_removed(self, event: Removed) -> None:
        if self.parity.failure:
            return
        groups = [event.kv_group] if event.kv_group is not None else list(self.parity.groups)
        for group in groups or [0]:
            self._books.removed(self.holder, self.namespace_id, event.hashes, kv_group=group, tier=event.tier)
        self.counters.blocks_removed += len(event.hashes)

    # The probe ----------------------------------------------------------------------------------------------

    def probe_sent(self, tokens: list[int], now_ms: float) -> None:
        """A prompt of ours is on its way to the engine."""
        self._probe_sent_ms = now_ms
        self.parity.expect(tokens)

    # What it is ---------------------------------------------------------------------------------------------

    def failure(self, now_ms: float) -> str:
        """Why what it claims to hold does not count; empty when it does."""
        if self.parity.failure:
            return self.parity.failure
        if self.counters.malformed:
            return f"event stream: {self.counters.malformed} messages were no KV events"
        silent_ms = 0.0 if self._silent_since_ms is None else now_ms - self._silent_since_ms
        if silent_ms > self.limits.stream_ms:
            return f"event stream: nothing answers at {self.registration.endpoint}"
        if self.probe_failure:
            return f"probe: {self.probe_failure}"
        sent = self._probe_sent_ms
        if sent is not None and not self.parity.probe_seen and now_ms - sent > self.limits.probe_ms:
            return "event stream: the blocks of a prompt that we sent to the engine did not come"
        missing = self.parity.missing_groups()
        if self.parity.probe_seen and missing and sent is not None and now_ms - sent > self.limits.probe_ms:
            return f"kv_groups: nothing was published of group {', '.join(map(str, missing))}"
        return ""

    def state(self, now_ms: float) -> str:
        """One of ok, waiting (nothing wrong, not everything known yet) and degraded."""
        if self.failure(now_ms):
            return "degraded"
        return "ok" if self.stream.trusted and self.parity.proven else "waiting"

    def usable(self, now_ms: float) -> bool:
        """Whether what the index knows of it counts."""
        return self.stream.trusted and not self.failure(now_ms)

    def advice(self) -> list[str]:
        """What is worth knowing and no failure."""
        said = list(self.parity.remarks)
        counters = self.stream.counters
        if not self.registration.replay_endpoint:
            said.append("no replay endpoint: what it stored before, and lost messages, are never learnt")
        if counters.lost:
            said.append(f"{counters.lost} messages were lost: it may hold more than is known")
        if self.counters.blocks_refused:
            said.append("its share of the index is full: raise conductor.entry_count_per_worker")
        if self.counters.events_skipped:
            said.append(f"{self.counters.events_skipped} events were not understood")
        return said

    def status(self, now_ms: float) -> dict[str, Any]:
        """For /status."""
        registration = self.registration
        return {
            "instance_id": registration.instance_id,
            "tenant_id": registration.tenant,
            "dp_rank": registration.data_rank,
            "model": registration.model,
            "origin": registration.origin,
            "endpoint": registration.endpoint,
            "state": self.state(now_ms),
            "reason": self.failure(now_ms),
            "advice": self.advice(),
            "proven": self.parity.proven,
            "connected": self.stream.connected,
            "trusted": self.stream.trusted,
            "next_message": self.stream.next_number,
            "heard_ms": None if self._last_heard_ms is None else round(now_ms - self._last_heard_ms),
            "block_size_tokens": registration.rules.block_size_tokens,
            "kv_groups": [list(group) for group in self.parity.groups.values()],
            "entry_count": self.entry_count(),
            "messages": msgspec.to_builtins(self.stream.counters),
            "events": msgspec.to_builtins(self.counters),
        }

    def entry_count(self) -> int:
        """Blocks known of it."""
        return 0 if self.closed else self._books.entry_count(self.holder)

    def close(self) -> None:
        """Take it out of the index. For the intake's thread."""
        if not self.closed:
            self.closed = True
            self._books.close(self.holder)
