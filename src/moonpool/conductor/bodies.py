"""Request bodies of the HTTP API: JSON in, our structs out, and each mistake named. Pure.

The shape is Mooncake's (its conductor's implementation, and its documentation where that has more); what we add to
it is optional. Unknown fields are refused: a misspelt one would be a silent default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from moonpool.conductor.hashes import TOKEN_MAX, VLLM_SEED_DEFAULT, ExtraKeys, Extras, HashRules, Strategy
from moonpool.conductor.registration import Origin, Registration
from moonpool.conductor.scoring import Load
from moonpool.errors import BadRequest, UsageError
from moonpool.identity import Media
from moonpool.types import GroupRule

HASH_MIN, HASH_MAX = -(2**63), 2**64 - 1
LORA_PATH_CHARACTERS_MAX = 4_096
CANDIDATE_COUNT_MAX = 4_096
_KINDS = {"vllm": "vLLM", "sglang": "SGLang", "mooncake": "Mooncake"}
_EXTRA_KEYS: dict[str, ExtraKeys] = {"tagged": "tagged", "tagged_names": "tagged_names", "untagged": "untagged"}
_STRATEGIES: dict[str, Strategy] = {
    "vllm_v1": "vllm",
    "vllm": "vllm",
    "sglang": "sglang",
    "sglang_bigram": "sglang_bigram",
}


def refusal(error: BadRequest) -> dict[str, Any]:
    """The document that answers a wrong request."""
    document: dict[str, Any] = {"error": str(error), "reason": error.reason}
    if isinstance(error.field, tuple):
        document["field"], document["index"] = error.field
    elif error.field:
        document["field"] = error.field
    return document


class _Field(NamedTuple):
    kind: type | tuple[type, ...]
    required: bool = False
    may_be_null: bool = True


_TEXT, _NUMBER, _LIST, _MAP = _Field(str), _Field(int), _Field(list), _Field(dict)
_NAME, _COUNT = _Field(str, True, False), _Field(int, True, False)
_PROFILE = {
    "strategy": _TEXT,
    "algorithm": _TEXT,
    "python_hash_seed": _Field((str, int)),
    "index_projection": _TEXT,
    "extra_keys": _TEXT,
    "namespaced": _Field(bool),
}
_REGISTER = {
    "endpoint": _Field(str, True, False),
    "type": _TEXT,
    "modelname": _NAME,
    "instance_id": _NAME,
    "block_size": _COUNT,
    "dp_rank": _NUMBER,
    "hash_profile": _MAP,
    "replay_endpoint": _TEXT,
    "lora_name": _TEXT,
    "tenant_id": _TEXT,
    "cache_group": _NUMBER,
    "additionalsalt": _TEXT,
    "topic": _TEXT,
    "url": _TEXT,
    "kv_groups": _LIST,
}
_PROMPT = {
    "model": _NAME,
    "block_size": _NUMBER,
    "token_ids": _LIST,
    "seq_hashes": _LIST,
    "lora_name": _TEXT,
    "lora_path": _TEXT,
    "tenant_id": _TEXT,
    "cache_salt": _TEXT,
    "instance_id": _TEXT,
    "media": _LIST,
}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question about one prompt."""

    model: str
    tenant: str = "default"
    instance_id: str = ""
    block_size_tokens: int = 0  # 0: any
    tokens: list[int] = []
    hashes: list[int] = []
    token_count: int = 0
    extras: Extras = Extras()


class Wanted(NamedTuple):
    """One candidate of /score; no rank is all ranks."""

    instance_id: str
    data_rank: int | None
    load: Load


def parse(body: bytes) -> dict[str, Any]:
    """A JSON object."""
    try:
        document = msgspec.json.decode(body or b"{}")
    except msgspec.DecodeError as error:
        raise BadRequest(f"not JSON: {error}", "invalid_json") from error
    if not isinstance(document, dict):
        raise BadRequest("a JSON object is expected", "invalid_json")
    return document


def registration(document: Mapping[str, Any], *, origin: Origin = "http") -> Registration:
    """The body of /register, or an entry of a workers file."""
    _check(document, _REGISTER)
    if document.get("cache_group") not in (None, 0):
        raise BadRequest("cache_group is null or 0: groups are learnt from events", "out_of_range", field="cache_group")
    if document.get("additionalsalt"):
        raise BadRequest("additionalsalt is not hashed by any engine: use cache_salt in queries", "out_of_range")
    kind = _KINDS.get((document.get("type") or "vLLM").lower())
    if kind is None:
        raise BadRequest("type is vLLM, SGLang or Mooncake", "out_of_range", field="type")
    try:
        return Registration(
            instance_id=document["instance_id"],
            tenant=document.get("tenant_id") or "default",
            data_rank=document.get("dp_rank") or 0,
            model=document["modelname"],
            lora_name=document.get("lora_name") or "",
            kind=kind,
            endpoint=document["endpoint"],
            replay_endpoint=document.get("replay_endpoint") or "",
            topic=document.get("topic") or "",
            rules=_rules(document, kind),
            groups=_groups(document.get("kv_groups") or []),
            url=(document.get("url") or "").rstrip("/"),
            origin=origin,
        )
    except BadRequest:
        raise
    except UsageError as error:
        raise BadRequest(str(error), "invalid_registration") from error


def _rules(document: Mapping[str, Any], kind: str) -> HashRules:
    profile = document.get("hash_profile") or {}
    _check(profile, _PROFILE, place="hash_profile.")
    default = "sglang" if kind == "SGLang" else "vllm_v1"
    strategy = _STRATEGIES.get(profile.get("strategy") or default)
    if strategy is None:
        raise BadRequest(f"strategy is one of {', '.join(_STRATEGIES)}", "out_of_range", field="hash_profile.strategy")
    if profile.get("index_projection") not in (None, "low64_be", "high64_be"):
        raise BadRequest("index_projection is low64_be", "out_of_range", field="hash_profile.index_projection")
    extra_keys = _EXTRA_KEYS.get(profile.get("extra_keys") or "tagged")
    if extra_keys is None:
        names = ", ".join(_EXTRA_KEYS)
        raise BadRequest(f"extra_keys is one of {names}", "out_of_range", field="hash_profile.extra_keys")
    seed = profile.get("python_hash_seed")
    return HashRules(
        strategy=strategy,
        algorithm=profile.get("algorithm") or "sha256",
        seed=VLLM_SEED_DEFAULT if seed is None else str(seed),
        block_size_tokens=document["block_size"],
        extra_keys=extra_keys,
        namespaced=bool(profile.get("namespaced")),
    )


def _groups(listed: Sequence[Any]) -> tuple[GroupRule, ...]:
    try:
        rows = msgspec.convert(listed, list[dict[str, int]])
        return tuple(GroupRule(row["kv_group"], 1, row.get("window_block_count", 0)) for row in rows)
    except (msgspec.ValidationError, KeyError) as error:
        raise BadRequest(
            "kv_groups is a list of {kv_group, window_block_count}", "invalid_type", field="kv_groups"
        ) from error


def unregistration(document: Mapping[str, Any]) -> tuple[str, str | None, int | None]:
    """The body of /unregister: instance, tenant and rank."""
    _check(document, {"instance_id": _NAME, "tenant_id": _TEXT, "dp_rank": _NUMBER})
    return document["instance_id"], document.get("tenant_id"), document.get("dp_rank")


def question(document: Mapping[str, Any], *, by_hash: bool = False) -> Asked:
    """The body of /query or /query_by_hash."""
    _check(document, _PROMPT)
    needed = "seq_hashes" if by_hash else "token_ids"
    if document.get(needed) is None:
        raise BadRequest(f"{needed} is missing", "missing", field=needed)
    return _asked(document)


def scoring(document: Mapping[str, Any]) -> tuple[Asked, list[Wanted]]:
    """The body of /score; no candidates are all workers of the model."""
    fields = {**_PROMPT, "block_hashes": _LIST, "token_count": _NUMBER, "candidates": _LIST}
    _check(document, fields)
    given = dict(document)
    if given.get("block_hashes") is not None:
        given["seq_hashes"] = given.pop("block_hashes")
    if given.get("token_ids") is None and given.get("seq_hashes") is None:
        raise BadRequest("token_ids or block_hashes are needed", "missing", field="token_ids")
    listed = given.get("candidates") or []
    if len(listed) > CANDIDATE_COUNT_MAX:
        raise BadRequest(f"at most {CANDIDATE_COUNT_MAX} candidates", "out_of_range", field="candidates")
    return _asked(given), [_wanted(each, index) for index, each in enumerate(listed)]


def _wanted(listed: object, index: int) -> Wanted:
    if isinstance(listed, str):
        return Wanted(listed, None, Load())
    if not isinstance(listed, dict):
        raise BadRequest("a candidate is a name or an object", "invalid_type", field=("candidates", index))
    numbers = {"queue_ms": _Field((int, float)), "queued_tokens": _NUMBER}
    _check(listed, {"instance_id": _NAME, "dp_rank": _NUMBER, **numbers}, place=f"candidates[{index}].")
    queue_ms, queued_tokens = listed.get("queue_ms") or 0, listed.get("queued_tokens") or 0
    if not 0 <= queue_ms < 1e9 or not 0 <= queued_tokens < 2**53:
        raise BadRequest("a load is not negative", "out_of_range", field=("candidates", index))
    return Wanted(listed["instance_id"], listed.get("dp_rank"), Load(queue_ms=queue_ms, queued_tokens=queued_tokens))


def _asked(document: Mapping[str, Any]) -> Asked:
    return Asked(
        model=document["model"],
        tenant=document.get("tenant_id") or "default",
        instance_id=document.get("instance_id") or "",
        block_size_tokens=document.get("block_size") or 0,
        tokens=_numbers(document.get("token_ids") or [], "token_ids", least=0, most=TOKEN_MAX),
        hashes=_hashes(document.get("seq_hashes") or []),
        token_count=document.get("token_count") or 0,
        extras=Extras(
            lora_name=document.get("lora_name") or "",
            lora_path=document.get("lora_path") or "",
            cache_salt=document.get("cache_salt") or "",
            media=_media(document.get("media") or []),
        ),
    )


def _hashes(listed: list[Any]) -> list[int]:
    numbers = _numbers(listed, "seq_hashes", least=HASH_MIN, most=HASH_MAX)
    if not numbers or min(numbers) > 0:
        return numbers
    return [number & HASH_MAX or 1 for number in numbers]


def _media(listed: Sequence[Any]) -> tuple[Media, ...]:
    try:
        found = msgspec.convert(listed, tuple[Media, ...])
    except msgspec.ValidationError as error:
        raise BadRequest("media is a list of {id, token_offset, token_count}", "invalid_type", field="media") from error
    return tuple(sorted(found, key=lambda medium: medium.token_offset))


def _numbers(listed: list[Any], field: str, *, least: int, most: int) -> list[int]:
    if not listed or (set(map(type, listed)) == {int} and least <= min(listed) and max(listed) <= most):
        return listed
    index = next(place for place, number in enumerate(listed) if type(number) is not int or not least <= number <= most)
    reason = "out_of_range" if type(listed[index]) is int else "invalid_type"
    raise BadRequest(f"{field}[{index}] is no number from {least} to {most}", reason, field=(field, index))


def _check(document: Mapping[str, Any], fields: Mapping[str, _Field], *, place: str = "") -> None:
    for name in document:
        if name not in fields:
            raise BadRequest(f"unknown field {place}{name}", "unknown_field", field=place + name)
    for name, field in fields.items():
        value = document.get(name)
        if value is None:
            if field.required:
                raise BadRequest(f"{place}{name} is missing", "missing", field=place + name)
            continue
        kinds = field.kind if isinstance(field.kind, tuple) else (field.kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            reason = "not_array" if field.kind is list else "invalid_type"
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise BadRequest(f"{place}{name} is a {type(value).__name__}, not {wanted}", reason, field=place + name)
        if type(value) is int and value < 0 and name != "seq_hashes":
            raise BadRequest(f"{place}{name} is negative", "out_of_range", field=place + name)
