"""LoRA adapters: in which namespace a request that uses one lives, or why it shares nothing.

An adapter is what its files contain. An engine reads them once and keeps what it read, so the files say what the
engine computes with only while they have stayed as they were: from before the engine's start, or from the first
request on where the operator vouches for the time before, until the blocks are saved. Files are read in a thread;
a step only asks the kernel whether they are still the same (`unchanged`, some microseconds on a local disk).
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from moonpool.connectors.plans import FileStamp
from moonpool.connectors.request_reasons import (
    ADAPTER_CHANGED,
    ADAPTER_ELSEWHERE,
    ADAPTER_IN_PLACE,
    ADAPTER_NEWER,
    ADAPTER_NOT_READ_YET,
    ADAPTER_UNREADABLE,
)
from moonpool.errors import MoonpoolError
from moonpool.identity import Adapter

logger = logging.getLogger("vllm.moonpool")
ADAPTER_COUNT_MAX = 1024
NUMBER_COUNT_MAX = 65_536
# Times of files are taken from a clock that ticks a few milliseconds behind.
CLOCK_SLACK_NS = 1_000_000_000
CHANGED_NS = -1  # place in a stamp's state: the kernel's own note (ctime), which nobody can set back
# What an engine reads besides `*.safetensors`. A file that is not there is part of the stamp too.
_NAMES = (
    "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt",
    "new_embeddings.safetensors", "new_embeddings.bin",
)  # fmt: skip


class AdapterUse(NamedTuple):
    """What a request says of its adapter. ``number`` is the engine's own of what it has loaded; ``variant`` is how
    it reads the files, where there is more than one way; ``in_place`` says that it may load over what it has.
    """

    name: str
    path: str
    number: int
    variant: str = ""
    in_place: bool = False


class AdapterPolicy(NamedTuple):
    """``started_ns``: wall clock before the engine could load anything. ``vouched``: adapters neither change on disk
    nor are loaded in place. ``may_change``: the engine lets its users load adapters while it runs.
    """

    started_ns: int
    vouched: bool = False
    may_change: bool = False
    several_hosts: bool = False


class Sharing(NamedTuple):
    """What a request may do with the pool: load (unless there is an obstacle), save, and in which namespace.

    ``pending``: ask again in the next step. ``stamps``: files that must not have changed when its blocks are saved.
    """

    namespace_id: int
    obstacle: str = ""
    detail: str = ""
    may_save: bool = True
    pending: bool = False
    stamps: tuple[FileStamp, ...] = ()


def refuse(obstacle: str, detail: str = "") -> Sharing:
    """Neither load nor save."""
    return Sharing(0, obstacle, detail, may_save=False)


class AdapterFiles(NamedTuple):
    """An adapter as it was read, its files as they were before and after, and when any of it changed last."""

    adapter: Adapter
    stamps: tuple[FileStamp, ...]
    changed_ns: int


class _Known(msgspec.Struct):
    """One adapter under one number. ``files`` stays for good: it is what the engine is taken to have loaded."""

    use: AdapterUse
    began_ms: float
    files: AdapterFiles | None = None
    namespace_id: int = 0
    refusal: Sharing | None = None
    reading: Future[None] | None = None


class AdapterBook:
    """All adapters of one engine."""

    def __init__(
        self,
        policy: AdapterPolicy,
        *,
        read: Callable[[AdapterUse], AdapterFiles],
        derive: Callable[[Adapter], int],
        clock_ms: Callable[[], float],
        pending_ms_max: float,
    ) -> None:
        self._policy = policy
        self._read = read
        self._derive = derive
        self._clock_ms = clock_ms
        self._pending_ms_max = pending_ms_max
        self._known: OrderedDict[AdapterUse, _Known] = OrderedDict()
        self._places: OrderedDict[int, tuple[str, str]] = OrderedDict()
        self._lock = threading.Lock()
        self._reader: ThreadPoolExecutor | None = None

    def sharing(self, use: AdapterUse) -> Sharing:
        """What a request with this adapter may do now. Never waits."""
        refusal = self._refusal(use)
        if refusal is not None:
            return refusal
        with self._lock:
            known = self._known.get(use)
            if known is None:
                known = self._known[use] = _Known(use, self._clock_ms())
                while len(self._known) > ADAPTER_COUNT_MAX:
                    self._known.popitem(last=False)
            self._known.move_to_end(use)
            if known.refusal is not None:
                return known.refusal
            if known.files is not None and not unchanged(known.files.stamps):
                known.refusal = refuse(ADAPTER_CHANGED, f"files of adapter {use.name!r} in {use.path} changed")
                return known.refusal
            if known.files is not None and known.namespace_id:
                return Sharing(known.namespace_id, stamps=known.files.stamps)
            if known.reading is None:
                known.began_ms = self._clock_ms()
                known.reading = self._submit(known)
            waited_ms = self._clock_ms() - known.began_ms
        late = waited_ms >= self._pending_ms_max
        return refuse(ADAPTER_NOT_READ_YET) if late else Sharing(0, may_save=False, pending=True)

    def _refusal(self, use: AdapterUse) -> Sharing | None:
        """What is known without looking at the files."""
        policy = self._policy
        place = (use.name, use.path)
        while len(self._places) > NUMBER_COUNT_MAX:
            self._places.popitem(last=False)
        if use.in_place or self._places.setdefault(use.number, place) != place:
            self._places[use.number] = ("", "")  # nobody knows any more what is loaded under this number
            return refuse(ADAPTER_IN_PLACE, f"adapter {use.name!r} was loaded over another one")
        if policy.several_hosts:
            return refuse(ADAPTER_ELSEWHERE)
        if policy.may_change and not policy.vouched:
            return refuse(ADAPTER_IN_PLACE, "VLLM_ALLOW_RUNTIME_LORA_UPDATING is set")
        return None

    def _submit(self, known: _Known) -> Future[None]:
        if self._reader is None:
            self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="moonpool-adapters")
        return self._reader.submit(self._find_out, known)

    def _find_out(self, known: _Known) -> None:
        """In the reader's thread: read the files if that was not done, and derive the namespace."""
        namespace_id, refusal, files = 0, None, known.files
        try:
            files = files or self._read(known.use)
            namespace_id = self._derive(files.adapter)
            refusal = self._too_new(known.use, files.changed_ns)
        except (MoonpoolError, OSError) as error:
            refusal = refuse(ADAPTER_UNREADABLE, str(error))
        except Exception as error:
            logger.exception("moonpool: an adapter could not be read")
            refusal = refuse(ADAPTER_UNREADABLE, f"{type(error).__name__}: {error}")
        if refusal is not None:
            logger.warning(
                "moonpool: requests with an adapter share nothing adapter=%s reason=%s detail=%s",
                known.use.name, refusal.obstacle, refusal.detail,
            )  # fmt: skip
        with self._lock:
            known.files, known.namespace_id, known.refusal, known.reading = files, namespace_id, refusal, None

    def _too_new(self, use: AdapterUse, changed_ns: int) -> Sharing | None:
        if self._policy.vouched or changed_ns < self._policy.started_ns - CLOCK_SLACK_NS:
            return None
        return refuse(ADAPTER_NEWER, f"files of adapter {use.name!r} in {use.path} are newer than this engine")

    def forget_namespaces(self) -> None:
        """The engine moved to another namespace, and its adapters with it. What was read stays."""
        with self._lock:
            for known in self._known.values():
                known.namespace_id = 0

    def described(self) -> dict[str, str]:
        """Of each adapter that was asked for: name → fingerprint, or why it is not shared."""
        with self._lock:
            return {
                known.use.name: known.refusal.obstacle
                if known.refusal
                else known.files.adapter.fingerprint
                if known.files
                else ADAPTER_NOT_READ_YET
                for known in self._known.values()
            }

    def stop(self) -> None:
        """Read nothing more."""
        if self._reader is not None:
            self._reader.shutdown(wait=False, cancel_futures=True)


def read_adapter(use: AdapterUse, folder: Path, *, fingerprint: Callable[[str, Path], Adapter]) -> AdapterFiles:
    """The adapter in this folder. IdentityError when it is not there, is broken, or changed while it was read."""
    stamps = take_stamps(Path(use.path), folder)
    adapter = fingerprint(use.name, folder)
    if not unchanged(stamps):
        raise OSError(f"adapter {use.name!r} in {folder} changed while it was read")
    if use.variant:
        adapter = Adapter(adapter.name, f"{adapter.fingerprint} {use.variant}")
    # A folder that was moved here changed too; its files did not.
    states = [_state(folder), *(stamp.state for stamp in stamps)]
    changed_ns = max(state[CHANGED_NS] for state in states if state)
    return AdapterFiles(adapter, stamps, changed_ns)


def take_stamps(path: Path, folder: Path) -> tuple[FileStamp, ...]:
    """What the kernel says of all files that an engine reads from ``folder``, to which ``path`` may be a link."""
    names = dict.fromkeys([*_NAMES, *sorted(found.name for found in folder.glob("*.safetensors"))])
    links = [str(path)] if path.is_symlink() else []
    return tuple(FileStamp(name, _state(Path(name))) for name in (*links, *(str(folder / name) for name in names)))


def unchanged(stamps: tuple[FileStamp, ...]) -> bool:
    """Whether the files are what they were: same file, same size, not written and not renamed since."""
    return all(_state(Path(stamp.path)) == stamp.state for stamp in stamps)


def _state(path: Path) -> tuple[int, ...]:
    """Of a file and of the link to it, where there is one; empty when it is not there."""
    try:
        link = path.lstat()
        found = path.stat()
    except OSError:
        return ()
    changed_ns = max(link.st_ctime_ns, found.st_ctime_ns)
    return (link.st_ino, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, changed_ns)
