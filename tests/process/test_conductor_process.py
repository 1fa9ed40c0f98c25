"""`moonpool conductor` as a process beside node and directory: HTTP, secret, doctor, announced engines."""

from __future__ import annotations

import http.client
import json
import subprocess
import urllib.parse
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stub_engine import StubEngine

from moonpool import _native, config
from moonpool.conductor.hashes import HashRules, block_hashes, root_hash
from moonpool.identity import EngineDescription, GroupDescription, encode_description
from moonpool.testing.cluster import Cluster, ServerProcess, wait_until

BLOCK = 16
RULES = HashRules(algorithm="sha256_cbor", seed="0", block_size_tokens=BLOCK)
PROMPT = list(range(100, 100 + 4 * BLOCK))
NAMESPACE = 0x1234_5678_9ABC_DEF0
SETTINGS = {"conductor.http_port": 0, "conductor.announced_interval_ms": 100, "conductor.stream_ms": 2_000}


@pytest.fixture
def cluster(folder: Path) -> Iterator[Cluster]:
    with Cluster(folder, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def conductor(cluster: Cluster) -> Iterator[ServerProcess]:
    process = ServerProcess("conductor", cluster.folder, cluster.flags)
    process.start()
    yield process
    process.kill()


class Api:
    """The conductor's HTTP API, with the token, over one connection that is kept."""

    def __init__(self, process: ServerProcess, cluster: Cluster) -> None:
        place = urllib.parse.urlsplit(process.announcement.http)
        self.connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=20)
        secret = config.load_secret(cluster.config.runtime_folder, cluster.config.secret_file)
        self.headers = {"Authorization": f"Bearer {config.http_token(secret)}"}

    def raw(self, method: str, path: str, content: bytes = b"", *, token: bool = True) -> tuple[int, bytes]:
        self.connection.request(method, path, content, self.headers if token else {})
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def post(self, path: str, **document: Any) -> dict[str, Any]:
        status, text = self.raw("POST", path, json.dumps(document).encode())
        assert status == 200, text
        return dict(json.loads(text))

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.raw("GET", "/status")[1]))


@pytest.fixture
def api(conductor: ServerProcess, cluster: Cluster) -> Iterator[Api]:
    made = Api(conductor, cluster)
    yield made
    made.connection.close()


def worker(api: Api, name: str) -> dict[str, Any]:
    return next((each for each in api.status()["workers"] if each["instance_id"] == name), {})


def describe(engine: StubEngine, *, node_incarnation: int = 0, **changes: Any) -> EngineDescription:
    """What a connector in an engine says of it."""
    return msgspec.structs.replace(
        EngineDescription(
            engine_id="A", model="m", namespace_id=f"{NAMESPACE:016x}", hash_algorithm="sha256_cbor",
            hash_root=root_hash("sha256_cbor", "0").hex(), hash_extra_keys="tagged",
            hash_sample=block_hashes(RULES, range(1, BLOCK + 1))[0].hex(), block_size_tokens=BLOCK,
            kv_groups=[GroupDescription(kv_group=0, kind="full_attention")], load_failure_policy="recompute",
            event_endpoint=engine.endpoint, event_replay_endpoint=engine.replay_endpoint, event_topic="kv",
            node_incarnation=node_incarnation,
        ),
        **changes,
    )  # fmt: skip


@pytest.fixture
def connector(cluster: Cluster) -> Iterator[_native.DirectoryClient]:
    client = _native.DirectoryClient(cluster.config.directory.socket_path, secret=cluster.secret, name="A")
    yield client
    client.close()


def test_the_whole_api_over_one_connection(api: Api) -> None:
    with StubEngine(RULES) as engine:
        engine.store(PROMPT)
        profile = {"strategy": "vllm_v1", "algorithm": "sha256_cbor", "python_hash_seed": "0"}
        registered = api.post(
            "/register", instance_id="A", endpoint=engine.endpoint, replay_endpoint=engine.replay_endpoint, type="vLLM",
            modelname="m", block_size=BLOCK, dp_rank=0, hash_profile=profile,
        )  # fmt: skip
        assert registered == {"status": "registered successfully", "instance_id": "A"}
        wait_until(lambda: worker(api, "A")["state"] == "ok", "the worker to be ok")
        assert api.post("/query", model="m", token_ids=PROMPT)["instances"]["A"]["gpu"] == 4 * BLOCK
        hashes = engine.hashes(PROMPT)
        signed = [number - 2**64 if number >= 2**63 else number for number in hashes]
        assert api.post("/query_by_hash", model="m", seq_hashes=signed)["default"]["A"]["GPU"] == 4 * BLOCK
        scored = api.post("/score", model="m", block_hashes=hashes, candidates=["A", "nobody"])
        assert (scored["workers"][0]["cached_tokens"], scored["unknown"]) == (4 * BLOCK - 1, ["nobody"])
        assert json.loads(api.raw("GET", "/services")[1])["services"][0]["InstanceID"] == "A"
        view = json.loads(api.raw("GET", "/global_view")[1])
        assert (view["context_count"], view["contexts"][0]["prefix_count"]) == (1, 4)
        assert api.raw("GET", "/query")[0] == 405
        assert api.raw("POST", "/unregister", b'{"instance_id":"B"}')[0] == 404
        assert api.post("/unregister", instance_id="A")["removed_instances"] == ["A|default|0"]


def test_nothing_is_answered_without_the_secret_and_nothing_too_large(api: Api) -> None:
    for method, path in (("POST", "/query"), ("POST", "/register"), ("GET", "/services"), ("GET", "/status")):
        assert api.raw(method, path, token=False)[0] == 401
    assert api.raw("GET", "/healthz", token=False) == (200, b'{"state": "ready"}')
    status, text = api.raw("POST", "/query", b'{"token_ids": [' + b"1," * 9_000_000 + b"1]}")
    assert (status, b"http_body_bytes" in text) == (413, True)


def test_an_engine_that_announces_itself_is_listened_to_until_it_leaves(
    api: Api, connector: _native.DirectoryClient
) -> None:
    with StubEngine(RULES) as engine:
        engine.store(PROMPT)
        assert connector.connect(2000)[0] == 0
        connector.describe(encode_description(describe(engine)))
        wait_until(lambda: worker(api, "A").get("state") == "ok", "the engine to be registered and ok", timeout_s=20)
        assert worker(api, "A")["origin"] == "announced"
        assert api.post("/query", model="m", token_ids=PROMPT)["instances"]["A"]["gpu"] == 4 * BLOCK
        connector.close()
        wait_until(lambda: not api.status()["workers"], "the engine to be forgotten", timeout_s=20)


def test_what_the_node_on_the_engine_s_host_holds_counts_as_its_memory(
    api: Api, cluster: Cluster, connector: _native.DirectoryClient
) -> None:
    hashes = block_hashes(RULES, PROMPT)
    numbers = array("Q", [int.from_bytes(digest[-8:], "big") for digest in hashes])
    node = _native.NodeClient(cluster.socket_path, secret=cluster.secret, name="saver")
    with StubEngine(RULES) as engine:
        assert node.connect(2000)[0] == 0
        buffers = [bytearray(1000) for _ in hashes]
        addresses = array("Q", [_native.address_of(buffer)[0] for buffer in buffers])
        tags = _native.Tags(NAMESPACE, numbers, array("Q", [0, *numbers[:-1]]))
        outcome = node.put([b"key %d" % index for index in range(4)], addresses, array("Q", [1000] * 4), tags=tags)
        assert list(outcome.reasons) == [0] * 4
        assert connector.connect(2000)[0] == 0
        incarnation = cluster.node.announcement.incarnation
        connector.describe(encode_description(describe(engine, node_incarnation=incarnation)))
        engine.store(PROMPT[:BLOCK])
        wait_until(lambda: worker(api, "A").get("state") == "ok", "the engine to be registered and ok", timeout_s=20)

        def both() -> bool:
            match = api.post("/query", model="m", token_ids=PROMPT)["instances"]["A"]
            return (match["gpu"], match["cpu"], match["longest_matched"]) == (BLOCK, 4 * BLOCK, 4 * BLOCK)

        wait_until(both, "the node's blocks to be in the answer")
        best = api.post("/score", model="m", token_ids=[*PROMPT, 1])["workers"][0]
        assert best["hit"] == {"engine": BLOCK, "dram": 3 * BLOCK, "disk": 0, "remote": 0}
        # The same blocks, seen from an engine on another host, are to be fetched.
        connector.describe(encode_description(describe(engine, node_incarnation=5)))

        def fetched() -> bool:
            scored = api.post("/score", model="m", token_ids=[*PROMPT, 1])["workers"][0]
            return bool(scored["hit"]["remote"] == 3 * BLOCK and "fetched from node-under-test" in scored["reason"])

        wait_until(fetched, "the blocks to be fetched from the node", timeout_s=20)
    node.close()


def test_an_engine_whose_own_hash_is_another_is_degraded_before_any_event(
    api: Api, connector: _native.DirectoryClient
) -> None:
    with StubEngine(RULES) as engine:
        assert connector.connect(2000)[0] == 0
        connector.describe(encode_description(describe(engine, hash_sample="00" * 32)))
        wait_until(lambda: worker(api, "A").get("state") == "degraded", "the engine to be degraded", timeout_s=20)
        assert worker(api, "A")["reason"].startswith("hash: the engine computes 0000")


def test_doctor_and_metrics_tell_of_a_degraded_worker_and_of_one_that_publishes_nothing(
    api: Api, cluster: Cluster, connector: _native.DirectoryClient,
    moonpool: Callable[..., subprocess.CompletedProcess[bytes]],
) -> None:  # fmt: skip
    with StubEngine(RULES) as engine:
        assert connector.connect(2000)[0] == 0
        connector.describe(encode_description(describe(engine, event_endpoint="")))
        api.post("/register", instance_id="B", endpoint=engine.endpoint, modelname="m", block_size=32)
        engine.store(PROMPT)

        def told() -> bool:
            engine.store(PROMPT)
            state = worker(api, "B").get("state")
            return state == "degraded" and "A" in api.status()["not_announced"]

        wait_until(told, "both to be told", timeout_s=20)
        metrics = api.raw("GET", "/metrics")[1].decode()
        assert 'moonpool_conductor_worker_degraded_count{model="m",rank="0",worker="B"} 1.0' in metrics
        found = json.loads(moonpool("doctor", "--json", *cluster.arguments()).stdout)["findings"]
        kinds = {finding["kind"]: finding for finding in found}
        assert kinds["worker_degraded"]["subject"] == "worker B"
        assert "block size" in kinds["worker_degraded"]["what"]
        assert kinds["not_announced"]["subject"] == "engine A"


def test_workers_come_from_the_command_line_and_a_file_and_a_wrong_one_is_named(
    cluster: Cluster, tmp_path: Path, moonpool: Callable[..., subprocess.CompletedProcess[bytes]]
) -> None:
    file = tmp_path / "workers.json"
    entry = {"endpoint": "tcp://127.0.0.1:5558", "type": "vLLM", "modelname": "m", "block_size": 16, "dp_rank": 0}
    file.write_text(json.dumps({"workers": [{"instance_id": "B", **entry}]}))
    process = ServerProcess("conductor", cluster.folder, [*cluster.flags, f"conductor.workers_file={file}"])
    process.start()
    made = Api(process, cluster)
    assert [each["instance_id"] for each in made.status()["workers"]] == ["B"]
    made.connection.close()
    assert process.terminate() == 0
    wrong = moonpool("conductor", "--worker", "A=tcp://*:1,model=m,block_size=16", *cluster.arguments())
    assert wrong.returncode == 2
    assert b"wildcard" in wrong.stderr
    file.write_text(json.dumps({"kvevent_instance": {"A": {**entry, "blocksize": 7}}}))
    wrong = moonpool("conductor", "--workers-file", str(file), *cluster.arguments())
    assert wrong.returncode == 2
    assert b"unknown field blocksize" in wrong.stderr
