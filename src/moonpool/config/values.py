"""Text to value: sizes, durations, booleans, lists. Pure."""

from __future__ import annotations

import re
import typing
from typing import Any

BYTES_PER_UNIT = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
MS_PER_UNIT = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}

_QUANTITY = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


def unit_of(name: str) -> str:
    """The unit that a setting's name states: bytes, ms, or "" for neither."""
    words = name.split("_")
    return "bytes" if "bytes" in words else "ms" if "ms" in words else ""


def parse_size(text: str) -> int:
    """Bytes of "4GiB", "512 MB", "4096". ValueError says what is accepted."""
    return _parse_quantity(text, BYTES_PER_UNIT, 'a size in bytes, or with a unit as in "512MiB" or "4GiB"')


def parse_duration(text: str) -> int:
    """Milliseconds of "250", "250ms", "2s", "1.5min". ValueError says what is accepted."""
    return _parse_quantity(text, MS_PER_UNIT, 'milliseconds, or a duration with a unit as in "250ms" or "2s"')


def parse_value(text: str, kind: Any, unit: str) -> object:
    """`text` as the plain type `kind`; ValueError says what is accepted. Bounds are checked elsewhere."""
    kind = plain_type(kind)
    if kind is bool:
        return _parse_bool(text)
    if kind is int and unit == "bytes":
        return parse_size(text)
    if kind is int and unit == "ms":
        return parse_duration(text)
    if kind is int:
        return _parse_quantity(text, {"": 1}, "a whole number")
    if typing.get_origin(kind) is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def plain_type(kind: Any) -> Any:
    """The type without its annotations."""
    while typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    return kind


def format_value(value: object, unit: str) -> str:
    """As a person reads it: 4 GiB, 2 s, true."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and unit == "bytes":
        return _format_quantity(value, (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)), "B")
    if isinstance(value, int) and unit == "ms":
        return f"{value} ms"
    if isinstance(value, tuple):
        return ", ".join(str(part) for part in value)
    return str(value)


def _format_quantity(value: int, scales: tuple[tuple[str, int], ...], rest: str) -> str:
    for name, factor in scales:
        if value >= factor:
            return f"{value // factor} {name}" if value % factor == 0 else f"{value / factor:.2f} {name}"
    return f"{value} {rest}"


def _parse_quantity(text: str, units: dict[str, int], accepted: str) -> int:
    found = _QUANTITY.fullmatch(text)
    factor = units.get(found.group(2).lower()) if found else None
    if found is None or factor is None:
        raise ValueError(f"expected {accepted}")
    number = found.group(1).replace("_", "")
    value = int(number) * factor if "." not in number else float(number) * factor
    if value != int(value):
        raise ValueError(f"expected {accepted}")
    return int(value)


def _parse_bool(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in _TRUE | _FALSE:
        raise ValueError("expected true or false")
    return lowered in _TRUE
