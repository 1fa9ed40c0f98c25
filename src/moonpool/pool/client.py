"""`Pool`: what a program does with the pool. One object, usable from several threads; no call waits unbounded."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

import msgspec

from moonpool import _native
from moonpool.errors import ClosedError, PeerUnavailable, UsageError
from moonpool.pool.keys import Key, key_bytes, key_list
from moonpool.pool.lookup import FULL_ATTENTION
from moonpool.pool.options import BlockOptions, PutOptions, WaitOptions, checked
from moonpool.pool.reading import Hints, Reader
from moonpool.pool.regions import Regions, require_disjoint
from moonpool.pool.results import Holder, ObjectInfo, Results, put_results, read_results
from moonpool.pool.values import Batch, Pieces, Value, batch_of, batch_of_pieces, numbers
from moonpool.pool.views import Views
from moonpool.transfer.memory import span_of
from moonpool.types import Reason

if TYPE_CHECKING:
    from types import TracebackType

    from moonpool.config.settings import ClientSettings
    from moonpool.types import GroupRule, Match, PutResult, ReadResult

_LIST_PAGE_COUNT = 1024
_GROUP_COUNT_MAX = 64
_MATCH_BLOCK_COUNT_MAX = 16_384  # what one message carries
_DESCRIPTION_BYTES_MAX = 65_536
_ReadVerb = Callable[..., "_native.ReadOutcome"]


class Pool:
    """The pool as one client sees it; made by `moonpool.connect`.

    Keys are str or bytes of 1 to 1024 bytes. A value is anything with the buffer protocol, DLPack or ``data_ptr``
    (host memory, contiguous), or a list of such pieces and of (address, length) pairs. Every verb gives one result
    per key, true when it worked, with a reason when not; a fault of the pool is a miss or a refusal, never an
    exception. Wrong calls raise `UsageError`, and calls after close() `ClosedError`, before anything is touched.

    Every verb takes ``timeout_ms`` for the whole call; the defaults are in the settings (``client``).
    """

    def __init__(
        self,
        node: _native.NodeClient,
        reader: Reader,
        settings: ClientSettings,
        *,
        address: str,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.address = address
        self._node = node
        self._reader = reader
        self._lookup = reader.lookup
        self._serving = (0, address)  # the node's incarnation, and the address at which others reach it
        self._settings = settings
        self._regions = Regions()
        self._on_close = on_close
        self._closed = False

    # Writing ------------------------------------------------------------------------------------------------

    @overload
    def put(self, values: Mapping[Key, Value], /, **options: Unpack[PutOptions]) -> dict[Key, PutResult]: ...
    @overload
    def put(
        self, keys: Sequence[Key], values: Sequence[Value] | Pieces, /, **options: Unpack[PutOptions]
    ) -> Results[PutResult]: ...
    def put(
        self,
        keys: Mapping[Key, Value] | Sequence[Key],
        values: Sequence[Value] | Pieces | None = None,
        /,
        **options: Unpack[PutOptions],
    ) -> dict[Key, PutResult] | Results[PutResult]:
        """Store a batch: ``put({"a": tensor})`` gives a result per key, ``put(keys, values)`` a list in that order.

        A value is immutable once stored; the first put of a key wins and later ones learn `present` or `conflict`.
        """
        if isinstance(keys, Mapping):
            if values is not None:
                raise UsageError("put takes either one mapping, or keys and values")
            return dict(zip(keys, self._put(list(keys), list(keys.values()), options), strict=True))
        if values is None:
            raise UsageError("put takes a mapping of key to value, or keys and values")
        return self._put(keys, values, options)

    def put_blocks(
        self, layout: _native.Layout, block_numbers: Any, keys: Sequence[Key], **options: Unpack[BlockOptions]
    ) -> Results[PutResult]:
        """Store engine blocks: block ``block_numbers[i]`` of the layout under ``keys[i]``."""
        node = self._opened()
        arguments = checked(options, BlockOptions, self._settings.timeout_ms)
        numbers_checked, names = _blocks(layout, block_numbers, keys)
        try:
            return self._put_results(node.put_blocks(layout, numbers_checked, names, **arguments))
        except ValueError as error:  # tags that do not fit the keys
            raise UsageError(f"put_blocks: {error}") from error

    def _put(self, keys: Sequence[Key], values: Sequence[Value] | Pieces, options: PutOptions) -> Results[PutResult]:
        node = self._opened()
        arguments = checked(options, PutOptions, self._settings.timeout_ms)
        names = key_list(keys)
        batch = self._batch(values, len(names), writable=False)
        addresses, lengths, piece_counts = batch.arrays()
        try:
            return self._put_results(node.put(names, addresses, lengths, piece_counts, **arguments))
        except ValueError as error:  # tags that do not fit the keys
            raise UsageError(f"put: {error}") from error

    def _put_results(self, outcome: _native.PutOutcome) -> Results[PutResult]:
        if self._serving[0] != outcome.incarnation:
            info = self._node.info
            if info["incarnation"] == outcome.incarnation:
                self._serving = (outcome.incarnation, str(info["address"]) or self.address)
        return put_results(outcome, self._serving[1])

    # Reading ------------------------------------------------------------------------------------------------

    def get(
        self, keys: Sequence[Key], *, verify: bool = True, hints: Hints = None, **options: Unpack[WaitOptions]
    ) -> Views:
        """Borrow values without copying: ``with pool.get(keys) as views: …``. verify=False leaves the check of
        the checksum to `Views.verify`. What this node does not have comes as a copy from one that has it.

        hints: one a key or None, as `PutResult.hint` of the writer: that holder is asked before a directory.
        """
        self._opened()
        names = key_list(keys)
        arguments = checked(options, WaitOptions, self._settings.timeout_ms)
        views, results = self._reader.get_views(names, verify=verify, hints=hints, **arguments)
        return Views(names, views, results)

    def get_into(
        self,
        keys: Sequence[Key],
        targets: Sequence[Value] | Pieces,
        *,
        hints: Hints = None,
        **options: Unpack[WaitOptions],
    ) -> Results[ReadResult]:
        """Copy each value into its target, verified in the same pass. A target must have the value's length, else
        that key is miss(wrong_length) and untouched. After any other miss do not use the target's bytes.

        What this node does not have is read from another one; hints as in `get`.
        """
        self._opened()
        arguments = checked(options, WaitOptions, self._settings.timeout_ms)
        names = key_list(keys)
        batch = self._batch(targets, len(names), writable=True)
        require_disjoint(batch.addresses, batch.lengths)
        return self._reader.get_into(names, batch, hints=hints, **arguments)

    def get_blocks(
        self,
        layout: _native.Layout,
        block_numbers: Any,
        keys: Sequence[Key],
        *,
        hints: Hints = None,
        **options: Unpack[WaitOptions],
    ) -> Results[ReadResult]:
        """Copy ``keys[i]`` into block ``block_numbers[i]`` of the layout, verified in the same pass; as `get_into`."""
        self._opened()
        arguments = checked(options, WaitOptions, self._settings.timeout_ms)
        numbers_checked, names = _blocks(layout, block_numbers, keys)
        if len(set(numbers_checked)) != len(numbers_checked):
            raise UsageError("a block number is given twice; each target block takes one value", kind="bad_address")
        return self._reader.get_blocks(layout, numbers_checked, names, hints=hints, **arguments)

    def get_bytes(self, keys: Sequence[Key], **options: Unpack[WaitOptions]) -> list[bytes | None]:
        """A verified copy of each value as bytes, None for a miss."""
        found: dict[int, bytes] = {}
        names = key_list(keys)
        waiting = list(range(len(names)))
        while waiting:  # a batch larger than one connection may hold at a time comes in several turns
            with self.get([names[place] for place in waiting], **options) as views:
                copies = {place: bytes(view) for place, view in zip(waiting, views, strict=True) if view is not None}
                limited = [
                    place
                    for place, result in zip(waiting, views.results, strict=True)
                    if result.reason == Reason.CONNECTION_LIMIT
                ]
            found |= copies
            waiting = limited if copies else []
        return [found.get(place) for place in range(len(names))]

    # Looking ------------------------------------------------------------------------------------------------

    def exists(self, keys: Sequence[Key], **options: Unpack[WaitOptions]) -> Results[ReadResult]:
        """Whether each key can be read now, with length and checksum. Holds nothing, protects nothing."""
        return self._ask(self._node.exists, keys, options)

    def match(
        self,
        namespace_id: int,
        block_hashes: Any,
        groups: Sequence[GroupRule] = FULL_ATTENTION,
        **options: Unpack[WaitOptions],
    ) -> Match:
        """How much of a prefix is there: asks a directory, then the node, in at most ``timeout_ms``.

        block_hashes: 64-bit numbers, root first. groups: one rule for each kv_group that must have its part.
        """
        self._opened()
        arguments = checked(options, WaitOptions, self._settings.match_budget_ms)
        hashes = numbers(block_hashes, "block_hashes")
        if len(hashes) > _MATCH_BLOCK_COUNT_MAX:
            raise UsageError(f"match takes at most {_MATCH_BLOCK_COUNT_MAX} block hashes, not {len(hashes)}")
        _check_namespace(namespace_id, least=1)
        if not hasattr(groups, "__len__") or not 1 <= len(groups) <= _GROUP_COUNT_MAX:
            raise UsageError(f"match takes a list of 1 to {_GROUP_COUNT_MAX} GroupRule")
        try:
            return self._lookup.match(namespace_id, hashes, groups, block_count=len(hashes), **arguments)
        except ValueError as error:  # a group that is none
            raise UsageError(f"match: {error}") from error

    def locate(self, keys: Sequence[Key], **options: Unpack[WaitOptions]) -> list[list[Holder]]:
        """Who is believed to hold each key; an empty list where nobody is."""
        self._opened()
        arguments = checked(options, WaitOptions, self._settings.control_timeout_ms)
        return self._lookup.locate(key_list(keys), **arguments)

    def why(self, keys: Sequence[Key], **options: Unpack[WaitOptions]) -> Results[ReadResult]:
        """Why each key is not there: a bounded memory of what was evicted, expired, removed, damaged or cleared."""
        return self._ask(self._node.why, keys, options)

    # Lifetimes ----------------------------------------------------------------------------------------------

    def remove(self, keys: Sequence[Key], **options: Unpack[WaitOptions]) -> Results[ReadResult]:
        """Make each key a miss at once; its memory is free when nobody reads it any more."""
        return self._ask(self._node.remove, keys, options)

    def pin(self, keys: Sequence[Key], **options: Unpack[WaitOptions]) -> Results[ReadResult]:
        """Forbid eviction of each key, also after this client is gone, until `unpin`. Counted to a quota."""
        return self._ask(self._node.pin, keys, options)

    def unpin(self, keys: Sequence[Key], **options: Unpack[WaitOptions]) -> Results[ReadResult]:
        """Allow eviction again."""
        return self._ask(self._node.unpin, keys, options)

    def clear(self, namespace_id: int, **options: Unpack[WaitOptions]) -> int:
        """Drop every object of a namespace (0: of all) on this node; how many there were."""
        node = self._opened()
        _check_namespace(namespace_id, least=0)
        count = node.clear(namespace_id, **checked(options, WaitOptions, self._settings.timeout_ms))
        if count < 0:
            raise self._unavailable()
        return count

    # This client --------------------------------------------------------------------------------------------

    def register(self, memory: Value) -> tuple[int, int]:
        """Vouch for a buffer, a tensor or an (address, length): raw addresses inside it are taken from now on.

        Returns (address, bytes). A buffer is kept alive until `unregister` or close(); memory named by address
        must outlive its registration.
        """
        self._opened()
        if isinstance(memory, tuple):
            if len(memory) != 2 or not all(isinstance(number, int) for number in memory):
                raise UsageError("register takes a buffer or an (address, length) pair of int")
            address, length, owner = memory[0], memory[1], None
        else:
            address, length, owner = span_of(memory, writable=False)
        self._regions.add(address, length, owner)
        return address, length

    def unregister(self, address: int) -> None:
        """Take back `register` for the range that begins at address."""
        self._opened()
        self._regions.discard(address)

    def describe(self, document: Mapping[str, Any] | str, **options: Unpack[WaitOptions]) -> bool:
        """Tell node and directories who this client is (JSON), for /status, doctor, top and why.

        False: the node is away, and is told after the reconnect.
        """
        self._opened()
        arguments = checked(options, WaitOptions, self._settings.control_timeout_ms)
        return self._lookup.describe(_description(document), **arguments)

    def stat(self, **options: Unpack[WaitOptions]) -> dict[str, Any]:
        """The node's status document; PeerUnavailable when it does not answer."""
        node = self._opened()
        text = node.stat(**checked(options, WaitOptions, self._settings.control_timeout_ms))
        if text is None:
            raise self._unavailable()
        document: dict[str, Any] = json.loads(text)
        return document

    @property
    def connected(self) -> bool:
        """Whether there is a connection to the node now. Calls make it again by themselves."""
        return not self._closed and self._node.connected

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closed

    @property
    def info(self) -> dict[str, Any]:
        """The connection: incarnation, node, site, shared_memory, transport, reconnect_count and more; `holders` are
        the other nodes that were read from.
        """
        return {**self._opened().info, "holders": self._reader.status()}

    def close(self) -> None:
        """Let go of everything. Twice is fine; memoryviews that are still referenced stay valid."""
        if self._closed:
            return
        self._closed = True
        self._lookup.close()
        self._reader.close()
        self._node.close()
        self._regions = Regions()
        if self._on_close is not None:
            self._on_close()

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "connected" if self._node.connected else "not connected"
        return f"<moonpool.Pool {self.address} {state}>"

    def _opened(self) -> _native.NodeClient:
        if self._closed:
            raise ClosedError("this pool is closed; call moonpool.connect() again")
        return self._node

    def _unavailable(self) -> PeerUnavailable:
        return PeerUnavailable(
            f"the node at {self.address} gave no answer; start it with `moonpool up`, or see whether tenant "
            f"{self._settings.tenant!r} may ask for this"
        )

    def _ask(self, verb: _ReadVerb, keys: Sequence[Key], options: WaitOptions) -> Results[ReadResult]:
        self._opened()
        arguments = checked(options, WaitOptions, self._settings.control_timeout_ms)
        return read_results(verb(key_list(keys), **arguments))

    def _batch(self, values: Sequence[Value] | Pieces, key_count: int, *, writable: bool) -> Batch:
        if isinstance(values, Pieces):
            return batch_of_pieces(values, key_count, self._regions)
        if isinstance(values, str | bytes | bytearray | memoryview):
            raise UsageError("values is a list with one value a key; for one value write [value]")
        if not hasattr(values, "__len__"):
            raise UsageError(f"values is a list with one value a key, not {type(values).__name__}")
        if len(values) != key_count:
            raise UsageError(f"{key_count} keys but {len(values)} values; give one value a key")
        return batch_of(values, self._regions, writable=writable)

    # Last in the class: below this line the word `list` means the verb.

    def list(self, prefix: str | bytes = b"", **options: Unpack[WaitOptions]) -> Iterator[ObjectInfo]:
        """The objects of this node whose key begins with prefix, page by page, in no order."""
        node = self._opened()
        arguments = checked(options, WaitOptions, self._settings.control_timeout_ms)
        wanted = key_bytes(prefix) if prefix else b""
        return self._pages(node, wanted, arguments)

    def _pages(self, node: _native.NodeClient, prefix: bytes, arguments: dict[str, Any]) -> Iterator[ObjectInfo]:
        cursor = 0
        while True:
            cursor, items = node.list(prefix, cursor, _LIST_PAGE_COUNT, **arguments)
            for item in items:
                yield msgspec.convert(item, ObjectInfo)
            if not cursor:
                return


def _check_namespace(namespace_id: object, *, least: int) -> None:
    if not isinstance(namespace_id, int) or not least <= namespace_id < 2**64:
        raise UsageError(f"namespace_id={namespace_id!r} must be an int of 64 bits, at least {least}")


def _description(document: Mapping[str, Any] | str) -> str:
    """The text to send; UsageError for what is no JSON, or too long."""
    try:
        text = document if isinstance(document, str) else json.dumps(document, separators=(",", ":"))
        size_bytes = len(text.encode())
    except (TypeError, ValueError) as error:
        raise UsageError(f"a description is JSON: {error}") from error
    if size_bytes > _DESCRIPTION_BYTES_MAX:
        raise UsageError(f"the description has {size_bytes} bytes, more than {_DESCRIPTION_BYTES_MAX}")
    return text


def _blocks(layout: _native.Layout, block_numbers: Any, keys: Sequence[Key]) -> tuple[array[int], list[bytes]]:
    """Checked block numbers and keys: as many of each, every number inside the layout."""
    if not isinstance(layout, _native.Layout):
        raise UsageError(f"layout must be a moonpool.Layout, not {type(layout).__name__}")
    names = key_list(keys)
    wanted = numbers(block_numbers, "block_numbers")
    if len(wanted) != len(names):
        raise UsageError(f"{len(names)} keys but {len(wanted)} block numbers; give one block a key")
    if wanted and max(wanted) >= layout.block_count:
        raise UsageError(f"block {max(wanted)} is past the layout's {layout.block_count} blocks", kind="bad_address")
    return wanted, names
