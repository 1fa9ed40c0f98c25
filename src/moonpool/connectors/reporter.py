"""Tells node, directory and an optional file who this engine is and what became of its requests.

A thread of its own with clients of its own: nothing here is ever waited for by a step. The document is sent when it
has changed, at most once in an interval; the file gets one JSON line a finished request, at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from moonpool.connectors.outcomes import Ledger
from moonpool.identity import EngineDescription, encode_description

logger = logging.getLogger(__name__)

SEND_TIMEOUT_MS = 300
POLL_MS = 50
FILE_BYTES_MAX = 64 * 1024 * 1024


class Listener(Protocol):
    """The part of a client that a reporter needs."""

    def connect(self, timeout_ms: int) -> tuple[int, str]: ...
    def describe(self, document: str, *, timeout_ms: int = 2000) -> bool: ...
    def close(self) -> None: ...


class Reporter:
    """Starts with `start`, once in each process that wants it."""

    def __init__(
        self,
        make_description: Callable[[], EngineDescription],
        *,
        make_listeners: Callable[[], Sequence[Listener]],
        ledger: Ledger,
        interval_ms: int,
        report_path: str = "",
    ) -> None:
        self._make_description = make_description
        self._make_listeners = make_listeners
        self._ledger = ledger
        self._interval_ms = interval_ms
        self._report_path = Path(report_path) if report_path else None
        self._written_bytes = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to report."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="moonpool-report", daemon=True)
            self._thread.start()

    def stop(self, timeout_ms: float = 1_000) -> None:
        """Report once more and end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_ms / 1000)

    def _run(self) -> None:
        listeners = self._open_listeners()
        sent: list[EngineDescription | None] = [None] * len(listeners)
        since_ms = float(self._interval_ms)
        stopping = False
        while not stopping:
            stopping = self._stop.wait(POLL_MS / 1000)
            self._write_outcomes()
            since_ms += POLL_MS
            if stopping or since_ms >= self._interval_ms:
                since_ms = 0.0
                self._send(listeners, sent)
        for listener in listeners:
            listener.close()

    def _open_listeners(self) -> list[Listener]:
        try:
            listeners = list(self._make_listeners())
            for listener in listeners:
                listener.connect(SEND_TIMEOUT_MS)  # who is away now is reached later, by itself
        except Exception:
            logger.exception("moonpool: node and directory cannot be told of this engine")
            return []
        return listeners

    def _send(self, listeners: Sequence[Listener], sent: list[EngineDescription | None]) -> None:
        description = self._make_description()
        document = ""
        for index, listener in enumerate(listeners):
            if sent[index] == description:
                continue  # a client tells it again by itself after a reconnect
            document = document or encode_description(msgspec.structs.replace(description, described_at=time.time()))
            heard = listener.describe(document, timeout_ms=SEND_TIMEOUT_MS)
            sent[index] = description if heard else None

    def _write_outcomes(self) -> None:
        outcomes = self._ledger.take_unwritten()
        if not outcomes or self._report_path is None:
            return
        lines = b"".join(msgspec.json.encode(outcome) + b"\n" for outcome in outcomes)
        if self._written_bytes + len(lines) > FILE_BYTES_MAX:
            return
        self._written_bytes += len(lines)
        try:
            with self._report_path.open("ab") as file:
                file.write(lines)
        except OSError as error:
            logger.warning("report file cannot be written path=%s error=%s", self._report_path, error)
            self._report_path = None
