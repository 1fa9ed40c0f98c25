"""One finding of the doctor, and how to read a status document that may lack anything."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec


class Severity(enum.IntEnum):
    """Sorts worst first."""

    PROBLEM = 0  # something does not work, or never can
    REMARK = 1  # good to know; nothing is broken


class Finding(msgspec.Struct, frozen=True):
    """What is wrong with whom, and what to do. `kind` is append-only: programs may compare it."""

    severity: Severity
    kind: str
    subject: str  # "node", "engine A", …
    what: str
    advice: str
    details: tuple[str, ...] = ()


def problem(kind: str, subject: str, *, what: str, advice: str, details: tuple[str, ...] = ()) -> Finding:
    """Something does not work, or never can."""
    return Finding(Severity.PROBLEM, kind, subject, what, advice, details)


def remark(kind: str, subject: str, *, what: str, advice: str, details: tuple[str, ...] = ()) -> Finding:
    """Good to know; nothing is broken."""
    return Finding(Severity.REMARK, kind, subject, what, advice, details)


def figure(document: Mapping[str, Any], place: str) -> float:
    """The number at a dotted place; 0 where there is none."""
    value = _at(document, place)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def text_at(document: Mapping[str, Any], place: str) -> str:
    """The text at a dotted place; "" where there is none."""
    value = _at(document, place)
    return value if isinstance(value, str) else ""


def _at(document: object, place: str) -> object:
    for key in place.split("."):
        if not isinstance(document, Mapping):
            return None
        document = document.get(key)
    return document
