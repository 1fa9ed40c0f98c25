"""Options of the verbs: named, typed, and refused when unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from moonpool import _native
from moonpool.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


class WaitOptions(TypedDict, total=False):
    """Of every verb."""

    timeout_ms: int  # the whole call; what is not done by then is a miss or refused, with a reason


class BlockOptions(WaitOptions, total=False):
    """Of `Pool.put_blocks`."""

    tags: _native.Tags  # namespace and hashes, one a key: what `match` works on
    priority: int  # 0…255: higher is evicted later among equals
    keep_at_least_ms: int  # not evicted before
    keep_at_most_ms: int  # expires after; 0: never


class PutOptions(BlockOptions, total=False):
    """Of `Pool.put`."""

    bundle_id: int  # objects that are useful only together: visible together, evicted together
    bundle_count: int


_BOUNDS: dict[str, tuple[int, int]] = {
    "timeout_ms": (1, 2**31 - 1),
    "priority": (0, 255),
    "keep_at_least_ms": (0, 2**32 - 1),
    "keep_at_most_ms": (0, 2**32 - 1),
    "bundle_id": (0, 2**64 - 1),
    "bundle_count": (1, 2**16 - 1),
}


def checked(options: Mapping[str, object], kind: type, timeout_ms: int) -> dict[str, Any]:
    """The options with a timeout filled in; UsageError for a name that `kind` lacks or a number out of bounds."""
    allowed: frozenset[str] = getattr(kind, "__optional_keys__", frozenset())
    for name, value in options.items():
        if name not in allowed:
            raise UsageError(f"unknown option {name!r}; this verb takes {', '.join(sorted(allowed))}")
        bounds = _BOUNDS.get(name)
        if bounds is not None and (not isinstance(value, int) or not bounds[0] <= value <= bounds[1]):
            raise UsageError(f"{name}={value!r} must be an int between {bounds[0]} and {bounds[1]}")
    tags = options.get("tags")
    if tags is not None and not isinstance(tags, _native.Tags):
        raise UsageError(f"tags must be moonpool.Tags, not {type(tags).__name__}")
    return {"timeout_ms": timeout_ms, **options}
