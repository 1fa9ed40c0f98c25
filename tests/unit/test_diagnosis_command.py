"""`moonpool doctor` over evidence that is given."""

import json

import pytest
from click.testing import CliRunner, Result

from moonpool.cli.doctor import doctor
from moonpool.config import MachineMemory
from moonpool.identity import EngineDescription
from moonpool.pool.diagnosis import Evidence, Peer

ENGINE = EngineDescription(
    engine_id="A", namespace_id="0a", load_failure_policy="recompute", identity={"weights": '"w"', "salt": '""'}
)
HEALTHY = Evidence(
    node=Peer(socket_path="/x/node.sock", status={"state": "ready", "incarnation": 1}),
    directory=Peer(socket_path="/x/d.sock", status={"holders": [{"incarnation": 1, "last_heard_ms": 5}]}),
    version="0.1.0",
    memory=MachineMemory(total_bytes=2**34, available_bytes=2**33),
    engines=(ENGINE,),
)
SICK = Evidence(
    node=Peer(socket_path="/x/node.sock"),
    directory=HEALTHY.directory,
    version="0.1.0",
    memory=HEALTHY.memory,
    engines=(
        ENGINE,
        EngineDescription(
            engine_id="B",
            namespace_id="0b",
            load_failure_policy="recompute",
            identity={**ENGINE.identity, "hash_seed": "1"},
        ),
    ),
)


def run(monkeypatch: pytest.MonkeyPatch, evidence: Evidence, *arguments: str) -> Result:
    monkeypatch.setattr("moonpool.pool.evidence.gather", lambda _settings, *, timeout_ms: evidence)
    return CliRunner().invoke(doctor, arguments, standalone_mode=False)


def test_healthy_host_is_said_to_be_and_exits_0(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, HEALTHY)
    assert result.return_value == 0
    assert "node up, directory up, 1 engines (A)" in result.output
    assert "nothing needs to be done" in result.output


def test_problems_are_printed_with_details_and_cure_and_exit_1(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, SICK)
    assert result.return_value == 1
    assert "no node is running" in result.output
    assert "→ start it with `moonpool up`" in result.output
    assert "hash_seed: absent | 1" in result.output
    assert "nothing needs to be done" not in result.output


def test_json_has_every_finding_and_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, SICK, "--json")
    document = json.loads(result.output)
    assert result.return_value == 1
    assert document["healthy"] is False
    assert [finding["kind"] for finding in document["findings"]] == ["no_node", "never_match"]
    assert [engine["engine_id"] for engine in document["seen"]["engines"]] == ["A", "B"]
