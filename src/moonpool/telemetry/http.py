"""The HTTP face of every process: /healthz for anybody, /metrics and /status with the bearer token.

It lives in a thread and event loop of its own, so that it answers whatever the rest does. Each connection
serves one request and is cut after `http_request_ms`, whatever its peer does or does not send. A process may add
verbs of its own; their connections are kept, and each request has that time.
"""

from __future__ import annotations

import asyncio
import hmac
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from moonpool.config import TelemetrySettings
from moonpool.errors import MoonpoolError
from moonpool.telemetry.logs import logger
from moonpool.telemetry.metrics import collect

_STATE_AGE_MS_MAX = 1_000
_UNAUTHORIZED = (
    "send `Authorization: Bearer <token>`; `moonpool config token` prints the token to whoever may read the "
    "cluster's secret"
)
_log = logger("telemetry")

_Answer = TypeVar("_Answer")


class Reply(NamedTuple):
    """Of a verb: HTTP status and JSON text."""

    status: int
    document: bytes


class Verb(NamedTuple):
    """One path beyond those that every process has. ``answer`` gets the body, in the loop: it must not block."""

    method: str
    answer: Callable[[bytes], Reply]
    needs_token: bool = True


class Sources(NamedTuple):
    """What a process shows."""

    room: str  # "node", "directory" or "conductor"
    status: Callable[[], str]  # JSON text
    counters: Callable[[], dict[str, int]]
    verbs: Mapping[str, Verb] = {}  # by path


class HttpFace:
    """Answers HTTP in a thread of its own between start() and stop()."""

    def __init__(
        self, sources: Sources, *, host: str, port: int, token: str, settings: TelemetrySettings | None = None
    ) -> None:
        self._settings = settings or TelemetrySettings()
        self._sources = sources
        self._token = token
        self._host, self._port = host, port
        self._url = ""
        self._started = threading.Event()
        self._failure: OSError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it answers, http://host:port; the port is the real one also when 0 was asked for."""
        return self._url

    def start(self) -> None:
        """Listens when it returns. MoonpoolError `start_failed` when the port is taken or time is out."""
        name = f"moonpool-http-{self._sources.room}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        in_time = self._started.wait(self._settings.http_start_ms / 1000)
        if self._failure is not None or not in_time:
            what = self._failure or f"not listening after {self._settings.http_start_ms} ms"
            raise MoonpoolError(
                f"cannot answer HTTP on {self._host}:{self._port}: {what}; choose another "
                f"{self._sources.room}.http_port (0 takes any free one)",
                kind="start_failed",
            ) from self._failure

    def stop(self) -> None:
        """Ends in bounded time; may be called again, and before start()."""
        thread, loop, ending = self._thread, self._loop, self._ending
        if thread is None:
            return
        if loop is not None and ending is not None and thread.is_alive():
            loop.call_soon_threadsafe(ending.set)
        thread.join(2 * self._settings.http_stop_ms / 1000 + 1)
        if thread.is_alive():
            _log.warning("http thread did not end", room=self._sources.room)
        self._thread = None

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        routes = _Routes(self._sources, self._token, self._settings)
        server = _Server(routes.respond, self._settings)
        try:
            listener = await self._loop.create_server(server, self._host, self._port)
            host, port = listener.sockets[0].getsockname()[:2]
            self._url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            self._started.set()
            await self._ending.wait()
            listener.close()
        finally:
            await server.shutdown(self._settings.http_stop_ms / 1000)
            routes.close()


class _Server(web.Server):
    """Cuts a connection when its time is up, and at once when too many are open."""

    def __init__(
        self, respond: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], settings: TelemetrySettings
    ):
        make_request = partial(
            web.BaseRequest, loop=asyncio.get_running_loop(), client_max_size=settings.http_body_bytes
        )
        super().__init__(self._timed, request_factory=make_request, access_log=None)
        self._respond = respond
        self._settings = settings
        self._ends: dict[Any, asyncio.TimerHandle] = {}

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self.connections) > self._settings.http_connection_count:
            transport.abort()
        else:
            self._end_later(handler, transport)

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        end = self._ends.pop(handler, None)
        if end is not None:
            end.cancel()

    def _end_later(self, handler: Any, transport: asyncio.Transport) -> None:
        before = self._ends.get(handler)
        if before is not None:
            before.cancel()
        loop = asyncio.get_running_loop()
        self._ends[handler] = loop.call_later(self._settings.http_request_ms / 1000, transport.abort)

    async def _timed(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await self._respond(request)
        transport = request.transport
        if response.keep_alive is not False and isinstance(transport, asyncio.Transport):
            self._end_later(request.protocol, transport)  # the next request has its own time
        return response


class _Routes:
    """Answers over one process's sources."""

    def __init__(self, sources: Sources, token: str, settings: TelemetrySettings) -> None:
        self._sources = sources
        self._expected = f"Bearer {token}".encode()
        self._settings = settings
        # Two: one status that takes its time must not keep the next from being asked.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix=f"moonpool-status-{sources.room}")
        self._state = ("", 0.0)

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        """401 before anything else without the token, 504 when the process does not answer in time."""
        try:
            response = await self._answer(request)
        except TimeoutError:
            response = _plain(504, f"the {self._sources.room} did not answer in {self._settings.http_status_ms} ms")
        except Exception as error:  # noqa: BLE001 - the edge of a request: the process goes on, and says what it was
            _log.exception("http request failed", path=request.path, error=error)
            response = _plain(500, f"{type(error).__name__}; the log of the {self._sources.room} has the rest")
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        if request.path not in self._sources.verbs or response.status in (401, 413):
            response.force_close()
        return response

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        verb = self._sources.verbs.get(request.path)
        if verb is not None:
            return await self._do(verb, request)
        if request.path != "/healthz" and not self._may(request):
            return _plain(401, _UNAUTHORIZED, {"WWW-Authenticate": 'Bearer realm="moonpool"'})
        if request.method not in ("GET", "HEAD"):
            return _plain(405, "only GET", {"Allow": "GET, HEAD"})
        if request.path == "/healthz":
            return web.json_response({"state": await self._state_now()})
        if request.path == "/status":
            return web.Response(text=await self._ask(self._sources.status), content_type="application/json")
        if request.path == "/metrics":
            text = await self._ask(lambda: metrics_text(self._sources))
            return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})
        return _plain(404, f"there are {', '.join(['/healthz', '/metrics', '/status', *self._sources.verbs])}")

    async def _do(self, verb: Verb, request: web.BaseRequest) -> web.Response:
        if verb.needs_token and not self._may(request):
            return _plain(401, _UNAUTHORIZED, {"WWW-Authenticate": 'Bearer realm="moonpool"'})
        if request.method != verb.method:
            return _plain(405, f"only {verb.method}", {"Allow": verb.method})
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return _plain(413, f"a body has at most {self._settings.http_body_bytes} bytes (telemetry.http_body_bytes)")
        reply = verb.answer(body)
        return web.Response(status=reply.status, body=reply.document, content_type="application/json")

    async def _state_now(self) -> str:
        """Asks the process at most once a second, for this is open to anybody."""
        state, asked_at = self._state
        if not state or time.monotonic() - asked_at > _STATE_AGE_MS_MAX / 1000:
            document = await self._ask(self._sources.status)
            state = msgspec.json.decode(document, type=_State).state
            self._state = (state, time.monotonic())
        return state

    def _may(self, request: web.BaseRequest) -> bool:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, self._expected)

    async def _ask(self, question: Callable[[], _Answer]) -> _Answer:
        work = asyncio.get_running_loop().run_in_executor(self._threads, question)
        return await asyncio.wait_for(work, self._settings.http_status_ms / 1000)


def _plain(status: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=f"{status}: {text}\n", headers=headers)


class _State(msgspec.Struct):
    state: str = "ready"


class _Collector:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Any:
        document = msgspec.json.decode(self._sources.status())
        document["counters"] = {**document.get("counters", {}), **self._sources.counters()}
        return list(collect(self._sources.room, document))


def metrics_text(sources: Sources) -> bytes:
    """All metrics of a process in Prometheus' text form."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(sources))
    return generate_latest(registry)
