"""`TransferEngine`: memory of this process, and the way to that of others."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from moonpool import _native, config
from moonpool.config import TransferSettings
from moonpool.errors import AccessDenied, ClosedError, ConfigError, PeerUnavailable, ProtocolError, UsageError
from moonpool.transfer import topology
from moonpool.transfer.completions import Completions
from moonpool.transfer.memory import span_of
from moonpool.transfer.peer import TransferPeer
from moonpool.transfer.regions import Region, RemoteRegion, require_location
from moonpool.transfer.results import Message
from moonpool.types import Reason

if TYPE_CHECKING:
    from types import TracebackType

_SEALS = 0x0001 | 0x0002 | 0x0004  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW: peers that map it can rely on its size
_F_ADD_SEALS = 1033
_SERVER_LIMITS = (
    "region_count",
    "message_count",
    "transfer_count",
    "rail_count",
    "rail_thread_count",
    "silence_ms",
    "handshake_ms",
)
_PEER_LIMITS = ("connect_timeout_ms", "slice_bytes", "inflight_bytes", "stall_ms")


class TransferEngine:
    """Register memory, listen, connect, move bytes.

    The engine that is read from or written to needs no Python while it happens. Any thread; a forked child cannot
    use its parent's engine. Close it, or use it in a `with` block.
    """

    def __init__(self, *, name: str = "", secret: bytes | None = None, **settings: Any) -> None:
        """name: what peers see with our messages. secret: what both sides must know; None takes the cluster's (the
        settings `secret_file` and `runtime_folder`). settings: those of `moonpool.config.TransferSettings`.
        """
        loaded = config.load()
        self.settings = _with_settings(loaded.transfer, settings)
        self.name = name or f"engine:{os.getpid()}"
        self._explicit_secret = secret is not None or bool(loaded.secret_file)
        self._secret = _key(secret, loaded)
        values = msgspec.structs.asdict(self.settings)
        self._peer_limits = {limit: values[limit] for limit in _PEER_LIMITS}
        self._native = _native.TransferEngine(
            name=self.name, secret=self._secret, limits={limit: values[limit] for limit in _SERVER_LIMITS}
        )
        self.completions = Completions(self._native)
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._regions: dict[bytes, Region] = {}
        self._leaving: dict[bytes, Region] = {}  # unregistered while a peer was inside: kept until it has left
        self._peers: list[weakref.ref[TransferPeer]] = []
        self.addresses: tuple[str, ...] = ()
        # Also at the interpreter's end, and before the regions' memory goes.
        self._ending = weakref.finalize(self, _end, self._native, self._peers, self._process_id)

    def register(self, memory: Any, *, writable: bool = False, location: str = "cpu:0") -> Region:
        """Let peers that have its descriptor read this memory, and write it where writable.

        memory: a buffer or tensor of the host, or (address, length), which must stay valid until `unregister`.
        location: where it lies. UsageError for memory that is empty, not contiguous, or overlaps a region.
        """
        self.require_open()
        if isinstance(memory, tuple):
            address, length, owner = _address_pair(memory)
        else:
            address, length, owner = span_of(memory, writable=writable)
        return self._add(address, length, owner, writable=writable, location=location)

    def allocate(self, byte_count: int, *, writable: bool = True) -> Region:
        """New zeroed memory, registered. It lies in a memory file, so that peers on this host can map it."""
        self.require_open()
        if byte_count <= 0:
            raise UsageError(f"byte_count={byte_count!r} must be positive")
        memory = _memory_file(byte_count)
        address, length = _native.address_of(memory, True)
        return self._add(address, length, memory, writable=writable, location="cpu:0")

    def unregister(self, region: Region, *, timeout_ms: int | None = None) -> bool:
        """From now on nobody reaches it. True: nobody is inside any more, and its memory is the caller's again.

        False: somebody was inside until timeout_ms; the engine keeps the memory alive until that peer has left or is
        gone. Do not reuse it before then.
        """
        self.require_open()
        token = region.remote.token
        with self._lock:
            if self._regions.pop(token, None) is None:
                raise UsageError("the region is not registered here (any more)")
            self._leaving[token] = region
        free = self._native.remove_region(token, self.settings.timeout_ms if timeout_ms is None else timeout_ms)
        self._forget_free()
        return free

    def listen(self, *addresses: str) -> tuple[str, ...]:
        """Let peers connect, once; where it listens. None given: a free port of the loopback interface.

        An address is ``host:port``, port 0 takes any free one. Beyond loopback a secret of its own is needed.
        """
        self.require_open()
        wanted = addresses or ("127.0.0.1:0",)
        for text in wanted:
            found = config.split_host_port(text)
            if found is None:
                raise UsageError(f"{text!r} is no host:port, such as 127.0.0.1:0 or [::1]:7900")
            if not config.is_loopback(found.host) and not self._explicit_secret:
                raise ConfigError(
                    f"{text} can be reached from outside this host: give secret=, or set secret_file",
                    kind="insecure_listen",
                )
        if self.addresses:
            raise UsageError(f"the engine listens already, at {', '.join(self.addresses)}")
        try:
            self.addresses = tuple(self._native.listen(list(wanted)))
        except OSError as error:
            raise ConfigError(f"{error.strerror or error}: choose another address", kind="start_failed") from error
        return self.addresses

    def connect(
        self,
        *addresses: str,
        secret: bytes | None = None,
        local: Sequence[str] = (),
        location: str = "cpu:0",
        timeout_ms: int | None = None,
    ) -> TransferPeer:
        """Connect to another engine.

        addresses: ``host:port`` of one engine; several are several rails, as is one that is given twice. local: the
        address of ours that each rail leaves from. location: of the memory that is mostly moved; rails of devices near
        it are preferred. secret: the peer's; None: our own. PeerUnavailable when nobody
        answers in time, AccessDenied when the secrets differ.
        """
        self.require_open()
        if not addresses:
            raise UsageError("connect() needs the host:port of a peer")
        if local and len(local) != len(addresses):
            raise UsageError(f"{len(addresses)} addresses but {len(local)} local ones; give one each, or none")
        routes = self._routes(addresses, local, location)
        key = self._secret if secret is None else config.secret_key(secret)
        with self.usage():
            native = self._native.peer(routes, secret=key, name=self.name, limits=self._peer_limits)
        number, message = native.connect(self.settings.connect_timeout_ms if timeout_ms is None else timeout_ms)
        if Reason(number) is not Reason.NONE:
            native.close()
            raise _connect_error(Reason(number), message, ", ".join(addresses))
        peer = TransferPeer(native, self, addresses[0])
        with self._lock:
            self._peers[:] = [known for known in self._peers if known() is not None]
            self._peers.append(weakref.ref(peer))
        return peer

    def _routes(self, addresses: Sequence[str], local: Sequence[str], location: str) -> list[tuple[str, str, int, int]]:
        """With what this machine's topology says of each, where there is a choice."""
        if len(addresses) == 1:
            return [(addresses[0], local[0] if local else "", 0, topology.NEAR_PERMILLE)]
        file = self.settings.topology_file
        found = topology.discover(overrides=Path(file) if file else None)
        routes = []
        for address, given in zip(addresses, local or [""] * len(addresses), strict=True):
            leaves_from = given or topology.local_address_towards(address)
            nominal = found.bytes_per_second(leaves_from)
            routes.append((address, given, nominal, found.permille(leaves_from, location)))
        return routes

    def receive(self, *, timeout_ms: int | None = None) -> Message | None:
        """The next message of any peer; None when none comes in time."""
        self.require_open()
        taken = self._native.take_message(self.settings.timeout_ms if timeout_ms is None else timeout_ms)
        return None if taken is None else Message(*taken)

    async def next_message(self) -> Message:
        """The next message of any peer. ClosedError when the engine is closed meanwhile."""
        while True:
            self.require_open()
            taken = self._native.take_message(0)
            if taken is not None:
                return Message(*taken)
            await self.completions.wait(self._native.watch_messages)

    def status(self) -> dict[str, Any]:
        """Where it listens, its regions, and what was read, written and refused."""
        self.require_open()
        self._forget_free()
        return {
            "name": self.name,
            "addresses": list(self.addresses),
            "region_count": len(self._regions),
            "leaving_region_count": len(self._leaving),
            "counters": self._native.counters(),
        }

    def close(self) -> None:
        """Close every peer and stop listening. Afterwards nobody touches a region. Twice does nothing."""
        if os.getpid() == self._process_id:
            self._ending()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return not self._ending.alive

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def require_open(self) -> None:
        """ClosedError after close, UsageError in a forked child."""
        if os.getpid() != self._process_id:
            raise UsageError("this engine belongs to the parent of this process: make another one after a fork")
        if not self._ending.alive:
            raise self.closed_error("the engine")

    @staticmethod
    def closed_error(what: str) -> ClosedError:
        """For a call that comes too late."""
        return ClosedError(f"{what} is closed")

    @contextlib.contextmanager
    def usage(self) -> Iterator[None]:
        """What the native engine says of a wrong call, as ours."""
        try:
            yield
        except IndexError as error:
            raise UsageError(str(error), kind="bad_address") from error
        except (ValueError, OverflowError) as error:
            raise UsageError(str(error)) from error

    def _add(self, address: int, length: int, owner: object, *, writable: bool, location: str) -> Region:
        require_location(location)
        if not length:
            raise UsageError("the memory is empty; register what has bytes", kind="bad_address")
        with self.usage():
            token = self._native.add_region(address, length, writable)
        region = Region(address, RemoteRegion(token, length, writable, location), owner)
        with self._lock:
            self._regions[token] = region
        return region

    def _forget_free(self) -> None:
        with self._lock:
            for token in [token for token in self._leaving if self._native.is_region_free(token)]:
                del self._leaving[token]


def _end(native: _native.TransferEngine, peers: list[weakref.ref[TransferPeer]], process_id: int) -> None:
    if os.getpid() != process_id:  # the threads are the parent's
        return
    for reference in peers:
        peer = reference()
        if peer is not None:
            peer.close()
    native.close()


def _key(secret: object, loaded: config.Config) -> bytes:
    if secret is None:
        return config.secret_key(config.load_or_create_secret(loaded.runtime_folder, loaded.secret_file))
    if not isinstance(secret, bytes) or not secret:
        raise UsageError("secret is bytes, at least one")
    return config.secret_key(secret)


def _with_settings(transfer: TransferSettings, settings: dict[str, Any]) -> TransferSettings:
    known = TransferSettings.__struct_fields__
    for name in settings:
        if name not in known:
            raise UsageError(f"unknown option {name!r} of TransferEngine(); there are: {', '.join(known)}")
    try:
        return msgspec.convert({**msgspec.structs.asdict(transfer), **settings}, TransferSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"TransferEngine(): {error}", kind="bad_value") from error


def _address_pair(memory: tuple[Any, ...]) -> tuple[int, int, None]:
    if len(memory) != 2 or not all(isinstance(number, int) for number in memory):
        raise UsageError(f"memory is a buffer, a tensor or an (address, length) pair of int, not {memory!r}")
    address, length = memory
    if address <= 0 or length <= 0 or address + length > 1 << 64:
        raise UsageError(f"[{address:#x}, +{length}) is no memory", kind="bad_address")
    return address, length, None


def _memory_file(byte_count: int) -> mmap.mmap:
    descriptor = os.memfd_create("moonpool-region", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, byte_count)
        fcntl.fcntl(descriptor, _F_ADD_SEALS, _SEALS)
        memory = mmap.mmap(descriptor, byte_count)
        memory.madvise(mmap.MADV_DONTFORK)
        return memory
    finally:
        os.close(descriptor)


def _connect_error(reason: Reason, message: str, address: str) -> AccessDenied | ProtocolError | PeerUnavailable:
    said = message or reason.label
    if reason is Reason.ACCESS_DENIED:
        return AccessDenied(f"the engine at {address} refused us: {said}; check the secret")
    if reason is Reason.PROTOCOL:
        return ProtocolError(f"no common language with the engine at {address}: {said}")
    kind = "timed_out" if reason is Reason.TIMED_OUT else "unavailable"
    return PeerUnavailable(f"no engine answers at {address} ({said})", kind=kind)
