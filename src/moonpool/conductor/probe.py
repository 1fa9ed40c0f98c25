"""A prompt of ours for an engine: its blocks must show up in the engine's events as we hash them."""

from __future__ import annotations

import http.client
import random
import threading
import urllib.parse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from moonpool.conductor.worker import Worker

THREAD_COUNT = 4
ANSWER_S_MAX = 6.0
# Ids that every vocabulary has. Drawn anew each time: blocks that the engine has already are not published again.
_TOKEN_MIN, _TOKEN_MAX = 5, 250


def probe_tokens(block_size_tokens: int) -> list[int]:
    """Two blocks, and one token more so that the second one is complete before anything is generated."""
    return [random.randint(_TOKEN_MIN, _TOKEN_MAX) for _ in range(2 * block_size_tokens + 1)]


def send(url: str, model: str, tokens: list[int]) -> str:
    """Why the engine did not answer; empty when it did."""
    parts = urllib.parse.urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=ANSWER_S_MAX)
    body = msgspec.json.encode({"model": model, "prompt": tokens, "max_tokens": 1, "temperature": 0})
    try:
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read(2_000)
    except (OSError, http.client.HTTPException) as error:
        return f"the engine's API at {url} does not answer: {error}"
    finally:
        connection.close()
    if answer.status != 200:
        return f"the engine's API at {url} answers {answer.status} to a prompt: {text[:200].decode(errors='replace')}"
    return ""


class Prober:
    """Sends one prompt to each worker whose API is known, some at a time."""

    def __init__(self, run_in_intake: Callable[[Callable[[], None]], None], clock_ms: Callable[[], float]) -> None:
        self._run_in_intake = run_in_intake
        self._clock_ms = clock_ms
        self._threads = ThreadPoolExecutor(THREAD_COUNT, thread_name_prefix="moonpool-probe")
        self._stopping = threading.Event()

    def probe(self, worker: Worker) -> None:
        """Returns at once."""
        if not worker.registration.url or self._stopping.is_set():
            return
        tokens = probe_tokens(worker.registration.rules.block_size_tokens)
        self._run_in_intake(lambda: worker.probe_sent(tokens, self._clock_ms()))
        self._threads.submit(self._send, worker, tokens)

    def stop(self) -> None:
        """Send no more."""
        self._stopping.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _send(self, worker: Worker, tokens: list[int]) -> None:
        worker.probe_failure = send(worker.registration.url, worker.registration.model, tokens)
