"""`AsyncPool`: the verbs of `Pool` to be awaited, over the same native client."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

from moonpool.errors import ClosedError
from moonpool.pool.client import Pool
from moonpool.pool.lookup import FULL_ATTENTION

if TYPE_CHECKING:
    from types import TracebackType

    from moonpool import _native
    from moonpool.pool.keys import Key
    from moonpool.pool.options import BlockOptions, PutOptions, WaitOptions
    from moonpool.pool.reading import Hints
    from moonpool.pool.results import Holder, ObjectInfo, Results
    from moonpool.pool.values import Pieces, Value
    from moonpool.pool.views import Views
    from moonpool.types import GroupRule, Match, PutResult, ReadResult

Given = ParamSpec("Given")
Result = TypeVar("Result")


class AsyncPool:
    """The pool as an asyncio program sees it; made by `moonpool.aconnect`.

    Every verb of `Pool` with the same arguments and results. A few threads make the native calls, which hold no
    interpreter lock while they wait and copy. An awaiting task may be cancelled: what it began goes on to its end
    within its own timeout and keeps the buffers until then, and what it borrowed is let go.
    """

    def __init__(self, pool: Pool, *, thread_count: int) -> None:
        self._pool = pool
        self._threads = ThreadPoolExecutor(thread_count, thread_name_prefix="moonpool-await")

    # Writing ------------------------------------------------------------------------------------------------

    @overload
    async def put(self, values: Mapping[Key, Value], /, **options: Unpack[PutOptions]) -> dict[Key, PutResult]: ...
    @overload
    async def put(
        self, keys: Sequence[Key], values: Sequence[Value] | Pieces, /, **options: Unpack[PutOptions]
    ) -> Results[PutResult]: ...
    async def put(self, keys: Any, values: Any = None, /, **options: Unpack[PutOptions]) -> Any:
        """As `Pool.put`."""
        put: Callable[..., Any] = self._pool.put
        return await self._run(put, keys, values, **options)

    async def put_blocks(
        self, layout: _native.Layout, block_numbers: Any, keys: Sequence[Key], **options: Unpack[BlockOptions]
    ) -> Results[PutResult]:
        """As `Pool.put_blocks`."""
        return await self._run(self._pool.put_blocks, layout, block_numbers, keys, **options)

    # Reading ------------------------------------------------------------------------------------------------

    async def get(
        self, keys: Sequence[Key], *, verify: bool = True, hints: Hints = None, **options: Unpack[WaitOptions]
    ) -> Views:
        """As `Pool.get`: ``with await pool.get(keys) as views: …``."""
        return await self._run(self._pool.get, keys, verify=verify, hints=hints, **options)

    async def get_into(
        self,
        keys: Sequence[Key],
        targets: Sequence[Value] | Pieces,
        *,
        hints: Hints = None,
        **options: Unpack[WaitOptions],
    ) -> Results[ReadResult]:
        """As `Pool.get_into`."""
        return await self._run(self._pool.get_into, keys, targets, hints=hints, **options)

    async def get_blocks(
        self,
        layout: _native.Layout,
        block_numbers: Any,
        keys: Sequence[Key],
        *,
        hints: Hints = None,
        **options: Unpack[WaitOptions],
    ) -> Results[ReadResult]:
        """As `Pool.get_blocks`."""
        return await self._run(self._pool.get_blocks, layout, block_numbers, keys, hints=hints, **options)

    async def get_bytes(self, keys: Sequence[Key], **options: Unpack[WaitOptions]) -> list[bytes | None]:
        """As `Pool.get_bytes`."""
        return await self._run(self._pool.get_bytes, keys, **options)

    # Looking ------------------------------------------------------------------------------------------------

    async def exists(self, keys: Sequence[Key], **options: Unpack[WaitOptions]) -> Results[ReadResult]:
        """As `Pool.exists`."""
        return await self._run(self._pool.exists, keys, **options)

    async def match(
        self,
        namespace_id: int,
        block_hashes: Any,
        groups: Sequence[GroupRule] = FULL_ATTENTION,
        **options: Unpack[WaitOptions],
    ) -> Match:
        """As `Pool.match`."""
        return await self._run(self._pool.match, namespace_id, block_hashes, groups, **options)

    async def locate(self, keys: Sequence[Key], **options: Unpack[WaitOptions]) -> list[list[Holder]]:
        """As `Pool.locate`."""
        return await self._run(self._pool.locate, keys, **options)

    async def why(self, keys: Sequence[Key], **options: Unpack[WaitOptions]) -> Results[ReadResult]:
        """As `Pool.why`."""
        return await self._run(self._pool.why, keys, **options)

    # Lifetimes ----------------------------------------------------------------------------------------------

    async def remove(self, keys: Sequence[Key], **options: Unpack[WaitOptions]) -> Results[ReadResult]:
        """As `Pool.remove`."""
        return await self._run(self._pool.remove, keys, **options)

    async def pin(self, keys: Sequence[Key], **options: Unpack[WaitOptions]) -> Results[ReadResult]:
        """As `Pool.pin`."""
        return await self._run(self._pool.pin, keys, **options)

    async def unpin(self, keys: Sequence[Key], **options: Unpack[WaitOptions]) -> Results[ReadResult]:
        """As `Pool.unpin`."""
        return await self._run(self._pool.unpin, keys, **options)

    async def clear(self, namespace_id: int, **options: Unpack[WaitOptions]) -> int:
        """As `Pool.clear`."""
        return await self._run(self._pool.clear, namespace_id, **options)

    # This client --------------------------------------------------------------------------------------------

    def register(self, memory: Value) -> tuple[int, int]:
        """As `Pool.register`; waits for nothing."""
        return self._pool.register(memory)

    def unregister(self, address: int) -> None:
        """As `Pool.unregister`; waits for nothing."""
        self._pool.unregister(address)

    async def describe(self, document: Mapping[str, Any] | str, **options: Unpack[WaitOptions]) -> bool:
        """As `Pool.describe`."""
        return await self._run(self._pool.describe, document, **options)

    async def stat(self, **options: Unpack[WaitOptions]) -> dict[str, Any]:
        """As `Pool.stat`."""
        return await self._run(self._pool.stat, **options)

    @property
    def address(self) -> str:
        """Of the node."""
        return self._pool.address

    @property
    def connected(self) -> bool:
        """As `Pool.connected`."""
        return self._pool.connected

    @property
    def closed(self) -> bool:
        """As `Pool.closed`."""
        return self._pool.closed

    @property
    def info(self) -> dict[str, Any]:
        """As `Pool.info`."""
        return self._pool.info

    async def close(self) -> None:
        """Wait for what is under way, and let go of everything. Twice is fine."""
        if self._pool.closed:
            return
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._pool).replace("moonpool.Pool", "moonpool.AsyncPool")

    def _close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        self._pool.close()

    async def _run(self, verb: Callable[Given, Result], /, *arguments: Given.args, **options: Given.kwargs) -> Result:
        if self._pool.closed:
            raise ClosedError("this pool is closed; call moonpool.aconnect() again")
        call = functools.partial(verb, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    # Last in the class: below this line the word `list` means the verb.

    async def list(self, prefix: str | bytes = b"", **options: Unpack[WaitOptions]) -> AsyncIterator[ObjectInfo]:
        """As `Pool.list`."""
        pages = self._pool.list(prefix, **options)
        while (item := await self._run(next, pages, None)) is not None:
            yield item
