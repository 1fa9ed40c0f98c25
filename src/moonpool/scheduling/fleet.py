"""The fleet as plain data: fed with events by a router or by a simulator, read by every policy.

Loads are kept in sorted lists, so that the least loaded worker of a thousand is found without looking at the others:
a change costs two binary searches and one short `memmove`.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator

from moonpool.errors import UsageError
from moonpool.scheduling.workers import Limits, Role, Worker, WorkerState

DecodeLoad = Callable[[int, int], float]


def _tokens_and_requests(request_count: int, kv_tokens: int) -> float:
    """Decode load when no cost model is given: KV tokens, and 4,096 of them for each request."""
    return kv_tokens + 4096.0 * request_count


class Fleet:
    """All workers, their states and loads. Times are seconds on the caller's clock; the fleet has none of its own.

    ``decode_load`` gives the order of decode workers from (requests, KV tokens); pass the ``tbt_seconds`` of a decode
    cost model to order them by predicted TBT.
    """

    def __init__(self, limits: Limits | None = None, *, decode_load: DecodeLoad = _tokens_and_requests) -> None:
        self.limits = Limits() if limits is None else limits
        self.workers: list[Worker] = []
        self._decode_load = decode_load
        self._prefill: list[tuple[float, int]] = []
        self._decode: list[tuple[float, int]] = []
        self._prefill_keys: list[tuple[float, int] | None] = []
        self._decode_keys: list[tuple[float, int] | None] = []
        self.decode_count = 0
        self.kv_tokens = 0

    # Events

    def add(
        self,
        name: str,
        role: Role,
        *,
        state: WorkerState = WorkerState.READY,
        kv_capacity_tokens: int = 1 << 40,
        slowdown: float = 1.0,
    ) -> Worker:
        """A worker joins; its id is its place in ``workers`` and is never given to another."""
        worker = Worker(len(self.workers), name, role, state, kv_capacity_tokens, slowdown)
        self.workers.append(worker)
        self._prefill_keys.append(None)
        self._decode_keys.append(None)
        self._place_prefill(worker)
        self._place_decode(worker)
        return worker

    def set_state(self, worker_id: int, state: WorkerState) -> None:
        """A worker became ready, drains, or died. A dead one loses its load; it may come back as ready."""
        worker = self.workers[worker_id]
        worker.state = state
        if state is WorkerState.DEAD:
            worker.busy_until_seconds = 0.0
            worker.queue_count = worker.queue_tokens = 0
            worker.sending_count = worker.receiving_count = 0
            self.decode_changed(worker_id, request_count=0, kv_tokens=0)
        self._place_prefill(worker)
        self._place_decode(worker)

    def prefill_queued(self, worker_id: int, *, start_seconds: float, seconds: float, tokens: int) -> float:
        """A prompt was given to the worker: ``tokens`` to compute in ``seconds``, not before ``start_seconds``.

        ``start_seconds`` is now, or when the fetch of its prefix ends. Returns when it is predicted to be done.
        """
        worker = self.workers[worker_id]
        worker.busy_until_seconds = max(worker.busy_until_seconds, start_seconds) + seconds
        worker.queue_count += 1
        worker.queue_tokens += tokens
        self._place_prefill(worker)
        return worker.busy_until_seconds

    def prefill_finished(self, worker_id: int, *, tokens: int, busy_until_seconds: float | None = None) -> None:
        """A prompt was computed, cancelled or lost. With ``busy_until_seconds`` the prediction is corrected."""
        worker = self.workers[worker_id]
        if worker.queue_count < 1:
            raise UsageError(f"worker {worker.name} finished a prompt that it was never given")
        worker.queue_count -= 1
        worker.queue_tokens -= tokens
        if busy_until_seconds is not None:
            worker.busy_until_seconds = busy_until_seconds
            self._place_prefill(worker)

    def decode_changed(self, worker_id: int, *, request_count: int, kv_tokens: int) -> None:
        """What the worker decodes now: requests (also those on their way to it) and the KV tokens that they occupy."""
        worker = self.workers[worker_id]
        self.decode_count += request_count - worker.decode_count
        self.kv_tokens += kv_tokens - worker.kv_tokens
        worker.decode_count = request_count
        worker.kv_tokens = kv_tokens
        self._place_decode(worker)

    def transfer_started(self, source_id: int, target_id: int) -> None:
        """A fetch from one worker to another began; until it ends it takes its share of both links."""
        self.workers[source_id].sending_count += 1
        self.workers[target_id].receiving_count += 1

    def transfer_finished(self, source_id: int, target_id: int) -> None:
        """A fetch ended, whether it came whole or not. One whose worker died meanwhile was forgotten with it."""
        source, target = self.workers[source_id], self.workers[target_id]
        source.sending_count = max(0, source.sending_count - 1)
        target.receiving_count = max(0, target.receiving_count - 1)

    # Questions

    def prefill_workers(self, now_seconds: float) -> Iterator[Worker]:
        """Those that may be given a prompt now, the least loaded first. Never a dead, draining or overloaded one."""
        limits, workers = self.limits, self.workers
        horizon = now_seconds + limits.queue_seconds
        for busy_until, worker_id in self._prefill:
            if busy_until > horizon:
                return
            worker = workers[worker_id]
            if worker.queue_count < limits.queue_count:
                yield worker

    def decode_workers(self, kv_tokens: int) -> Iterator[Worker]:
        """Those with room for a request of so many KV tokens, the least loaded first."""
        for _, worker_id in self._decode:
            worker = self.workers[worker_id]
            if worker.takes_decode(kv_tokens, self.limits):
                yield worker

    def least_loaded(self, now_seconds: float, *, count: int, turn: int) -> list[Worker]:
        """At most ``count`` of the least loaded prefill workers. Idle ones are equal: ``turn`` rotates among them."""
        order, workers, limits = self._prefill, self.workers, self.limits
        idle_count = self.idle_count(now_seconds)
        horizon = now_seconds + limits.queue_seconds
        found: list[Worker] = []
        for step in range(len(order)):
            busy_until, worker_id = order[(turn + step) % idle_count if step < idle_count else step]
            if len(found) == count or busy_until > horizon:
                break
            if workers[worker_id].queue_count < limits.queue_count:
                found.append(workers[worker_id])
        return found

    def idle_count(self, now_seconds: float) -> int:
        """Ready prefill workers with nothing to do."""
        return bisect.bisect_right(self._prefill, (now_seconds, len(self.workers)))

    @property
    def prefill_count(self) -> int:
        """Ready prefill workers, overloaded or not."""
        return len(self._prefill)

    @property
    def decode_worker_count(self) -> int:
        """Ready decode workers, overloaded or not."""
        return len(self._decode)

    def shortest_queue_seconds(self, now_seconds: float) -> float | None:
        """The predicted wait at the least loaded ready prefill worker; None when there is no such worker."""
        return max(0.0, self._prefill[0][0] - now_seconds) if self._prefill else None

    def mean_queue_seconds(self, now_seconds: float) -> float:
        """Mean predicted wait over ready prefill workers; looks at each of them. Zero when there are none."""
        waits = [max(0.0, busy_until - now_seconds) for busy_until, _ in self._prefill]
        return sum(waits) / len(waits) if waits else 0.0

    # Order

    def _place_prefill(self, worker: Worker) -> None:
        ready = worker.state is WorkerState.READY and worker.role.prefills
        key = (worker.busy_until_seconds, worker.worker_id) if ready else None
        self._prefill_keys[worker.worker_id] = _moved(self._prefill, self._prefill_keys[worker.worker_id], key)

    def _place_decode(self, worker: Worker) -> None:
        ready = worker.state is WorkerState.READY and worker.role.decodes
        key = (self._decode_load(worker.decode_count, worker.kv_tokens), worker.worker_id) if ready else None
        self._decode_keys[worker.worker_id] = _moved(self._decode, self._decode_keys[worker.worker_id], key)


def _moved(
    order: list[tuple[float, int]], old: tuple[float, int] | None, new: tuple[float, int] | None
) -> tuple[float, int] | None:
    """Take ``old`` out of a sorted list and put ``new`` in; returns ``new``."""
    if old == new:
        return new
    if old is not None:
        del order[bisect.bisect_left(order, old)]
    if new is not None:
        bisect.insort(order, new)
    return new
