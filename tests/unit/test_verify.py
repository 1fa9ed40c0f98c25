"""`moonpool verify`: what counts as equal, and that a broken endpoint is an error that says so."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import aiohttp
import pytest
from click.testing import CliRunner
from fake_openai import FakeModel, serving

from moonpool.cli.verify import verify as command
from moonpool.errors import PeerUnavailable, ProtocolError, UsageError
from moonpool.testing.chat import Answer, Question, Token, ask
from moonpool.testing.processes import free_port
from moonpool.testing.verify import Prompt, Report, Settings, Verdict, compare, default_prompts, verify

HELLO = ({"role": "user", "content": "hello"},)
PROMPTS = [Prompt("one", HELLO)]


def answer(*tokens: tuple[str, float, float], prompt_tokens: int = 7, rivals: str = "") -> Answer:
    """Tokens as (text, logprob, lead over the rival)."""
    return Answer(
        request_id="",
        text="".join(text for text, _, _ in tokens),
        tokens=tuple(
            Token(text=text, logprob=logprob, top=((text, logprob), (rivals or "other", logprob - lead)))
            for text, logprob, lead in tokens
        ),
        prompt_token_count=prompt_tokens,
        cached_token_count=0,
        ttft_ms=1.0,
        total_ms=2.0,
    )


def both(first: FakeModel, second: FakeModel, settings: Settings | None = None) -> Report:
    async def run() -> Report:
        async with serving(first) as url_a, serving(second) as url_b:
            return await verify(url_a, url_b, prompts=PROMPTS, settings=settings or Settings())

    return asyncio.run(run())


def test_same_tokens_and_probabilities_are_equal() -> None:
    found = compare("x", answer(("a", -0.1, 2.0)), answer(("a", -0.10001, 2.0)))
    assert found.verdict is Verdict.EQUAL
    assert found.logprob_distance_max == pytest.approx(1e-5)
    assert found.equal_token_count == 1


def test_another_token_is_different_and_the_lead_is_told() -> None:
    found = compare("x", answer(("a", -0.1, 2.0), ("b", -0.1, 0.5)), answer(("a", -0.1, 2.0), ("c", -0.1, 0.7)))
    assert found.verdict is Verdict.DIFFERENT
    assert found.lead == pytest.approx(0.7)
    assert found.equal_token_count == 1
    assert "'b'" in found.problem
    assert "'c'" in found.problem


def test_another_token_at_a_near_tie_is_forgiven() -> None:
    found = compare("x", answer(("a", -0.7, 1e-4), rivals="b"), answer(("b", -0.7, 2e-4), rivals="a"))
    assert found.verdict is Verdict.NEAR_TIE
    assert found.lead == pytest.approx(2e-4)


def test_a_near_tie_on_one_side_only_is_different() -> None:
    found = compare("x", answer(("a", -0.7, 1e-4), rivals="b"), answer(("b", -0.7, 1.0), rivals="a"))
    assert found.verdict is Verdict.DIFFERENT


def test_a_near_tie_between_other_tokens_is_different() -> None:
    found = compare("x", answer(("a", -0.7, 1e-4), rivals="z"), answer(("b", -0.7, 1e-4), rivals="z"))
    assert found.verdict is Verdict.DIFFERENT


def test_same_tokens_with_distant_probabilities_are_not_equal() -> None:
    found = compare("x", answer(("a", -0.1, 2.0)), answer(("a", -0.6, 2.0)), settings=Settings(logprob_tolerance=0.1))
    assert found.verdict is Verdict.DISTANT


def test_a_shorter_answer_is_different() -> None:
    found = compare("x", answer(("a", -0.1, 2.0), ("b", -0.1, 2.0)), answer(("a", -0.1, 2.0)))
    assert found.verdict is Verdict.DIFFERENT


def test_other_prompt_token_counts_are_different() -> None:
    found = compare("x", answer(("a", -0.1, 2.0)), answer(("a", -0.1, 2.0), prompt_tokens=8))
    assert found.verdict is Verdict.DIFFERENT
    assert "8" in found.problem


def test_endpoints_that_answer_alike_are_ok() -> None:
    report = both(FakeModel(), FakeModel(cached_tokens=5))
    assert report.ok
    assert report.comparisons[0].second is not None
    assert report.comparisons[0].second.cached_token_count == 5


def test_endpoints_that_answer_differently_are_not_ok() -> None:
    other = FakeModel(words=("The", " answer", " is", " 43"))
    report = both(FakeModel(), other)
    assert not report.ok
    assert report.comparisons[0].verdict is Verdict.DIFFERENT


def test_endpoints_that_differ_at_a_near_tie_are_ok() -> None:
    leads = (2.0, 2.0, 2.0, 1e-5)
    report = both(
        FakeModel(leads=leads),
        FakeModel(words=("The", " answer", " is", " 41"), rivals=("A", " question", " was", " 42"), leads=leads),
    )
    assert report.ok
    assert report.comparisons[0].verdict is Verdict.NEAR_TIE


def test_one_endpoint_is_asked_twice_and_emptied_in_between() -> None:
    model = FakeModel(can_reset=True)

    async def run() -> Report:
        async with serving(model) as url:
            return await verify(url, prompts=PROMPTS)

    report = asyncio.run(run())
    assert report.ok
    assert report.local_cache_reset is True
    assert (len(model.bodies), model.resets) == (2, 1)


def test_a_request_is_greedy_and_asks_for_probabilities() -> None:
    model = FakeModel()

    async def run() -> Answer:
        async with serving(model) as url, aiohttp.ClientSession() as session:
            return await ask(session, url + "/v1/", Question(model="fake", messages=HELLO, request_id="demo-7"))

    found = asyncio.run(run())
    assert found.text == "The answer is 42"
    assert [token.text for token in found.tokens] == list(model.words)
    assert 0 < found.ttft_ms <= found.total_ms
    assert model.request_ids == ["demo-7"]
    assert model.bodies[0]["temperature"] == 0
    assert model.bodies[0]["logprobs"] is True


def test_a_failing_endpoint_is_a_failed_comparison() -> None:
    for broken in (
        FakeModel(status=500),
        FakeModel(break_after=2),
        FakeModel(error_after=1),
        FakeModel(malformed=b"{"),
    ):
        report = both(FakeModel(), broken)
        assert not report.ok
        assert report.comparisons[0].verdict is Verdict.FAILED
        assert report.comparisons[0].problem.startswith("B: ")


def test_other_model_names_are_an_error_that_names_both() -> None:
    with pytest.raises(UsageError, match=r"differ.*fake.*other"):
        both(FakeModel(), FakeModel(name="other"))


def test_a_model_that_one_does_not_serve_is_an_error() -> None:
    with pytest.raises(UsageError, match="does not serve 'big'"):
        both(FakeModel(), FakeModel(), Settings(model="big"))


def test_no_log_probabilities_are_an_error_that_says_so() -> None:
    with pytest.raises(UsageError, match="log-probabilities"):
        both(FakeModel(), FakeModel(with_logprobs=False))


def test_a_refused_request_is_an_error_with_the_answer() -> None:
    with pytest.raises(UsageError, match=r"HTTP 400.*no such thing"):
        both(FakeModel(), FakeModel(status=400))


def test_nobody_there_is_an_error_that_names_the_url() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(PeerUnavailable, match=url):
        asyncio.run(verify(url, prompts=PROMPTS))


def test_something_else_than_a_model_list_is_an_error() -> None:
    async def run() -> None:
        async with serving(replace(FakeModel())) as url:
            await verify(url + "/nothing", prompts=PROMPTS)

    with pytest.raises((ProtocolError, UsageError), match="404"):
        asyncio.run(run())


def test_no_prompt_or_no_url_is_an_error() -> None:
    with pytest.raises(UsageError, match="prompt"):
        asyncio.run(verify("http://127.0.0.1:1", prompts=[]))
    with pytest.raises(UsageError, match="no URL"):
        asyncio.run(verify("localhost:1", prompts=PROMPTS))


def test_default_prompts_are_new_in_every_run_unless_wanted() -> None:
    assert default_prompts(2) != default_prompts(2)
    assert default_prompts(2, nonce="x") == default_prompts(2, nonce="x")


def run_command(first: FakeModel, second: FakeModel, *flags: str) -> tuple[int, str]:
    """The command in a thread, because it runs an event loop of its own."""

    async def run() -> tuple[int, str]:
        async with serving(first) as url_a, serving(second) as url_b:
            result = await asyncio.to_thread(CliRunner().invoke, command, [url_a, url_b, "--count", "2", *flags])
            return result.exit_code, result.stdout

    return asyncio.run(run())


def test_command_exits_with_0_and_json_when_equal() -> None:
    code, text = run_command(FakeModel(), FakeModel(), "--json")
    assert code == 0
    document = json.loads(text)
    assert document["ok"] is True
    assert [item["verdict"] for item in document["comparisons"]] == ["equal", "equal"]
    assert document["comparisons"][0]["logprob_distance_max"] == 0


def test_command_exits_with_1_and_a_table_when_different() -> None:
    code, text = run_command(FakeModel(), FakeModel(words=("No", "t", " so", " fast")))
    assert code == 1
    assert "0 of 2 answers equal" in text


def test_command_exits_with_2_when_it_cannot_try() -> None:
    code, _ = run_command(FakeModel(), FakeModel(name="other"))
    assert code == 2
