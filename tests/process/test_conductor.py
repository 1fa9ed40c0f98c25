"""A conductor with stub engines over real sockets: faults 24 and 25, tiers, ranks, and what lies and what is broken."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from stub_engine import StubApi, StubEngine

from moonpool.conductor.hashes import HashRules
from moonpool.conductor.service import Conductor
from moonpool.config import ConductorSettings
from moonpool.errors import BadRequest
from moonpool.testing.cluster import wait_until
from moonpool.testing.processes import free_port

BLOCK = 16
RULES = HashRules(algorithm="sha256_cbor", seed="0", block_size_tokens=BLOCK)
PROFILE = {"strategy": "vllm_v1", "algorithm": "sha256_cbor", "python_hash_seed": "0", "index_projection": "low64_be"}
# Short, so that a test of what is never answered is short; faults are found within 10 s by default.
SETTINGS = ConductorSettings(name="test", stream_ms=1_000, probe_ms=2_000)


@pytest.fixture
def conductor() -> Iterator[Conductor]:
    made = Conductor(SETTINGS)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def engine() -> Iterator[StubEngine]:
    with StubEngine(RULES) as made:
        yield made


def body(engine: StubEngine, name: str = "A", **fields: Any) -> bytes:
    """The body of /register."""
    document = {
        "instance_id": name, "endpoint": engine.endpoint, "replay_endpoint": engine.replay_endpoint, "type": "vLLM",
        "modelname": "m", "block_size": BLOCK, "dp_rank": 0, "hash_profile": PROFILE, **fields,
    }  # fmt: skip
    return json.dumps({key: value for key, value in document.items() if value is not None}).encode()


def prompt(seed: int, blocks: int = 4) -> list[int]:
    return [1000 * seed + index for index in range(blocks * BLOCK)]


def ask(conductor: Conductor, tokens: list[int], path: str = "query", **fields: Any) -> dict[str, Any]:
    document = {"model": "m", "token_ids": tokens, **fields}
    return dict(getattr(conductor.answers, path)(json.dumps(document).encode()))


def matched(conductor: Conductor, tokens: list[int], name: str = "A") -> int:
    """Tokens that the worker is believed to hold."""
    return int(ask(conductor, tokens)["instances"][name]["longest_matched"])


def worker(conductor: Conductor, name: str = "A") -> dict[str, Any]:
    workers = json.loads(conductor.status())["workers"]
    return next(each for each in workers if each["instance_id"] == name)


def wait_matched(conductor: Conductor, tokens: list[int], count: int, name: str = "A") -> None:
    wait_until(lambda: matched(conductor, tokens, name) == count, f"{name} to match {count} tokens", timeout_s=20)


def wait_state(conductor: Conductor, state: str, name: str = "A") -> dict[str, Any]:
    wait_until(lambda: worker(conductor, name)["state"] == state, f"{name} to be {state}", timeout_s=20)
    return worker(conductor, name)


def degraded(conductor: Conductor, name: str = "A") -> str:
    return str(wait_state(conductor, "degraded", name)["reason"])


# Events in ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("legacy", [False, True], ids=["maps", "arrays"])
def test_what_was_cached_before_and_after_the_registration_is_found(conductor: Conductor, legacy: bool) -> None:
    with StubEngine(RULES, legacy=legacy) as engine:
        engine.store(prompt(1))
        conductor.answers.register(body(engine))
        wait_matched(conductor, prompt(1), 4 * BLOCK)
        engine.store(prompt(2))
        wait_matched(conductor, [*prompt(2), 7], 4 * BLOCK)
        engine.remove(engine.hashes(prompt(2))[2:])
        wait_matched(conductor, prompt(2), 2 * BLOCK)
        engine.clear()
        wait_matched(conductor, prompt(1), 0)
        assert wait_state(conductor, "ok")["proven"]


def test_events_lost_in_a_gap_are_replayed(conductor: Conductor, engine: StubEngine) -> None:
    conductor.answers.register(body(engine))
    hashes = engine.store(prompt(1))
    wait_matched(conductor, prompt(1), 4 * BLOCK)
    engine.store(prompt(2), lost=True)
    engine.remove(hashes[1:], lost=True)
    engine.remove(engine.hashes(prompt(3)))  # unknown: counted, and nothing else
    wait_matched(conductor, prompt(2), 4 * BLOCK)
    assert matched(conductor, prompt(1)) == BLOCK
    messages = worker(conductor)["messages"]
    assert (messages["gaps"], messages["lost"]) == (1, 0)
    assert conductor.books.stats()["unknown_removed_total"] == 4
    assert conductor.books.check_integrity() == ""


def test_a_stored_block_lost_in_a_gap_and_removed_live_is_not_believed(
    conductor: Conductor, engine: StubEngine
) -> None:
    conductor.answers.register(body(engine))
    engine.store(prompt(1))
    wait_matched(conductor, prompt(1), 4 * BLOCK)
    hashes = engine.store(prompt(2), lost=True)
    engine.remove(hashes)
    engine.store(prompt(3))
    wait_matched(conductor, prompt(3), 4 * BLOCK)
    assert matched(conductor, prompt(2)) == 0


def test_a_gap_that_nobody_replays_drops_what_is_known(conductor: Conductor) -> None:
    with StubEngine(RULES, replays=False) as engine:
        conductor.answers.register(body(engine))
        wait_until(lambda: worker(conductor)["connected"], "the conductor to be connected")
        wait_first(conductor, engine)
        engine.store(prompt(2), lost=True)
        engine.store(prompt(3))
        wait_matched(conductor, prompt(3), 4 * BLOCK)
        assert matched(conductor, prompt(1)) == 0
        status = worker(conductor)
        assert status["messages"]["lost"] == 1
        assert any("1 messages were lost" in said for said in status["advice"])


def wait_first(conductor: Conductor, engine: StubEngine) -> None:
    """Publish until the subscription is in force: without replay nobody hears what came before."""

    def heard() -> bool:
        engine.store(prompt(1))
        return matched(conductor, prompt(1)) == 4 * BLOCK

    wait_until(heard, "the subscription to be in force", timeout_s=20)


@pytest.mark.parametrize("replays", [True, False], ids=["replay", "no replay"])
def test_a_worker_that_restarts_is_believed_to_hold_nothing(conductor: Conductor, replays: bool) -> None:
    with StubEngine(RULES, replays=replays) as engine:
        conductor.answers.register(body(engine))
        wait_first(conductor, engine)
        engine.restart()
        wait_matched(conductor, prompt(1), 0)
        wait_until(lambda: worker(conductor)["connected"], "the conductor to be connected", timeout_s=20)

        def heard() -> bool:
            engine.store(prompt(2))
            return matched(conductor, prompt(2)) == 4 * BLOCK

        wait_until(heard, "the new process to be heard", timeout_s=20)
        assert matched(conductor, prompt(1)) == 0


def test_a_message_that_is_repeated_changes_nothing(conductor: Conductor, engine: StubEngine) -> None:
    conductor.answers.register(body(engine))
    hashes = engine.store(prompt(1))
    engine.remove(hashes[2:])
    wait_matched(conductor, prompt(1), 2 * BLOCK)
    engine.publish_again(0)
    engine.store(prompt(2))
    wait_matched(conductor, prompt(2), 4 * BLOCK)
    assert matched(conductor, prompt(1)) == 2 * BLOCK
    assert worker(conductor)["messages"]["restarts"] == 0


def test_two_workers_hold_a_block_and_one_removes_it(conductor: Conductor, engine: StubEngine) -> None:
    with StubEngine(RULES) as other:
        for each, name in ((engine, "A"), (other, "B")):
            conductor.answers.register(body(each, name))
            each.store(prompt(1))
            wait_matched(conductor, prompt(1), 4 * BLOCK, name)
        other.remove(other.hashes(prompt(1)))
        wait_matched(conductor, prompt(1), 0, "B")
        assert matched(conductor, prompt(1), "A") == 4 * BLOCK


def test_tiers_ranks_and_a_worker_that_leaves(conductor: Conductor, engine: StubEngine) -> None:
    with StubEngine(RULES) as second:
        conductor.answers.register(body(engine))
        conductor.answers.register(body(second, dp_rank=1))
        engine.store(prompt(1)[: 2 * BLOCK])
        engine.store(prompt(1)[: 3 * BLOCK], medium="CPU")
        engine.store(prompt(1), medium="STORAGE")
        wait_matched(conductor, prompt(1), 4 * BLOCK)
        match = ask(conductor, prompt(1))["instances"]["A"]
        assert match["rank_matches"] == {
            "0": {"gpu": 2 * BLOCK, "cpu": 3 * BLOCK, "disk": 4 * BLOCK},
            "1": {"gpu": 0, "cpu": 0, "disk": 0},
        }
        assert match["dp"] == {"0": 4 * BLOCK, "1": 0}
        documented = ask(conductor, prompt(1))["default"]["A"]
        assert (documented["longest_matched"], documented["GPU"], documented["CPU"]) == (64, 32, 48)
        best = ask(conductor, prompt(1), "score")["workers"][0]
        assert (best["dp_rank"], best["hit"]) == (0, {"engine": 32, "dram": 16, "disk": 15, "remote": 0})
        assert conductor.answers.unregister(b'{"instance_id": "A", "dp_rank": 0}')["removed_instances"] == [
            "A|default|0"
        ]
        wait_until(lambda: conductor.books.stats()["entry_count"] == 0, "its blocks to be forgotten")
        assert conductor.answers.services()["count"] == 1


def test_thirty_workers_added_and_removed_leave_nothing(conductor: Conductor, engine: StubEngine) -> None:
    engine.store(prompt(1, 50))
    for round_number in range(30):
        conductor.answers.register(body(engine, f"worker {round_number}"))
        wait_until(lambda: conductor.books.stats()["entry_count"] == 50, "its blocks to be known", timeout_s=20)
        conductor.answers.unregister(json.dumps({"instance_id": f"worker {round_number}"}).encode())
        wait_until(lambda: conductor.books.stats()["entry_count"] == 0, "its blocks to be forgotten", timeout_s=20)
        if round_number == 10:
            early = conductor.books.stats()["bytes"]
    stats = conductor.books.stats()
    assert (stats["holder_count"], stats["entry_count"], stats["bytes"]) == (0, 0, early)
    assert conductor.intake.failures == 0


# A mismatch is loud (fault 25) -------------------------------------------------------------------------------


def test_another_block_size_degrades_and_is_still_balanced(conductor: Conductor, engine: StubEngine) -> None:
    conductor.answers.register(body(engine, block_size=32))
    engine.store(prompt(1))
    assert degraded(conductor) == "block size: the engine publishes blocks of 16 tokens, registered are 32"
    scored = ask(conductor, prompt(1), "score")["workers"]
    assert [(each["instance_id"], each["cached_tokens"]) for each in scored] == [("A", 0)]
    assert scored[0]["reason"].startswith("degraded: block size")
    assert conductor.books.stats()["entry_count"] == 0


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        (
            {"python_hash_seed": "7"},
            "its blocks fit sha256_cbor with seed '0', registered are sha256_cbor with seed '7'",
        ),
        ({"algorithm": "sha256"}, "its blocks fit sha256_cbor with seed '0', registered are sha256 with seed '0'"),
        ({"strategy": "sglang"}, "the engine publishes "),
    ],
    ids=["seed", "algorithm", "engine"],
)
def test_another_hash_degrades_and_says_what_fits(
    conductor: Conductor, engine: StubEngine, profile: dict[str, str], reason: str
) -> None:
    conductor.answers.register(body(engine, hash_profile={**PROFILE, **profile}))
    engine.store(prompt(1))
    assert reason in degraded(conductor)
    assert ask(conductor, prompt(1))["instances"]["A"]["longest_matched"] == 0


def test_no_event_endpoint_is_an_error_and_a_silent_one_degrades(conductor: Conductor, engine: StubEngine) -> None:
    with pytest.raises(BadRequest, match="endpoint is missing"):
        conductor.answers.register(body(engine, endpoint=None))
    with pytest.raises(BadRequest, match="name its host instead of the wildcard"):
        conductor.answers.register(body(engine, endpoint="tcp://*:5557"))
    nowhere = f"tcp://127.0.0.1:{free_port()}"
    conductor.answers.register(body(engine, endpoint=nowhere))
    assert degraded(conductor) == f"event stream: nothing answers at {nowhere}"


def test_a_short_prompt_is_balanced_by_load(conductor: Conductor, engine: StubEngine) -> None:
    with StubEngine(RULES) as other:
        conductor.answers.register(body(engine, "A"))
        conductor.answers.register(body(other, "B"))
        candidates = [{"instance_id": "A", "queued_tokens": 9_000}, {"instance_id": "B", "queued_tokens": 10}]
        scored = ask(conductor, [1, 2, 3], "score", candidates=candidates)["workers"]
        assert [each["instance_id"] for each in scored] == ["B", "A"]
        assert scored[0]["reason"] == "the prompt is shorter than a block of 16 tokens"
        firsts = {ask(conductor, [1, 2, 3], "score")["workers"][0]["instance_id"] for _ in range(2)}
        assert firsts == {"A", "B"}, "equal ones take turns"


@pytest.mark.parametrize(
    ("publishes", "state", "reason"),
    [
        (True, "ok", ""),
        (False, "degraded", "event stream: the blocks of a prompt that we sent to the engine did not come"),
    ],
    ids=["seen", "not seen"],
)
def test_a_prompt_of_ours_must_show_up_in_the_events(
    conductor: Conductor, engine: StubEngine, publishes: bool, state: str, reason: str
) -> None:
    def answer(tokens: list[int]) -> int:
        if publishes:
            engine.store(tokens)
        return 200

    with StubApi(answer) as api:
        conductor.answers.register(body(engine, url=api.url))
        assert wait_state(conductor, state)["reason"] == reason


def test_an_api_that_refuses_our_prompt_degrades(conductor: Conductor, engine: StubEngine) -> None:
    with StubApi(lambda tokens: 404) as api:
        conductor.answers.register(body(engine, url=api.url))
        assert "answers 404 to a prompt" in degraded(conductor)


# Lies and rubbish --------------------------------------------------------------------------------------------


def lies(engine: StubEngine) -> list[Callable[[], None]]:
    """What a broken or hostile publisher may send."""
    stored = {
        "type": "BlockStored",
        "block_hashes": [2**64 - 1],
        "parent_block_hash": 5,
        "token_ids": [1],
        "block_size": BLOCK,
    }
    return [
        lambda: engine.publish([{**stored, "block_hashes": list(range(100_000))}]),
        lambda: engine.publish([{**stored, "medium": "moon"}, {"type": "BlockMoved"}, ["BlockStored"], 7, None, []]),
        lambda: engine.publish(
            [{**stored, "block_hashes": ["x"]}, {**stored, "block_size": -1, "parent_block_hash": None}]
        ),
        lambda: engine.publish([{"type": "BlockRemoved", "block_hashes": [1, 2, 3], "group_idx": 70_000}]),
    ]


@pytest.mark.parametrize("number", range(4))
def test_a_worker_that_lies_harms_nobody_else(conductor: Conductor, engine: StubEngine, number: int) -> None:
    with StubEngine(RULES) as honest:
        conductor.answers.register(body(engine, "liar"))
        conductor.answers.register(body(honest, "honest"))
        lies(engine)[number]()
        engine.publish([])
        wait_until(lambda: worker(conductor, "liar")["messages"]["applied"] == 2, "the lie to be heard", timeout_s=20)
        honest.store(prompt(1))
        wait_matched(conductor, prompt(1), 4 * BLOCK, "honest")
        assert conductor.books.check_integrity() == ""
        assert conductor.intake.failures == 0


def test_bytes_that_are_no_events_degrade(conductor: Conductor, engine: StubEngine) -> None:
    conductor.answers.register(body(engine))
    engine.store(prompt(1))
    wait_matched(conductor, prompt(1), 4 * BLOCK)
    engine._publisher.send_multipart([b"kv", engine.number.to_bytes(8, "big"), b"\x80\x04cos\nsystem\n."])
    assert degraded(conductor) == "event stream: 1 messages were no KV events"
