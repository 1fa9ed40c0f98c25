"""The thread that listens to all workers: subscriptions, connections, replays. The only code here that knows ZeroMQ."""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from moonpool.conductor.stream import AskReplay
from moonpool.conductor.worker import Worker
from moonpool.errors import ConfigError
from moonpool.telemetry.logs import logger

TICK_MS = 100
MESSAGES_PER_TURN = 64
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
UNREAD_COUNT_MAX = 256  # what we do not read waits at the publisher
RECONNECT_MS_MIN, RECONNECT_MS_MAX = 100, 2_000
STOP_S_MAX = 5.0
SOCKETS_PER_WORKER = 4
_END = (-1).to_bytes(8, "big", signed=True)
_log = logger("conductor")


def clock_ms() -> float:
    """Milliseconds of a clock that never goes back."""
    return time.monotonic() * 1000


class Intake:
    """Listens between `start` and `stop`. Workers are added and removed from any thread."""

    def __init__(self, *, worker_count_max: int) -> None:
        try:
            import zmq
        except ImportError as error:
            raise ConfigError(
                "the conductor listens by ZeroMQ, which is not installed: pip install 'moonpool[conductor]'",
                kind="start_failed",
            ) from error
        self._zmq: Any = zmq
        self._context = zmq.Context()
        # ZeroMQ's own limit is 1,023. The monitor of a subscription takes two.
        self._context.set(zmq.MAX_SOCKETS, SOCKETS_PER_WORKER * (worker_count_max + 1))
        self._poller = zmq.Poller()
        self._wires: dict[Worker, _Wire] = {}
        self._handlers: dict[Any, Callable[[float], None]] = {}
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._awake, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="moonpool-intake", daemon=True)
        self.failures = 0

    def start(self) -> None:
        """Begin to listen."""
        self._poller.register(self._awake, self._zmq.POLLIN)
        self._thread.start()

    def stop(self) -> None:
        """Close all sockets and end."""
        self._stopping = True
        self._order(lambda: None)
        if self._thread.is_alive():
            self._thread.join(STOP_S_MAX)

    def add(self, worker: Worker) -> None:
        """Listen to this worker from now on."""
        self._order(lambda: self._open(worker))

    def remove(self, worker: Worker) -> None:
        """Stop listening, and forget what it holds."""
        self._order(lambda: self._close(worker))

    def run_in_thread(self, call: Callable[[], None]) -> None:
        """Have the intake's thread do something, such as changing a worker."""
        self._order(call)

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.put(order)
        try:
            os.write(self._wake, b"!")
        except (BlockingIOError, OSError):  # it is awake, or gone
            return

    # The thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        next_tick_ms = clock_ms() + TICK_MS
        while not self._stopping:
            ready = self._poller.poll(max(0, math.ceil(next_tick_ms - clock_ms())))
            now_ms = clock_ms()
            for source, _ in ready:
                if source == self._awake:
                    self._obey()
                elif source in self._handlers:
                    self._shielded(partial(self._handlers[source], now_ms))
            if now_ms >= next_tick_ms:
                next_tick_ms = now_ms + TICK_MS
                for wire in list(self._wires.values()):
                    self._shielded(partial(wire.tick, now_ms))
        for worker in list(self._wires):
            self._close(worker)
        self._context.destroy(linger=0)
        os.close(self._awake)
        os.close(self._wake)

    def _shielded(self, call: Callable[[], None]) -> None:
        """One worker's fault must not end the others' stream."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - the edge of one worker's stream
            self.failures += 1
            _log.exception("intake failed", error=error)

    def _obey(self) -> None:
        try:
            os.read(self._awake, 4096)
        except BlockingIOError:
            return
        while True:
            try:
                order = self._orders.get_nowait()
            except queue.Empty:
                return
            self._shielded(order)

    def _open(self, worker: Worker) -> None:
        if worker not in self._wires and not worker.closed:
            self._wires[worker] = _Wire(worker, self)

    def _close(self, worker: Worker) -> None:
        wire = self._wires.pop(worker, None)
        if wire is not None:
            wire.close()
        worker.close()

    # For wires ----------------------------------------------------------------------------------------------

    @property
    def zmq(self) -> Any:
        """The package."""
        return self._zmq

    def socket(self, kind: int) -> Any:
        """A new socket with our limits."""
        made = self._context.socket(kind)
        made.setsockopt(self._zmq.LINGER, 0)
        made.setsockopt(self._zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        made.setsockopt(self._zmq.RCVHWM, UNREAD_COUNT_MAX)
        made.setsockopt(self._zmq.RECONNECT_IVL, RECONNECT_MS_MIN)
        made.setsockopt(self._zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        made.setsockopt(self._zmq.TCP_KEEPALIVE, 1)
        made.setsockopt(self._zmq.TCP_KEEPALIVE_IDLE, 10)
        made.setsockopt(self._zmq.IPV6, 1)
        return made

    def watch(self, socket: Any, handle: Callable[[float], None]) -> None:
        """Call when there is something to read."""
        self._handlers[socket] = handle
        self._poller.register(socket, self._zmq.POLLIN)

    def forget(self, socket: Any) -> None:
        """Close a socket that was watched."""
        self._handlers.pop(socket, None)
        self._poller.unregister(socket)
        socket.close(0)


class _Wire:
    """The sockets of one worker."""

    def __init__(self, worker: Worker, intake: Intake) -> None:
        zmq = intake.zmq
        self._worker = worker
        self._intake = intake
        self._replay: Any = None
        self._subscription = intake.socket(zmq.SUB)
        self._subscription.setsockopt(zmq.SUBSCRIBE, worker.registration.topic.encode())
        self._monitor = self._subscription.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        intake.watch(self._monitor, self._connection_changed)
        intake.watch(self._subscription, self._read)
        self._subscription.connect(worker.registration.endpoint)

    def close(self) -> None:
        self._end_replay()
        self._subscription.disable_monitor()
        self._intake.forget(self._monitor)
        self._intake.forget(self._subscription)

    def tick(self, now_ms: float) -> None:
        self._ask(self._worker.tick(now_ms))

    def _connection_changed(self, now_ms: float) -> None:
        from zmq.utils.monitor import recv_monitor_message

        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            if event == self._intake.zmq.EVENT_DISCONNECTED:
                self._end_replay()
                self._worker.disconnected(now_ms)
            elif event == self._intake.zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._read(now_ms, count=2 * UNREAD_COUNT_MAX)  # what is left of the connection before
                self._end_replay()
                self._ask(self._worker.connected(now_ms))

    def _read(self, now_ms: float, *, count: int = MESSAGES_PER_TURN) -> None:
        for _ in range(count):
            frames = self._frames(self._subscription)
            if frames is None:
                return
            if len(frames) == 3 and len(frames[1]) == 8:
                self._ask(self._worker.live(int.from_bytes(frames[1], "big"), frames[2], now_ms))
            else:
                self._worker.counters.malformed += 1

    def _ask(self, asked: AskReplay | None) -> None:
        if asked is None:
            return
        self._end_replay()
        self._replay = self._intake.socket(self._intake.zmq.DEALER)
        self._replay.setsockopt(self._intake.zmq.SNDTIMEO, 0)
        self._replay.connect(self._worker.registration.replay_endpoint)
        self._replay.send_multipart([b"", asked.start.to_bytes(8, "big")])
        self._intake.watch(self._replay, self._read_replay)

    def _read_replay(self, now_ms: float) -> None:
        for _ in range(MESSAGES_PER_TURN):
            source = self._replay
            frames = None if source is None else self._frames(source)
            if frames is None:
                return
            # [b"", topic, number, payload]; older releases send no topic.
            number, payload = (frames[-2], frames[-1]) if len(frames) in (3, 4) else (b"", b"")
            if len(number) != 8:
                self._worker.counters.malformed += 1
            elif number == _END:
                self._end_replay()
                self._ask(self._worker.replay_ended(now_ms))
            else:
                self._ask(self._worker.replayed(int.from_bytes(number, "big"), payload, now_ms))

    def _end_replay(self) -> None:
        if self._replay is not None:
            self._intake.forget(self._replay)
            self._replay = None

    def _frames(self, source: Any) -> list[bytes] | None:
        try:
            frames: list[bytes] = source.recv_multipart(self._intake.zmq.NOBLOCK)
        except self._intake.zmq.Again:
            return None
        return frames
