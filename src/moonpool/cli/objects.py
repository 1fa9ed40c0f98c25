"""put, get, ls, rm, pin, unpin: objects of this host's node from a shell."""

from __future__ import annotations

import io
import itertools
import mmap
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from moonpool import _native
from moonpool.cli.settings import Settings, bytes_text, duration_text, json_option, print_rows, settings_options
from moonpool.pool.keys import key_from_text, key_text
from moonpool.types import ReadResult, Reason, Status

if TYPE_CHECKING:
    from collections.abc import Sequence


def _key(_context: click.Context, _parameter: click.Parameter, text: str) -> bytes:
    return key_from_text(text)


def _keys(_context: click.Context, _parameter: click.Parameter, texts: Sequence[str]) -> list[bytes]:
    return [key_from_text(text) for text in texts]


@click.command(short_help="Store a file, or standard input, under a key.")
@click.argument("key", callback=_key)
@click.argument("file", default="-", type=click.Path(allow_dash=True, dir_okay=False))
@click.option("--text", help="Store this text instead of a file.")
@click.option("--pin", "pinned", is_flag=True, help="Forbid its eviction.")
@click.option("--keep-at-least-ms", type=int, default=0, help="Not evicted before.")
@click.option("--keep-at-most-ms", type=int, default=0, help="Expires after; 0: never.")
@json_option
@settings_options
def put(*, settings: Settings, key: bytes, file: str, text: str | None, as_json: bool, **options: Any) -> int:
    """Store FILE (standard input by default) under KEY: text, or hexadecimal digits after 0x.

    The first put of a key wins: a second one with the same bytes is `present`, with others `conflict`.
    """
    pinned = options.pop("pinned")
    source = io.BytesIO(text.encode(errors="surrogateescape")) if text is not None else _source(file)
    with settings.connect() as pool:
        # One byte more than any value may have: an endless input is refused as too large before it fills our memory.
        value = _content(source, max(pool.info["arena_bytes"]) + 1)
        result = pool.put([key], [value], **options)[0]
        kept = pool.pin([key])[0] if pinned and result else None
    # `present` promises only the length; here the bytes are at hand, so say it when they differ.
    differs = result.status == Status.PRESENT and _native.crc32c(value) != result.checksum
    row = {
        "key": key_text(key),
        "status": "conflict" if differs else result.status.name.lower(),
        "reason": result.reason.label,
        "length": result.length,
        "checksum": result.checksum,
    }
    if as_json:
        print_rows([row], {}, as_json=True)
    elif result and not differs:
        click.echo(f"{row['status']} {row['key']} ({result.length} bytes, crc32c {result.checksum:#010x})")
    if differs:
        click.echo(f"conflict: {row['key']} has another value; `moonpool rm` it first, or choose another key", err=True)
    elif not result:
        _explain(f"{row['status']}: {row['key']}", result.reason)
    if kept is not None and not kept:
        _explain(f"not pinned: {row['key']}", kept.reason)
    return 0 if result and not differs and (kept is None or kept) else 1


@click.command(short_help="Write the value of a key to standard output or a file.")
@click.argument("key", callback=_key)
@click.option("-o", "--output", type=click.Path(allow_dash=True, dir_okay=False), default="-", help="File to write.")
@settings_options
def get(*, settings: Settings, key: bytes, output: str) -> int:
    """Write the value of KEY, verified, to standard output or a file. Exit code 1 and the reason for a miss."""
    with settings.connect() as pool, pool.get([key]) as views:
        view = views[0]
        if view is None:
            _explain(f"miss: {key_text(key)}", _known_reason(pool.why([key])[0], views.results[0]))
            return 1
        if output == "-":
            _write(sys.stdout.buffer, view)
        else:
            with Path(output).open("wb") as target:
                _write(target, view)
        del view
    return 0


@click.command(short_help="List objects.")
@click.argument("prefix", default="")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
@json_option
@settings_options
def ls(*, settings: Settings, prefix: str, limit: int | None, as_json: bool) -> None:
    """List the objects whose key begins with PREFIX (text, or hexadecimal digits after 0x)."""
    with settings.connect() as pool:
        found = itertools.islice(pool.list(key_from_text(prefix) if prefix else b""), limit)
        rows = (
            {
                "key": key_text(item.key),
                "length": item.length if as_json else bytes_text(item.length),
                **({"age_ms": item.age_ms} if as_json else {"age": duration_text(item.age_ms)}),
                "pinned": item.pinned,
                "checksum": f"{item.checksum:#010x}",
                "namespace": f"{item.namespace_id:#018x}" if item.namespace_id else "",
                "kv_group": item.kv_group if item.namespace_id else "",
            }
            for item in found
        )
        columns = {name: name for name in ("key", "length", "age", "pinned", "namespace", "kv_group")}
        print_rows(rows, columns, as_json=as_json, empty="no objects")


@click.command(short_help="Remove objects.")
@click.argument("keys", callback=_keys, nargs=-1, required=True)
@json_option
@settings_options
def rm(*, settings: Settings, keys: Sequence[bytes], as_json: bool) -> int:
    """Remove KEYS: each is a miss at once. Exit code 1 when one was not there."""
    with settings.connect() as pool:
        return _report("removed", keys, pool.remove(keys), as_json=as_json)


@click.command(short_help="Forbid the eviction of objects.")
@click.argument("keys", callback=_keys, nargs=-1, required=True)
@json_option
@settings_options
def pin(*, settings: Settings, keys: Sequence[bytes], as_json: bool) -> int:
    """Forbid the eviction of KEYS until unpinned."""
    with settings.connect() as pool:
        return _report("pinned", keys, pool.pin(keys), as_json=as_json)


@click.command(short_help="Allow the eviction of objects again.")
@click.argument("keys", callback=_keys, nargs=-1, required=True)
@json_option
@settings_options
def unpin(*, settings: Settings, keys: Sequence[bytes], as_json: bool) -> int:
    """Allow the eviction of KEYS again."""
    with settings.connect() as pool:
        return _report("unpinned", keys, pool.unpin(keys), as_json=as_json)


def _report(done: str, keys: Sequence[bytes], results: Sequence[ReadResult], *, as_json: bool) -> int:
    """One line a key; exit code 1 when one did not work."""
    for key, result in zip(keys, results, strict=True):
        name = key_text(key)
        if as_json:
            row = {"key": name, "status": result.status.name.lower(), "reason": result.reason.label}
            print_rows([row], {}, as_json=True)
        elif result:
            click.echo(f"{done} {name}")
        else:
            _explain(f"not {done}: {name}", result.reason)
    return 0 if all(results) else 1


def _explain(what: str, reason: Reason) -> None:
    """One line on standard error: what, why, and what to do."""
    advice = f"; {reason.advice}" if reason.advice else ""
    click.echo(f"{what}: {reason.meaning}{advice}", err=True)


def _known_reason(remembered: ReadResult, read: ReadResult) -> Reason:
    return remembered.reason if read.reason in (Reason.NONE, Reason.NEVER_STORED) else read.reason


def _source(file: str) -> BinaryIO:
    """The file or device, or standard input, open."""
    if file == "-":
        return sys.stdin.buffer
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from error


def _content(source: BinaryIO, limit_bytes: int) -> bytes | mmap.mmap:
    """The bytes of a file, mapped so that a large one is copied only once; of anything else at most limit_bytes."""
    if source is sys.stdin.buffer or isinstance(source, io.BytesIO):
        return source.read(limit_bytes)
    with source:
        about = os.fstat(source.fileno())
        if stat.S_ISREG(about.st_mode) and about.st_size:
            return mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
        return source.read(limit_bytes)


def _write(target: BinaryIO, view: memoryview) -> None:
    target.write(view)
    target.flush()
