"""why: the reason for each miss, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from moonpool.cli.settings import Settings, json_option, print_rows, settings_options
from moonpool.cli.watch import Watch
from moonpool.cli.why_view import key_lines, node_age, outcome_lines, outcomes, reason_text
from moonpool.pool.keys import key_from_text, key_text
from moonpool.types import ReadResult, Reason, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

_TIMEOUT_MS = 1_000


@click.command(short_help="Explain why keys or requests missed.")
@click.argument("keys", nargs=-1)
@click.option("--request", "request_id", help="Explain this request; the beginning or a part of its id is enough.")
@click.option("--last", "last_count", type=click.IntRange(min=1), help="Explain the last N requests.")
@json_option
@settings_options
def why(
    *, settings: Settings, keys: Sequence[str], request_id: str | None, last_count: int | None, as_json: bool
) -> int:
    """Explain why each of KEYS is not in the pool, or why requests used less of it than they could.

    Without arguments it explains the last 5 requests. Exit code 1 when a key is not there or no such request is known.
    """
    if keys:
        if request_id or last_count:
            raise click.UsageError("give either KEYS, or --request or --last")
        return _why_keys(settings, [key_from_text(key) for key in keys], as_json=as_json)
    return _why_requests(settings, request_id, last_count or 5, as_json=as_json)


def _why_keys(settings: Settings, keys: Sequence[bytes], *, as_json: bool) -> int:
    from moonpool.pool.connect import open_pool

    with Watch(settings, timeout_ms=_TIMEOUT_MS) as watch:
        node = watch.node()
    found: Sequence[ReadResult] = [ReadResult(Status.MISS, Reason.UNAVAILABLE)] * len(keys)
    remembered = found
    if node is not None:
        with open_pool(settings.config, lazy=True) as pool:
            found = pool.exists(keys, timeout_ms=_TIMEOUT_MS)
            remembered = pool.why(keys, timeout_ms=_TIMEOUT_MS)
    for key, here, past in zip(keys, found, remembered, strict=True):
        if as_json:
            reason = Reason.NONE if here else past.reason if here.reason <= Reason.NEVER_STORED else here.reason
            row = {
                "key": key_text(key),
                "present": bool(here),
                "reason": reason.label,
                "meaning": reason.meaning,
                "advice": reason.advice,
                "node_uptime_ms": None if node is None else node.get("uptime_ms"),
            }
            print_rows([row], {}, as_json=True)
        else:
            click.echo("\n".join(key_lines(key_text(key), here, past, node=node)))
    return 0 if all(found) else 1


def _why_requests(settings: Settings, request_id: str | None, last_count: int, *, as_json: bool) -> int:
    with Watch(settings, timeout_ms=_TIMEOUT_MS) as watch:
        node, directory = watch.node(), watch.directory()
    known = outcomes([directory, node])
    chosen = [item for item in known if request_id is None or request_id in item[1].request_id]
    chosen = chosen if request_id is not None else chosen[-last_count:]
    if as_json:
        print_rows((_row(engine, outcome) for engine, outcome in chosen), {}, as_json=True)
    else:
        for line in _situation(settings, node):
            click.echo(line)
        for engine, outcome in chosen:
            click.echo("\n".join(outcome_lines(engine, outcome)))
        if not chosen:
            what = "no request" if request_id is None else f"no request with {request_id!r}"
            click.echo(
                f"{what} is known among the {len(known)} that engines described last; engines tell what they did "
                "when they run with our connector (`moonpool vllm-args`), `moonpool doctor` shows which do",
                err=True,
            )
    return 0 if chosen else 1


def _situation(settings: Settings, node: dict[str, Any] | None) -> list[str]:
    """What stands behind everything else, where it does."""
    if node is None:
        path = settings.config.node.socket_path
        return [f"no node answers at {path}: every look-up is a miss until it is back (`moonpool up`)"]
    if int(node.get("uptime_ms", 0)) < 60_000:
        return [node_age(node)]
    return []


def _row(engine: str, outcome: Any) -> dict[str, Any]:
    meaning, advice = reason_text(outcome.reason)
    return {"engine": engine, **msgspec.structs.asdict(outcome), "meaning": meaning, "advice": advice}
