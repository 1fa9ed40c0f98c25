"""The conductor as one object: workers, index, answers, and what it says of itself. `process` runs it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from moonpool.conductor import pool_view
from moonpool.conductor.answers import Answers
from moonpool.conductor.bodies import refusal
from moonpool.conductor.books import Books
from moonpool.conductor.intake import Intake, clock_ms
from moonpool.conductor.lookup import Lookup
from moonpool.conductor.pool_view import PoolView
from moonpool.conductor.probe import Prober
from moonpool.conductor.registration import Registration
from moonpool.conductor.registry import Registry
from moonpool.conductor.worker import Worker, WorkerLimits
from moonpool.errors import BadRequest, UsageError
from moonpool.scheduling.costs import Costs
from moonpool.scheduling.decode_cost import FittedDecode
from moonpool.scheduling.estimate import Estimator
from moonpool.scheduling.prefill_cost import FittedPrefill
from moonpool.scheduling.transfer_cost import SharedLink
from moonpool.telemetry.http import Reply, Verb
from moonpool.telemetry.logs import logger

if TYPE_CHECKING:
    from moonpool.config import ConductorSettings

DIRECTORY_MS_MAX = 1_000
# An engine whose connection to the directory is gone for so many looks is forgotten: one look may fall between two.
ABSENT_COUNT_MAX = 3
_log = logger("conductor")
_POST = ("/register", "/unregister", "/query", "/query_by_hash", "/score")
_GET = ("/services", "/global_view")


def costs_of(settings: ConductorSettings) -> Costs:
    """The paper's models with loads hidden behind computing (layer-wise), and with what the settings know better."""
    link = SharedLink()
    per_token_seconds = settings.prefill_ms_per_thousand_tokens / 1e6
    known = FittedPrefill(per_token_seconds, 0.0, 0.0, 0.0)
    prefill = known if per_token_seconds else FittedPrefill.without_load()
    return Costs(
        prefill,
        FittedDecode(),
        SharedLink(
            kv_token_bytes=settings.kv_token_bytes or link.kv_token_bytes,
            bandwidth_bytes_per_second=settings.fetch_bytes_per_second or link.bandwidth_bytes_per_second,
            disk_bytes_per_second=settings.disk_bytes_per_second or link.disk_bytes_per_second,
        ),
    )


class Conductor:
    """Between `start` and `stop` it listens to its workers and answers."""

    def __init__(self, settings: ConductorSettings, *, pool: PoolView | None = None) -> None:
        self._settings = settings
        self._pool = pool
        self._started_ms = clock_ms()
        self._incarnation = secrets.randbits(64)
        self._announced: dict[Any, int] = {}  # key → looks at the directory in which it was absent
        self._refused: dict[str, str] = {}
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="moonpool-announced", daemon=True)
        self.books = Books(
            entry_count_max=settings.entry_count_max, entry_count_per_worker=settings.entry_count_per_worker
        )
        self.intake = Intake(worker_count_max=settings.worker_count_max)
        self.registry = Registry(
            self.books,
            self.intake,
            limits=WorkerLimits(stream_ms=settings.stream_ms, probe_ms=settings.probe_ms),
            worker_count_max=settings.worker_count_max,
            clock_ms=clock_ms,
        )
        self._prober = Prober(self.intake.run_in_thread, clock_ms)
        self.answers = Answers(
            self.registry,
            Lookup(self.books, clock_ms=clock_ms),
            estimator=Estimator(costs_of(settings)),
            pool=pool,
            registered=self._prober.probe,
        )

    def start(self) -> None:
        """Begin to listen."""
        self.intake.start()
        if self._pool is not None and self._settings.announced:
            self._watcher.start()

    def stop(self) -> None:
        """End, in order."""
        self._stopping.set()
        self._prober.stop()
        if self._watcher.is_alive():
            self._watcher.join(2 * DIRECTORY_MS_MAX / 1000)
        self.intake.stop()
        if self._pool is not None:
            self._pool.close()

    def register(self, registration: Registration) -> Worker:
        """As POST /register, from the command line or a file."""
        worker = self.registry.register(registration)
        self._prober.probe(worker)
        return worker

    # Engines that announce themselves -----------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stopping.wait(self._settings.announced_interval_ms / 1000):
            try:
                self.look_at_directory()
            except Exception as error:  # noqa: BLE001 - the edge of this thread: the next look may go better
                _log.exception("directory could not be looked at", error=error)

    def look_at_directory(self) -> None:
        """Register who is there and was not, forget who is gone."""
        assert self._pool is not None
        descriptions = self._pool.descriptions(timeout_ms=DIRECTORY_MS_MAX)
        if descriptions is None:
            return  # who is registered stays: the directory is away, not they
        registrations, refused = pool_view.announced(descriptions)
        for registration in registrations:
            try:
                self.registry.register(registration, replace=True)
                self._announced[registration.key] = 0
            except UsageError as error:
                refused[registration.instance_id] = str(error)
        present = {registration.key for registration in registrations}
        for key in [key for key in self._announced if key not in present]:
            self._announced[key] += 1
            if self._announced[key] >= ABSENT_COUNT_MAX:
                del self._announced[key]
                self.registry.unregister(key.instance_id, tenant=key.tenant, data_rank=key.data_rank)
        self._refused = refused

    # What it says of itself ---------------------------------------------------------------------------------

    def status(self) -> str:
        """The JSON of /status."""
        now_ms = clock_ms()
        document = {
            "kind": "conductor",
            "name": self._settings.name,
            "incarnation": self._incarnation,
            "state": "ready",
            "uptime_ms": round(now_ms - self._started_ms),
            "index": self.books.stats(),
            "workers": [worker.status(now_ms) for worker in self.registry.workers()],
            "not_announced": self._refused,
            "directory": None
            if self._pool is None
            else {"questions": self._pool.questions, "unanswered": self._pool.unanswered},
            "counters": self.counters(),
        }
        return msgspec.json.encode(document).decode()

    def counters(self) -> dict[str, int]:
        """Flat numbers for /metrics."""
        pool = self._pool
        return {
            "registered_total": self.registry.registered_total,
            "unregistered_total": self.registry.unregistered_total,
            "intake_failures": self.intake.failures,
            "directory_questions": pool.questions if pool else 0,
            "directory_unanswered": pool.unanswered if pool else 0,
            **{f"requests_{name.strip('/')}": count for name, count in self.answers.counts.items()},
        }

    def verbs(self, *, needs_token: bool) -> dict[str, Verb]:
        """The paths of the API, for the HTTP face."""
        verbs: dict[str, Verb] = {}
        for method, paths in (("POST", _POST), ("GET", _GET)):
            for path in paths:
                call: Callable[[bytes], Mapping[str, Any]] = getattr(self.answers, path.strip("/"))
                verbs[path] = Verb(method, self._replying(path, call), needs_token)
        return verbs

    def _replying(self, path: str, call: Callable[[bytes], Mapping[str, Any]]) -> Callable[[bytes], Reply]:
        counts = self.answers.counts
        counts[path] = 0

        def reply(body: bytes) -> Reply:
            counts[path] += 1
            try:
                return Reply(200, msgspec.json.encode(call(body)))
            except BadRequest as error:
                return Reply(error.status, msgspec.json.encode(refusal(error)))

        return reply
