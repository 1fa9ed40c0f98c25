"""What `moonpool why` says, computed from status documents. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moonpool.cli.settings import duration_text
from moonpool.connectors.request_reasons import REQUEST_REASONS
from moonpool.identity.description import RequestOutcome, decode_description
from moonpool.types import ReadResult, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# A node younger than this has probably taken over from one that died: worth saying with every miss.
_YOUNG_MS = 10 * 60 * 1000


def key_lines(name: str, found: ReadResult, remembered: ReadResult, *, node: Mapping[str, Any] | None) -> list[str]:
    """Why a key is not there, or that it is."""
    if found:
        return [f"{name}: is there, {found.length} bytes"]
    if node is None:
        return [f"{name}: {Reason.UNAVAILABLE.meaning}", f"  {Reason.UNAVAILABLE.advice}"]
    reason = remembered.reason if found.reason in (Reason.NONE, Reason.NEVER_STORED) else found.reason
    lines = [f"{name}: {reason.meaning}"]
    if reason == Reason.NEVER_STORED:
        lines.append("  " + node_age(node))
    if reason.advice:
        lines.append(f"  {reason.advice}")
    return lines


def node_age(node: Mapping[str, Any]) -> str:
    """Since when this node remembers."""
    age_ms = int(node.get("uptime_ms", 0))
    began = f"this node began {duration_text(age_ms)} ago"
    if age_ms < _YOUNG_MS:
        return f"{began}; what an earlier incarnation held is gone"
    return f"{began} and has heard nothing of it that it still remembers"


def outcomes(documents: Iterable[Mapping[str, Any] | None]) -> list[tuple[str, RequestOutcome]]:
    """(engine, outcome) of every request that the engines described, oldest first; each request of an engine once,
    with the most that any of its processes knows.
    """
    merged: dict[tuple[str, str], RequestOutcome] = {}
    for document in documents:
        for connection in (document or {}).get("connections", []):
            described = decode_description(connection.get("description"))
            if described is None:
                continue
            for outcome in described.outcomes:
                place = (described.engine_id, outcome.request_id)
                merged[place] = _fuller(merged.get(place), outcome)
    found = [(engine, outcome) for (engine, _), outcome in merged.items()]
    return sorted(found, key=lambda item: item[1].finished_at)


def outcome_lines(engine: str, outcome: RequestOutcome) -> list[str]:
    """What became of one request, and why not more of it came from the pool."""
    computed = max(0, outcome.prompt_tokens - outcome.local_tokens - outcome.applied_tokens)
    lines = [
        (
            f"{outcome.request_id} on {engine}: {outcome.prompt_tokens} prompt tokens, {outcome.local_tokens} from the "
            f"engine's own cache, {outcome.applied_tokens} from the pool, {computed} computed"
        )
    ]
    if outcome.promised_tokens > outcome.applied_tokens:
        lines.append(f"  {outcome.promised_tokens} were found in the pool, {outcome.applied_tokens} could be read")
    meaning, advice = reason_text(outcome.reason)
    if meaning or outcome.detail:
        lines.append("  because " + (": ".join(part for part in (meaning, outcome.detail) if part)))
    if advice:
        lines.append(f"  {advice}")
    if not outcome.reason and computed and outcome.applied_tokens == outcome.promised_tokens:
        lines.append("  nothing went wrong: the rest of the prompt was new to the pool")
    return lines


def reason_text(label: str) -> tuple[str, str]:
    """(meaning, advice) of a reason's label; a connector's own word stands for itself."""
    if not label:
        return "", ""
    known = REQUEST_REASONS.get(label)
    if known is not None:
        return known
    for reason in Reason:
        if reason.label == label:
            return reason.meaning, reason.advice
    return label.replace("_", " "), ""


def _fuller(first: RequestOutcome | None, second: RequestOutcome) -> RequestOutcome:
    """Scheduler and workers each know a part: the one with more applied, then more promised tokens, wins."""
    if first is None:
        return second
    order = [
        (item.applied_tokens, item.promised_tokens, bool(item.reason), item.finished_at) for item in (first, second)
    ]
    return first if order[0] >= order[1] else second
