"""A small OpenAI-compatible server whose every answer is scripted."""

from __future__ import annotations

import json
import math
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.test_utils import TestServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass
class FakeModel:
    """What the server answers: `leads` are the distances of the best two log-probabilities at each token."""

    name: str = "fake"
    words: tuple[str, ...] = ("The", " answer", " is", " 42")
    rivals: tuple[str, ...] = ("A", " question", " was", " 41")
    leads: tuple[float, ...] = (2.0, 2.0, 2.0, 2.0)
    logprob_shift: float = 0.0
    prompt_tokens: int = 7
    cached_tokens: int = 0
    with_logprobs: bool = True
    status: int = 200
    break_after: int | None = None  # closes the stream after so many tokens, without a finish reason
    error_after: int | None = None
    malformed: bytes = b""
    can_reset: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)
    request_ids: list[str | None] = field(default_factory=list)
    resets: int = 0

    def chunk(self, index: int) -> dict[str, Any]:
        best = -math.log1p(math.exp(-self.leads[index])) + self.logprob_shift
        choice: dict[str, Any] = {"index": 0, "delta": {"content": self.words[index]}, "finish_reason": None}
        if self.with_logprobs:
            top = [
                {"token": self.words[index], "logprob": best},
                {"token": self.rivals[index], "logprob": best - self.leads[index]},
            ]
            choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
        return {"choices": [choice]}

    def events(self) -> list[bytes]:
        sent: list[bytes] = [json.dumps({"choices": [{"index": 0, "delta": {"role": "assistant"}}]}).encode()]
        if self.malformed:
            return [*sent, self.malformed]
        for index in range(len(self.words)):
            if index == self.break_after:
                return sent
            if index == self.error_after:
                return [*sent, b'{"error": {"message": "the engine died"}}']
            sent.append(json.dumps(self.chunk(index)).encode())
        sent.append(json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}).encode())
        usage = {"prompt_tokens": self.prompt_tokens, "prompt_tokens_details": {"cached_tokens": self.cached_tokens}}
        return [*sent, json.dumps({"choices": [], "usage": usage}).encode(), b"[DONE]"]

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.request_ids.append(request.headers.get("X-Request-Id"))
        if self.status != 200:
            return web.json_response({"error": {"message": "no such thing"}}, status=self.status)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in self.events():
            await response.write(b"data: " + event + b"\n\n")
        await response.write_eof()
        return response

    async def models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self.name}] if self.name else []})

    async def reset(self, _request: web.Request) -> web.Response:
        self.resets += 1
        return web.Response(status=200 if self.can_reset else 404)


@asynccontextmanager
async def serving(model: FakeModel) -> AsyncIterator[str]:
    """The URL of a server that answers as `model` says, while the block runs."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", model.chat)
    app.router.add_get("/v1/models", model.models)
    app.router.add_post("/reset_prefix_cache", model.reset)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")
