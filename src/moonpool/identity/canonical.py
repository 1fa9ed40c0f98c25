"""One spelling for a value, whatever process, dict order or notation it comes from. Pure."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from moonpool.errors import IdentityError

# Raised when the spelling changes: then every namespace is a new one.
CANONICAL_VERSION = 1


def canonical_bytes(value: object) -> bytes:
    """JSON with sorted keys in ASCII, after `normalise`: equal values give equal bytes, different ones differ."""
    text = json.dumps(normalise(value), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return f"moonpool identity {CANONICAL_VERSION}\n{text}".encode("ascii")


def canonical_digest(value: object) -> bytes:
    """SHA-256 of `canonical_bytes`."""
    return hashlib.sha256(canonical_bytes(value)).digest()


def normalise(value: object, path: str = "value") -> object:
    """What is equal by meaning is made equal: entries that are None or empty are left out, 10000.0 is 10000,
    a set is its sorted list. IdentityError for what has no one spelling (NaN, bytes, objects).
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _number(value, path)
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        entries = {_name(key, path): normalise(entry, f"{path}.{key}") for key, entry in value.items()}
        return {key: entry for key, entry in entries.items() if not is_empty(entry)}
    if isinstance(value, AbstractSet):
        members = [normalise(member, path) for member in value]
        return sorted(members, key=lambda member: json.dumps(member, sort_keys=True))
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [normalise(member, f"{path}[{index}]") for index, member in enumerate(value)]
    raise IdentityError(f"{path} is a {type(value).__name__}: give it as text, number, list or mapping")


def is_empty(value: object) -> bool:
    """None, an empty mapping and an empty list say the same: nothing. An empty text, 0 and False say something."""
    return value is None or (isinstance(value, Mapping | list | tuple) and not value)


def flatten(value: object, path: str = "") -> dict[str, str]:
    """Dotted field → JSON text of each leaf of a normalised value. Lists of plain values are leaves."""
    value = normalise(value)
    entries: list[tuple[str, object]]
    if isinstance(value, dict):
        # A dot inside a name must not look like a level.
        entries = [(json.dumps(key) if "." in key else key, value[key]) for key in sorted(value)]
    elif isinstance(value, list) and any(isinstance(member, dict) for member in value):
        entries = [(str(index), member) for index, member in enumerate(value)]
    else:
        return {path: json.dumps(value, sort_keys=True, ensure_ascii=True)}
    flat: dict[str, str] = {}
    for name, entry in entries:
        flat.update(flatten(entry, f"{path}.{name}" if path else name))
    return flat


def _number(value: float, path: str) -> int | float:
    if not math.isfinite(value):
        raise IdentityError(f"{path} is {value}: only finite numbers have one spelling")
    return int(value) if value.is_integer() else value


def _name(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise IdentityError(f"{path} has the key {key!r}: keys of an identity are text")
    return key
