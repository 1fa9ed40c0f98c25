"""Zero-copy reads: memory of the node, read-only, held while it is used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from moonpool.errors import ClosedError, UsageError
from moonpool.pool.keys import Key, key_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from moonpool import _native
    from moonpool.types import ReadResult


class Views:
    """What `Pool.get` borrowed, by position or by key: a read-only memoryview, or None for a miss.

    `results` says why a key missed. Leaving the ``with`` block lets go; a memoryview that is still referenced
    after it stays valid, and keeps its object held, until it is gone too.
    """

    def __init__(
        self, keys: Sequence[bytes], views: Sequence[_native.View | None], results: Sequence[ReadResult]
    ) -> None:
        self.results = results
        self._views: list[_native.View | None] | None = list(views)
        self._positions = {key: position for position, key in reversed(list(enumerate(keys)))}
        self._process_id = os.getpid()

    def __getitem__(self, which: int | Key) -> memoryview | None:
        """The value at a position of the list of keys, or of a key; None for a miss."""
        views = self._opened()
        if isinstance(which, int):
            view = views[which]
        else:
            position = self._positions.get(key_bytes(which))
            if position is None:
                raise UsageError(f"key {which!r} was not asked for in this get()")
            view = views[position]
        return None if view is None else memoryview(view)

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[memoryview | None]:
        return (None if view is None else memoryview(view) for view in self._opened())

    def verify(self) -> bool:
        """Read every byte again and compare it with its checksum; False when one differs."""
        return all(view.verify() for view in self._opened() if view is not None)

    def release(self) -> None:
        """Let go now. Twice is fine."""
        views, self._views = self._views, None
        if views is None or self._process_id != os.getpid():
            return
        for view in views:
            if view is not None:
                view.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.release()

    def _opened(self) -> list[_native.View | None]:
        if self._views is None:
            raise ClosedError("these views were released; call get() again")
        if self._process_id != os.getpid():
            raise UsageError("views do not survive a fork; call get() again in this process")
        return self._views
