"""Why a request got less from the pool than it could, besides the reasons of reads (`moonpool.types.Reason`).

The words stand in outcomes and counters; `moonpool why` prints what they mean. Nothing is imported here but plain
types, so that a command line may read it.
"""

from __future__ import annotations

from typing import NamedTuple

# Of look-ups.
STORED_LESS = "stored_less"
TOO_SHORT = "shorter_than_a_block"
LOCAL_IS_LONGER = "local_hit_is_longer"
TOO_MANY = "too_many_requests"
OFF = "off"
# Of requests that may not share.
MEDIA = "media"
PROMPT_EMBEDDINGS = "prompt_embeddings"
PROMPT_LOGPROBS = "prompt_logprobs"
ADAPTER_NOT_READ_YET = "adapter_not_read_yet"
ADAPTER_UNREADABLE = "adapter_unreadable"
ADAPTER_NEWER = "adapter_newer_than_engine"
ADAPTER_CHANGED = "adapter_changed"
ADAPTER_IN_PLACE = "adapter_loaded_in_place"
ADAPTER_ELSEWHERE = "adapter_on_several_hosts"
# Of loads.
ABORTED = "aborted"
CANCELLED = "cancelled"
DEADLINE = "deadline"


class RequestReason(NamedTuple):
    """In words: what it means, and what to do (empty: nothing need be done)."""

    meaning: str
    advice: str = ""


REQUEST_REASONS: dict[str, RequestReason] = {
    STORED_LESS: RequestReason("the pool holds only the beginning of this prompt"),
    TOO_SHORT: RequestReason("the prompt has no whole block before its last token"),
    LOCAL_IS_LONGER: RequestReason("the engine's own cache had as much as the pool, or the gain was not worth a load"),
    TOO_MANY: RequestReason("more requests at a time than are tracked", "raise connector.request_count_max"),
    OFF: RequestReason("this engine is offered nothing", "moonpool doctor says why"),
    MEDIA: RequestReason(
        "the prompt has images, audio or video, and the client chose the ids that stand for them in the block hashes",
        "where clients are trusted with that, set connector.share_media",
    ),
    PROMPT_EMBEDDINGS: RequestReason(
        "the prompt has embeddings that the client computed, and nobody can check what they stand for",
        "where clients are trusted with that, set connector.share_media",
    ),
    PROMPT_LOGPROBS: RequestReason("log-probabilities of the prompt were asked for, so all of it has to be computed"),
    ADAPTER_NOT_READ_YET: RequestReason("its LoRA adapter was still being read", "later requests with it share"),
    ADAPTER_UNREADABLE: RequestReason(
        "the files of its LoRA adapter could not be read, so nobody knows which weights it has",
        "give the engine an adapter folder that its process can read, with adapter_config.json and safetensors",
    ),
    ADAPTER_NEWER: RequestReason(
        "files of its LoRA adapter are newer than the engine, so it is not certain that they are what it has loaded",
        "restart the engine, or, where adapters are never changed once they are there, set connector.adapters_stay",
    ),
    ADAPTER_CHANGED: RequestReason(
        "files of its LoRA adapter were changed while the engine ran, so nobody knows which of them it computes with",
        "restart the engine; give a changed adapter a new folder and a new name",
    ),
    ADAPTER_IN_PLACE: RequestReason(
        "LoRA adapters may be loaded over others in this engine, so nobody knows which one computed a block",
        "load changed adapters under new names, and set connector.adapters_stay once that is certain",
    ),
    ADAPTER_ELSEWHERE: RequestReason(
        "the engine runs on several hosts, and its LoRA adapters are read on each of them, where we cannot look"
    ),
    ABORTED: RequestReason("it was aborted while its blocks were being loaded"),
    CANCELLED: RequestReason("its load was cancelled"),
    DEADLINE: RequestReason(
        "its load was not done in time, so the engine computed the prompt",
        "see load_ms of other requests; connector.load_deadline_ms is the limit",
    ),
}
