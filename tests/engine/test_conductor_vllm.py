"""The conductor with a real vLLM: announced, verified, its blocks found in every tier; a wrong registration is loud."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moonpool import _native
from moonpool.conductor.pool_view import PoolView
from moonpool.conductor.service import Conductor
from moonpool.config import ConductorSettings
from moonpool.testing.cluster import Cluster, wait_until
from moonpool.testing.processes import free_port

sys.path.insert(0, str(Path(__file__).parents[1] / "process"))

from llm import BLOCK, Llm, prompt_of
from stub_engine import StubApi

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:Unclosed context:ResourceWarning"),  # vLLM's own (core_client.py)
]


class Run:
    """One engine with KV events on, and a conductor that was told nothing of it."""

    def __init__(self, model: Path, cluster: Cluster, **flags: Any) -> None:
        self.cluster = cluster
        self.port, self.replay_port = free_port(), free_port()
        events = {
            "enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://*:{self.port}",
            "replay_endpoint": f"tcp://*:{self.replay_port}", "topic": "kv",
        }  # fmt: skip
        from vllm.config import KVEventsConfig

        self.llm = Llm(
            "A", model, runtime_folder=cluster.folder,
            flags={"kv_events_config": KVEventsConfig(**events), "served_model_name": "m", **flags},
            environment={"PYTHONHASHSEED": "0"},
        )  # fmt: skip
        self.conductor = self.new_conductor(announced=True)

    def new_conductor(self, *, announced: bool) -> Conductor:
        directory = _native.DirectoryClient(
            self.cluster.config.directory.socket_path, secret=self.cluster.secret, name="conductor"
        )
        settings = ConductorSettings(
            name="test", announced=announced, announced_interval_ms=200, directory_budget_ms=500
        )
        return Conductor(settings, pool=PoolView(directory, budget_ms=500))

    def ask(self, tokens: list[int], path: str = "query", **fields: Any) -> dict[str, Any]:
        document = {"model": "m", "token_ids": tokens, **fields}
        return dict(getattr(self.conductor.answers, path)(json.dumps(document).encode()))

    def match(self, tokens: list[int], **fields: Any) -> dict[str, Any]:
        return dict(self.ask(tokens, **fields)["instances"]["A"])

    def body(self, **changes: Any) -> bytes:
        """As an operator would register the engine."""
        profile = {"strategy": "vllm_v1", "algorithm": "sha256_cbor", "python_hash_seed": "0"}
        document = {
            "instance_id": "B", "endpoint": f"tcp://127.0.0.1:{self.port}", "type": "vLLM", "modelname": "m",
            "replay_endpoint": f"tcp://127.0.0.1:{self.replay_port}", "block_size": BLOCK, "hash_profile": profile,
            **changes,
        }  # fmt: skip
        return json.dumps(document).encode()


def state_of(conductor: Conductor, name: str) -> tuple[str, str]:
    workers = json.loads(conductor.status())["workers"]
    return next(((each["state"], each["reason"]) for each in workers if each["instance_id"] == name), ("", ""))


@pytest.fixture(scope="module")
def run(llama: Path, cluster: Cluster) -> Iterator[Run]:
    made = Run(llama, cluster)
    made.conductor.start()
    with made.llm:
        wait_until(lambda: state_of(made.conductor, "A")[0] == "ok", "the engine to be ok", timeout_s=60)
        yield made
    made.conductor.stop()


def test_an_engine_announces_itself_and_its_blocks_are_found_in_both_tiers(run: Run) -> None:
    status = json.loads(run.conductor.status())["workers"][0]
    assert (status["origin"], status["proven"], status["block_size_tokens"]) == ("announced", True, BLOCK)
    prompt = prompt_of(1, 5 * BLOCK + 3)
    run.llm.ask(prompt)
    wait_until(lambda: run.match(prompt)["gpu"] == 5 * BLOCK, "the engine's blocks to be known", timeout_s=30)
    wait_until(lambda: run.match(prompt)["cpu"] == 5 * BLOCK, "the node's copies to be known", timeout_s=30)
    assert run.ask(prompt, "score")["workers"][0]["hit"]["engine"] == 5 * BLOCK
    run.llm.forget()
    run.llm.ask([3] * 40)  # vLLM publishes what happened between two steps with the next one
    wait_until(lambda: run.match(prompt)["gpu"] == 0, "the engine's blocks to be forgotten", timeout_s=30)
    assert run.match(prompt)["longest_matched"] == 5 * BLOCK, "the node still has them"
    assert run.ask(prompt, "score")["workers"][0]["hit"] == {"engine": 0, "dram": 5 * BLOCK, "disk": 0, "remote": 0}


def test_a_salted_prompt_is_found_with_its_salt_only(run: Run) -> None:
    prompt = prompt_of(2, 3 * BLOCK + 1)
    run.llm.ask(prompt, salt="tenant 7")
    wait_until(lambda: run.match(prompt, cache_salt="tenant 7")["gpu"] == 3 * BLOCK, "the blocks", timeout_s=30)
    assert run.match(prompt)["gpu"] == 0
    assert run.match(prompt, cache_salt="tenant 8")["gpu"] == 0


def test_a_registration_by_hand_is_proven_by_a_prompt_of_ours(run: Run) -> None:
    conductor = run.new_conductor(announced=False)
    conductor.start()

    def answer(tokens: list[int]) -> int:
        run.llm.ask(tokens, tokens=1)
        return 200

    with StubApi(answer) as api:
        conductor.answers.register(run.body(url=api.url))
        wait_until(lambda: state_of(conductor, "B")[0] == "ok", "the probe to be seen", timeout_s=30)
        worker = conductor.registry.workers()[0]
        wait_until(lambda: worker.parity.probe_seen, "the probe to be seen", timeout_s=30)
    conductor.stop()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"block_size": 16}, f"block size: the engine publishes blocks of {BLOCK} tokens, registered are 16"),
        (
            {"hash_profile": {"algorithm": "sha256", "python_hash_seed": "1"}},
            "hash: its blocks fit sha256_cbor with seed '0', registered are sha256 with seed '1'",
        ),
    ],
    ids=["block size", "hash"],
)
def test_a_wrong_registration_is_degraded_and_says_what_is_right(
    run: Run, changes: dict[str, Any], reason: str
) -> None:
    run.llm.ask(prompt_of(3, 2 * BLOCK + 1))
    conductor = run.new_conductor(announced=False)
    conductor.start()
    conductor.answers.register(run.body(**changes))
    wait_until(lambda: state_of(conductor, "B") == ("degraded", reason), reason, timeout_s=30)
    conductor.stop()
