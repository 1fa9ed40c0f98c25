"""Logs: a constant event text plus key=value fields, one line each, on stderr. Nothing per block.

    log = logger("node")
    log.info("listening", path=path, segment_bytes=size)
    2026-11-30T19:50:00.123Z INFO moonpool.node: listening path=/run/node.sock segment_bytes=1073741824

Inside an engine nothing is configured unless `configure` is called: the lines go where the engine sends
those of the standard library.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Mapping

ROOT = "moonpool"
_PLAIN = re.compile(r"[\x21\x23-\x3c\x3e-\x7e]+")  # no space, quote or equals sign
_VALUE_CHARACTERS_MAX = 2_000


class Logger:
    """Writes events of one room."""

    def __init__(self, standard: logging.Logger) -> None:
        self._standard = standard

    def debug(self, event: str, **fields: object) -> None:
        """For whoever looks for a fault in our own code."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Changes of state that an operator wants to find later."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Something works less well than it should."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Something that was asked for cannot be done."""
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """As error, with the traceback of the exception being handled: only at the edge of a process or task."""
        self._write(logging.ERROR, event, fields, with_traceback=True)

    def _write(self, level: int, event: str, fields: Mapping[str, object], *, with_traceback: bool = False) -> None:
        if self._standard.isEnabledFor(level):
            # event and fields ride along unformatted for handlers that want them apart.
            extra = {"event": event, "fields": fields}
            self._standard.log(level, "%s", event + format_fields(fields), exc_info=with_traceback, extra=extra)


def logger(room: str) -> Logger:
    """The logger of a room, "moonpool.<room>"."""
    return Logger(logging.getLogger(f"{ROOT}.{room}"))


def configure(level: str = "info") -> None:
    """Lines of at least `level` go to stderr, and only there. For our own processes; may be called again."""
    root = logging.getLogger(ROOT)
    root.setLevel(level.upper())
    root.propagate = False
    for handler in [handler for handler in root.handlers if isinstance(handler, _StderrHandler)]:
        root.removeHandler(handler)
    root.addHandler(_StderrHandler())


def format_fields(fields: Mapping[str, object]) -> str:
    """`` key=value`` for each, with a space before; quoted as JSON where a reader could be misled."""
    return "".join(f" {name}={_format_value(value)}" for name, value in fields.items())


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic only in the type stubs
    def __init__(self) -> None:
        super().__init__(sys.stderr)
        formatter = logging.Formatter(
            "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
        )
        formatter.converter = time.gmtime
        self.setFormatter(formatter)


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        text = value.hex()
    elif isinstance(value, float):
        text = f"{value:.6g}"
    else:
        text = str(value)
    if len(text) > _VALUE_CHARACTERS_MAX:
        text = text[:_VALUE_CHARACTERS_MAX] + "…"
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=True)
