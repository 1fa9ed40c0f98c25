"""Do two endpoints answer the same? Then what one computed is safe for the other to use.

The same prompts go to endpoint A and then to endpoint B (or twice to one endpoint: cold, then warm). Compared are
the greedy tokens, the log-probability of every token up to the first difference, and the token counts. A different
token is forgiven only where the engine itself was undecided: its two best log-probabilities closer than
`near_tie`. Wrong KV that happens to give the same words still shows in the log-probabilities.
"""

from __future__ import annotations

import asyncio
import enum
import secrets
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from moonpool.errors import MoonpoolError, UsageError
from moonpool.testing.chat import Answer, Message, Question, Token, api_root, ask, model_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NEAR_TIE_DEFAULT = 1e-3
LOGPROB_TOLERANCE_DEFAULT = 0.1
TOKEN_COUNT_DEFAULT = 32


class Verdict(enum.StrEnum):
    """What a comparison says."""

    EQUAL = "equal"
    NEAR_TIE = "near tie"  # another token, where the two best were as good as equal
    DIFFERENT = "different"
    DISTANT = "distant"  # same tokens, but the log-probabilities are too far apart
    FAILED = "failed"  # one side gave no answer

    @property
    def ok(self) -> bool:
        """Whether the engines may share KV, as far as this answer shows."""
        return self in (Verdict.EQUAL, Verdict.NEAR_TIE)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt, answered twice."""

    name: str
    verdict: Verdict
    first: Answer | None
    second: Answer | None
    equal_token_count: int = 0
    logprob_distances: tuple[float, ...] = ()  # per position up to the first difference
    lead: float | None = None  # at the first difference: the larger lead of the best token over the second
    problem: str = ""

    @property
    def logprob_distance_max(self) -> float:
        """The largest distance before the first difference; 0 for no tokens."""
        return max(self.logprob_distances, default=0.0)


class Prompt(msgspec.Struct, frozen=True):
    """A named conversation to ask."""

    name: str
    messages: tuple[Message, ...]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to ask and how to judge."""

    model: str = ""  # empty: what the endpoints serve
    token_count_max: int = TOKEN_COUNT_DEFAULT
    near_tie: float = NEAR_TIE_DEFAULT  # nats
    logprob_tolerance: float = LOGPROB_TOLERANCE_DEFAULT  # nats
    timeout_s: float = 120


DEFAULTS = Settings()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run."""

    first_url: str
    second_url: str
    model: str
    comparisons: tuple[Comparison, ...]
    local_cache_reset: bool | None = None  # one endpoint: whether its own prefix cache could be emptied in between

    @property
    def ok(self) -> bool:
        """Whether every prompt was answered alike (and there was one)."""
        return bool(self.comparisons) and all(comparison.verdict.ok for comparison in self.comparisons)


def compare(name: str, first: Answer, second: Answer, *, settings: Settings = DEFAULTS) -> Comparison:
    """Judges two answers to the same prompt."""
    pairs = list(zip(first.tokens, second.tokens, strict=False))
    equal_count = next((i for i, (a, b) in enumerate(pairs) if a.text != b.text), len(pairs))
    distances = tuple(abs(a.logprob - b.logprob) for a, b in pairs[:equal_count])
    verdict, lead, problem = Verdict.EQUAL, None, ""
    if first.prompt_token_count != second.prompt_token_count:
        verdict = Verdict.DIFFERENT
        problem = f"the prompt has {first.prompt_token_count} tokens here and {second.prompt_token_count} there"
    elif max(distances, default=0.0) > settings.logprob_tolerance:
        verdict = Verdict.DISTANT
        problem = f"log-probabilities differ by up to {max(distances):.3g} before any token differs"
    elif equal_count < len(pairs):
        a, b = pairs[equal_count]
        lead = max(a.lead, b.lead)
        verdict = Verdict.NEAR_TIE if _is_near_tie(a, b, settings.near_tie) else Verdict.DIFFERENT
        problem = f"token {equal_count}: {a.text!r} here, {b.text!r} there, the best leads by {lead:.2g}"
    elif len(first.tokens) != len(second.tokens) or first.text != second.text:
        verdict = Verdict.DIFFERENT
        problem = f"{len(first.tokens)} tokens here and {len(second.tokens)} there"
    return Comparison(
        name=name,
        verdict=verdict,
        first=first,
        second=second,
        equal_token_count=equal_count,
        logprob_distances=distances,
        lead=lead,
        problem=problem,
    )


def _is_near_tie(a: Token, b: Token, near_tie: float) -> bool:
    # Both engines must have been undecided, and between these very tokens.
    rivals = {a.text, b.text}
    return all(token.lead < near_tie and {text for text, _ in token.top[:2]} == rivals for token in (a, b))


def failed(name: str, problem: str, first: Answer | None = None) -> Comparison:
    """A comparison that could not be made."""
    return Comparison(name=name, verdict=Verdict.FAILED, first=first, second=None, problem=problem)


async def verify(
    first_url: str,
    second_url: str = "",
    *,
    prompts: Sequence[Prompt],
    settings: Settings = DEFAULTS,
    progress: Callable[[str], None] = lambda text: None,
) -> Report:
    """Asks both endpoints every prompt, A first, and compares. Without `second_url` asks A twice.

    A request that fails is a FAILED comparison. Raises UsageError when the endpoints serve different models or give
    no log-probabilities, PeerUnavailable when one is not there at all.
    """
    if not prompts:
        raise UsageError("nothing to verify: give at least one prompt")
    api_root(first_url)
    one_endpoint = not second_url or api_root(second_url) == api_root(first_url)
    second_url = first_url if one_endpoint else second_url
    async with aiohttp.ClientSession() as session:
        model = await _shared_model(session, first_url, second_url, wanted=settings.model)
        reset: bool | None = None
        firsts: list[Answer | MoonpoolError] = []
        comparisons = []
        for prompt in prompts:
            progress(f"{prompt.name}: asking {first_url}")
            firsts.append(await _try(session, first_url, prompt, model=model, settings=settings))
        if one_endpoint:
            reset = await _reset_local_cache(session, first_url)
        for prompt, first in zip(prompts, firsts, strict=True):
            progress(f"{prompt.name}: asking {second_url}")
            second = await _try(session, second_url, prompt, model=model, settings=settings)
            comparisons.append(_judge(prompt.name, first, second, settings=settings))
    return Report(
        first_url=first_url, second_url=second_url, model=model, comparisons=tuple(comparisons), local_cache_reset=reset
    )


def _judge(
    name: str, first: Answer | MoonpoolError, second: Answer | MoonpoolError, *, settings: Settings
) -> Comparison:
    if isinstance(first, MoonpoolError):
        return failed(name, f"A: {first}")
    if isinstance(second, MoonpoolError):
        return failed(name, f"B: {second}", first)
    return compare(name, first, second, settings=settings)


async def _try(
    session: aiohttp.ClientSession, url: str, prompt: Prompt, *, model: str, settings: Settings
) -> Answer | MoonpoolError:
    question = Question(
        model=model, messages=prompt.messages, token_count_max=settings.token_count_max, timeout_s=settings.timeout_s
    )
    try:
        return await ask(session, url, question)
    except UsageError:
        raise  # the endpoint can never do it: one clear error instead of a table of them
    except MoonpoolError as error:
        return error


async def _shared_model(session: aiohttp.ClientSession, first_url: str, second_url: str, *, wanted: str) -> str:
    """The model to ask for. Raises UsageError when the endpoints have none in common."""
    first, second = await asyncio.gather(model_names(session, first_url), model_names(session, second_url))
    common = [name for name in first if name in second]
    if wanted:
        for url, names in ((first_url, first), (second_url, second)):
            if wanted not in names:
                raise UsageError(f"{url} does not serve {wanted!r} but {', '.join(names) or 'nothing'}")
        return wanted
    if not common:
        raise UsageError(
            f"model names differ: {first_url} serves {', '.join(first) or 'nothing'}, {second_url} serves "
            f"{', '.join(second) or 'nothing'}; start both with the same --served-model-name"
        )
    return common[0]


async def _reset_local_cache(session: aiohttp.ClientSession, url: str) -> bool:
    # vLLM offers this only in its development mode; without it the second answer may use the engine's own cache,
    # and the report says so.
    root = api_root(url).removesuffix("/v1")
    try:
        async with session.post(f"{root}/reset_prefix_cache", timeout=aiohttp.ClientTimeout(total=10)) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


def default_prompts(count: int = 4, *, nonce: str | None = None) -> list[Prompt]:
    """Conversations with one long shared beginning. A fresh nonce (the default) makes every block of them new, so
    that the first answer is computed cold; an empty one makes them the same in every run.
    """
    from moonpool.testing.workload import QUESTIONS, system_prompt

    label = secrets.token_hex(4) if nonce is None else nonce
    system = system_prompt(label)
    questions = [QUESTIONS[i % len(QUESTIONS)] for i in range(count)]
    return [
        Prompt(f"question {i + 1}", ({"role": "system", "content": system}, {"role": "user", "content": text}))
        for i, text in enumerate(questions)
    ]
