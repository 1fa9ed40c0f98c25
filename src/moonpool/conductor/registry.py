"""The workers that were registered, by whomever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from moonpool.conductor.books import Books
from moonpool.conductor.registration import Registration, WorkerKey
from moonpool.conductor.worker import Worker, WorkerLimits
from moonpool.errors import UsageError
from moonpool.telemetry.logs import logger

_log = logger("conductor")


class Listener(Protocol):
    """The part of the intake that a registry needs."""

    def add(self, worker: Worker) -> None: ...
    def remove(self, worker: Worker) -> None: ...


class Registry:
    """Every method may be called from any thread."""

    def __init__(
        self,
        books: Books,
        listener: Listener,
        *,
        limits: WorkerLimits,
        worker_count_max: int,
        clock_ms: Callable[[], float],
    ) -> None:
        self._books = books
        self._listener = listener
        self._limits = limits
        self._worker_count_max = worker_count_max
        self._clock_ms = clock_ms
        self._workers: dict[WorkerKey, Worker] = {}
        self._lock = threading.Lock()
        self.registered_total = 0
        self.unregistered_total = 0

    def register(self, registration: Registration, *, replace: bool = False) -> Worker:
        """Listen to it from now on. The same again changes nothing; UsageError for another of the same name (unless it
        is to be replaced), for an endpoint that another worker has, and when there are too many.
        """
        with self._lock:
            known = self._workers.get(registration.key)
            if known is not None:
                if known.registration == registration:
                    return known
                if replace and same_engine(known.registration, registration):
                    known.registration = registration
                    return known
                if not replace:
                    raise UsageError(
                        f"{registration.name} of tenant {registration.tenant} is registered with another endpoint, "
                        "model or hash profile: unregister it first"
                    )
            self._refuse_conflicts(registration)
            worker = Worker(registration, self._books, limits=self._limits, now_ms=self._clock_ms())
            self._workers[registration.key] = worker
            self.registered_total += 1
        if known is not None:
            self._listener.remove(known)
        self._listener.add(worker)
        _log.info(
            "worker registered", name=registration.name, endpoint=registration.endpoint, origin=registration.origin
        )
        return worker

    def _refuse_conflicts(self, registration: Registration) -> None:
        others = [worker.registration for key, worker in self._workers.items() if key != registration.key]
        if len(others) >= self._worker_count_max:
            raise UsageError(f"{len(others)} workers are registered: raise conductor.worker_count_max")
        for other in others:
            if other.endpoint == registration.endpoint:
                raise UsageError(f"endpoint {registration.endpoint} is that of {other.name} already")

    def unregister(
        self, instance_id: str, *, tenant: str | None = None, data_rank: int | None = None
    ) -> list[WorkerKey]:
        """Forget it and what it holds. Of every tenant and rank that is not named; none found is an empty list."""
        with self._lock:
            gone = [
                worker
                for key, worker in self._workers.items()
                if key.instance_id == instance_id
                and tenant in (None, key.tenant)
                and data_rank in (None, key.data_rank)
            ]
            for worker in gone:
                del self._workers[worker.registration.key]
            self.unregistered_total += len(gone)
        for worker in gone:
            self._listener.remove(worker)
            _log.info("worker unregistered", name=worker.registration.name)
        return [worker.registration.key for worker in gone]

    def workers(self) -> list[Worker]:
        """All of now."""
        with self._lock:
            return list(self._workers.values())

    def find(self, key: WorkerKey) -> Worker | None:
        """One of now."""
        with self._lock:
            return self._workers.get(key)


def same_engine(first: Registration, second: Registration) -> bool:
    """Whether they differ at most in the node that the engine is connected to, which may restart under it."""
    return msgspec.structs.replace(first, pool=second.pool) == second


def serving(workers: Iterable[Worker], *, model: str, tenant: str) -> list[Worker]:
    """Those of one model and tenant."""
    return [
        worker
        for worker in workers
        if worker.registration.model == model and worker.registration.tenant == tenant and not worker.closed
    ]
