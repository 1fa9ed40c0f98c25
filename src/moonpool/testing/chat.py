"""One streamed chat request to an OpenAI-compatible endpoint: what was answered, how sure, how soon.

Everything that compares or times engines asks through `ask`. Greedy (temperature 0), with the log-probabilities of
the chosen token and of the best two, because an answer alone hardly shows wrong KV.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from moonpool.errors import PeerUnavailable, ProtocolError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

REQUEST_SECONDS_MAX = 120
TOP_COUNT = 2

Message = dict[str, str]


class Token(msgspec.Struct, frozen=True):
    """One generated token, with the best alternatives at its position, best first."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()

    @property
    def lead(self) -> float:
        """Distance of the two best log-probabilities; infinite when the endpoint named only one."""
        return self.top[0][1] - self.top[1][1] if len(self.top) > 1 else float("inf")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back for one request."""

    request_id: str
    text: str
    tokens: tuple[Token, ...]
    prompt_token_count: int
    cached_token_count: int  # as the engine says; 0 where it does not say
    ttft_ms: float  # from sending to the first token
    total_ms: float
    finish_reason: str = ""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask, of which model, and for how long to wait."""

    model: str
    messages: tuple[Message, ...]
    token_count_max: int = 32
    request_id: str = ""
    timeout_s: float = REQUEST_SECONDS_MAX

    def body(self) -> dict[str, Any]:
        """The JSON of /v1/chat/completions."""
        return {
            "model": self.model,
            "messages": list(self.messages),
            "max_tokens": self.token_count_max,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": TOP_COUNT,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


async def ask(session: aiohttp.ClientSession, url: str, question: Question) -> Answer:
    """Sends one request and reads the whole stream. `url` is the server's root, with or without /v1.

    Raises PeerUnavailable (nobody answers, or not in time), UsageError (the endpoint refuses the request or gives
    no log-probabilities) or ProtocolError (an answer that is no event stream of this API, or a failed request).
    """
    headers = {"X-Request-Id": question.request_id} if question.request_id else {}
    collected = _Collected(time.monotonic())
    timeout = aiohttp.ClientTimeout(total=question.timeout_s)
    endpoint = f"{api_root(url)}/chat/completions"
    try:
        async with session.post(endpoint, json=question.body(), headers=headers, timeout=timeout) as response:
            if response.status != 200:
                raise _refusal(url, response.status, await response.text())
            async for event in _events(response):
                collected.take(event, url)
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
        raise PeerUnavailable(f"{url} broke off or does not answer: {error}; is the engine running?") from error
    except TimeoutError as error:
        raise PeerUnavailable(f"{url} did not finish within {question.timeout_s:.0f} s", kind="timed_out") from error
    return collected.answer(question.request_id, url)


async def model_names(session: aiohttp.ClientSession, url: str) -> list[str]:
    """What the endpoint serves, in its order. Raises PeerUnavailable or ProtocolError."""
    try:
        timeout = aiohttp.ClientTimeout(total=10)
        async with session.get(f"{api_root(url)}/models", timeout=timeout) as response:
            if response.status != 200:
                raise _refusal(url, response.status, await response.text())
            document = await response.json(content_type=None)
            return [str(model["id"]) for model in document["data"]]
    except (aiohttp.ClientConnectionError, TimeoutError) as error:
        raise PeerUnavailable(f"{url} does not answer: {str(error) or 'timed out'}; is the engine running?") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ProtocolError(f"{url}/v1/models is no model list of the OpenAI API: {error!r}") from error


def api_root(url: str) -> str:
    """The URL up to and with /v1."""
    url = url.rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{url!r} is no URL: give it as http://host:port")
    return url if url.endswith("/v1") else f"{url}/v1"


class _Collected:
    """The events of one stream, added up."""

    def __init__(self, started_s: float) -> None:
        self._started_s = started_s
        self._first_s: float | None = None
        self._texts: list[str] = []
        self._tokens: list[Token] = []
        self._usage: dict[str, Any] = {}
        self._finish_reason = ""

    def take(self, event: dict[str, Any], url: str) -> None:
        """Adds one chunk. Raises ProtocolError for an error event or a malformed one."""
        if "error" in event:
            raise ProtocolError(f"{url} failed in the middle of its answer: {json.dumps(event['error'])[:300]}")
        self._usage = event.get("usage") or self._usage
        for choice in event.get("choices") or ():
            text = (choice.get("delta") or {}).get("content") or ""
            entries = (choice.get("logprobs") or {}).get("content") or ()
            if self._first_s is None and (text or entries):
                self._first_s = time.monotonic()
            self._texts.append(text)
            self._tokens.extend(_token(entry, url) for entry in entries)
            self._finish_reason = choice.get("finish_reason") or self._finish_reason

    def answer(self, request_id: str, url: str) -> Answer:
        """The whole. Raises ProtocolError when the stream ended early, UsageError without log-probabilities."""
        if not self._finish_reason:
            raise ProtocolError(f"{url} ended its answer without a finish reason: the request failed")
        if self._texts and not self._tokens and "".join(self._texts):
            raise UsageError(
                f"{url} gives no log-probabilities: choose an engine that supports logprobs with streaming"
            )
        ended_s = time.monotonic()
        first_s = ended_s if self._first_s is None else self._first_s
        details = self._usage.get("prompt_tokens_details") or {}
        return Answer(
            request_id=request_id,
            text="".join(self._texts),
            tokens=tuple(self._tokens),
            prompt_token_count=int(self._usage.get("prompt_tokens") or 0),
            cached_token_count=int(details.get("cached_tokens") or 0),
            ttft_ms=(first_s - self._started_s) * 1000,
            total_ms=(ended_s - self._started_s) * 1000,
            finish_reason=self._finish_reason,
        )


def _token(entry: dict[str, Any], url: str) -> Token:
    try:
        top = sorted(
            ((str(item["token"]), float(item["logprob"])) for item in entry.get("top_logprobs") or ()),
            key=lambda item: -item[1],
        )
        return Token(text=str(entry["token"]), logprob=float(entry["logprob"]), top=tuple(top))
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"{url} sent a malformed log-probability: {entry!r:.200}") from error


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    # Server-sent events: one JSON document per "data:" line, "[DONE]" at the end.
    async for raw in response.content:
        line = raw.strip()
        if not line.startswith(b"data:"):
            continue
        payload = line[5:].strip()
        if payload == b"[DONE]":
            return
        try:
            event = json.loads(payload)
        except ValueError as error:
            raise ProtocolError(f"{response.url} sent no JSON in its event stream: {payload[:100]!r}") from error
        if not isinstance(event, dict):
            raise ProtocolError(f"{response.url} sent an event that is no object: {payload[:100]!r}")
        yield event


def _refusal(url: str, status: int, text: str) -> UsageError | ProtocolError:
    message = f"{url} answered HTTP {status}: {text.strip()[:300]}"
    if 400 <= status < 500:
        hint = " (does it support logprobs and this model name?)" if status in (400, 404, 422) else ""
        return UsageError(message + hint)
    return ProtocolError(message)


async def ask_all(
    session: aiohttp.ClientSession, url: str, questions: Sequence[Question]
) -> list[Answer | PeerUnavailable | UsageError | ProtocolError]:
    """All at once; a failed one is its error in its place."""

    async def one(question: Question) -> Answer | PeerUnavailable | UsageError | ProtocolError:
        try:
            return await ask(session, url, question)
        except (PeerUnavailable, UsageError, ProtocolError) as error:
            return error

    return list(await asyncio.gather(*(one(question) for question in questions)))
