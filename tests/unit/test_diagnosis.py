"""The doctor's findings over plain evidence: each fault is found, named and cured, and a healthy host is healthy."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moonpool.config import MachineMemory
from moonpool.identity import (
    EngineCounters,
    EngineDescription,
    GroupDescription,
    RequestOutcome,
    encode_description,
)
from moonpool.pool.diagnosis import Evidence, Peer, Process, diagnose
from moonpool.pool.diagnosis_engines import FIELD_ADVICE
from moonpool.pool.diagnosis_host import Limits
from moonpool.pool.evidence import described_engines, engine_processes, read_limits
from moonpool.pool.finding import Finding, Severity
from moonpool.types import Reason

GIB = 2**30
NOW = 1_800_000_000.0
FIELDS = {
    "weights": '"full:00"',
    "block_size_tokens": "32",
    "hash_algorithm": '"sha256_cbor"',
    "hash_seed": '"5e"',
    "salt": '""',
    "kv_dtype": '"float32"',
    "kv_groups.0.block_bytes": "8192",
}
NODE: dict[str, Any] = {
    "incarnation": 11,
    "state": "ready",
    "version": "0.1.0",
    "table": {"object_count": 100, "capacity_bytes": 1000, "damaged_total": 0, "quarantined_bytes": 0},
    "directories": [{"path": "/run/directory.sock", "state": "connected"}],
    "counters": {"refused_secret": 0},
}
DIRECTORY: dict[str, Any] = {
    "state": "ready",
    "version": "0.1.0",
    "index": {"refused_full_total": 0},
    "holders": [{"name": "node", "incarnation": 11, "last_heard_ms": 40}],
}


def engine(engine_id: str = "A", **changes: Any) -> EngineDescription:
    good: dict[str, Any] = {
        "engine_id": engine_id,
        "model": "smol",
        "moonpool_version": "0.1.0",
        "namespace_id": "0a",
        "identity": FIELDS,
        "hash_algorithm": "sha256_cbor",
        "block_size_tokens": 32,
        "load_failure_policy": "recompute",
        "described_at": NOW - 1,
        "counters": EngineCounters(
            lookups=50, lookup_hits=20, applied_tokens=640, blocks_saved=30, requests_finished=50
        ),
    }
    return EngineDescription(**{**good, **changes})


def peer(status: dict[str, Any] | None, **changes: Any) -> Peer:
    return Peer(**{"socket_path": "/run/x.sock", "socket_exists": status is not None, "status": status, **changes})


def evidence(**changes: Any) -> Evidence:
    healthy: dict[str, Any] = {
        "node": peer(NODE),
        "directory": peer(DIRECTORY),
        "version": "0.1.0",
        "memory": MachineMemory(total_bytes=16 * GIB, available_bytes=8 * GIB),
        "segment_bytes": GIB,
        "connection_count": 1024,
        "engines": (engine("A"), engine("B")),
        "now": NOW,
    }
    return Evidence(**{**healthy, **changes})


def merged(document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**document, **changes}


def only(found: Evidence) -> Finding:
    findings = diagnose(found).findings
    assert len(findings) == 1, findings
    return findings[0]


def test_healthy_host_has_no_finding() -> None:
    verdict = diagnose(evidence())
    assert verdict.findings == ()
    assert verdict.healthy


PROBLEMS: list[tuple[str, dict[str, Any], str, str]] = [
    ("no_node", {"node": peer(None)}, "no node is running", "moonpool up"),
    ("no_node", {"node": peer(None, socket_exists=True, failure="no answer in 1000 ms")}, "1000 ms", "CONT"),
    (
        "no_node",
        {"node": peer(None, socket_exists=True, failure="Connection refused")},
        "nothing listens",
        "moonpool up",
    ),
    (
        "node_refuses",
        {"node": peer(None, socket_exists=True, reason=Reason.ACCESS_DENIED, failure="does not know the secret")},
        "does not know the secret",
        "secret_file",
    ),
    (
        "version_skew",
        {"directory": peer(None, socket_exists=True, reason=Reason.PROTOCOL, failure="speaks 3 to 4, we speak 1")},
        "speaks 3 to 4",
        "one release",
    ),
    ("no_directory", {"directory": peer(None)}, "no directory", "moonpool up"),
    ("directory_deaf", {"directory": peer(merged(DIRECTORY, holders=[]))}, "connected", "node.directories"),
    (
        "directory_deaf",
        {"directory": peer(merged(DIRECTORY, holders=[{"incarnation": 12, "last_heard_ms": 1}]))},
        "1 others",
        "node.directories",
    ),
    (
        "directory_deaf",
        {"directory": peer(merged(DIRECTORY, holders=[{"incarnation": 11, "last_heard_ms": 60_000}]))},
        "60 s",
        "node.directories",
    ),
    (
        "directory_full",
        {"directory": peer(merged(DIRECTORY, index={"refused_full_total": 1}))},
        "full",
        "directory.entry_count_max",
    ),
    ("version_skew", {"node": peer(merged(NODE, version="0.0.9"))}, "node 0.0.9", "one release"),
    ("version_skew", {"engines": (engine(moonpool_version="0.2.0"),)}, "engine A 0.2.0", "one release"),
    ("node_state", {"node": peer(merged(NODE, state="memory_refused"))}, "memory_refused", "segment_bytes"),
    ("damaged", {"node": peer(merged(NODE, table={"damaged_total": 2}))}, "2 objects", "memory"),
    (
        "secret",
        {"secret_failure": "run `chmod 600 x`", "node": peer(None), "directory": peer(None), "engines": ()},
        "chmod 600",
        "not asked",
    ),
    (
        "memory_short",
        {"memory": MachineMemory(total_bytes=16 * GIB, available_bytes=GIB // 4)},
        "256 MiB",
        "node.segment_bytes",
    ),
    ("address_space", {"limits": Limits(address_space_bytes=GIB)}, "RLIMIT_AS", "ulimit -v"),
    ("failure_policy", {"engines": (engine(load_failure_policy="fail"),)}, "fail", "recompute"),
    ("failure_policy", {"engines": (engine(load_failure_policy=""),)}, "not set", "recompute"),
    ("no_identity", {"engines": (engine(identity_error="dummy weights", namespace_id=""),)}, "dummy", "names"),
    (
        "engine_degraded",
        {"engines": (engine(reasons=["kv_group 1 is recurrent"], loads=False),)},
        "recurrent",
        "as it says",
    ),
    (
        "failure_policy",
        {"engines": (engine(load_failure_policy="fail", loads=False, reasons=["kv_load_failure_policy"]),)},
        "fail",
        "recompute",
    ),
    (
        "no_identity",
        {"engines": (engine(namespace_id="", loads=False, saves=False, reasons=["dummy weights"]),)},
        "dummy weights",
        "names",
    ),
    (
        "never_saves",
        {"engines": (engine(counters=EngineCounters(requests_finished=9, blocks_refused=4)),)},
        "4 were",
        "log",
    ),
    (
        "never_hits",
        {"engines": (engine(counters=EngineCounters(lookups=9, blocks_saved=1, misses_by_reason={"evicted": 3})),)},
        "evicted 3 (made room",
        "why",
    ),
    (
        "slow_lookups",
        {"engines": (engine(counters=EngineCounters(lookups=9, lookup_timeouts=5, blocks_saved=1)),)},
        "5 of 9",
        "lookup_budget_ms",
    ),
    ("no_connector", {"engine_processes": (Process(7, ("python", "-m", "vllm")),)}, "process 7", "vllm-args"),
]


@pytest.mark.parametrize(("kind", "changes", "says", "cure"), PROBLEMS)
def test_problem_is_found_with_what_and_what_to_do(kind: str, changes: dict[str, Any], says: str, cure: str) -> None:
    finding = only(evidence(**changes))
    assert (finding.kind, finding.severity) == (kind, Severity.PROBLEM)
    assert says in finding.what
    assert cure in finding.advice
    assert not diagnose(evidence(**changes)).healthy


REMARKS: list[tuple[str, dict[str, Any]]] = [
    ("warming", {"node": peer(merged(NODE, state="warming"))}),
    ("warming", {"directory": peer(merged(DIRECTORY, state="warming"))}),
    ("quarantine", {"node": peer(merged(NODE, table={"capacity_bytes": 100, "quarantined_bytes": 20}))}),
    ("refused_secret", {"node": peer(merged(NODE, counters={"refused_secret": 1}))}),
    (
        "no_shared_memory",
        {
            "node": peer(
                merged(NODE, connections=[{"transport": "socket", "description": encode_description(engine("A"))}])
            )
        },
    ),
    ("open_files", {"limits": Limits(open_file_count=1024)}),
    ("small_shm", {"limits": Limits(shared_memory_bytes=64 * 2**20)}),
    ("no_engine", {"engines": ()}),
    ("engine_elsewhere", {"engines": (), "engine_processes": (Process(7, ("vllm", "serve", "--x", "Moonpool")),)}),
    ("engine_degraded", {"engines": (engine(reasons=["hashes by sha256: better sha256_cbor"]),)}),
    ("never_loads", {"engines": (engine(loads=False),)}),
    ("never_saves", {"engines": (engine(saves=False),)}),
    ("engine_silent", {"engines": (engine(described_at=NOW - 100),)}),
    ("group_not_stored", {"engines": (engine(kv_groups=[GroupDescription(kv_group=1, kind="mamba", stored=False)]),)}),
    (
        "short_prompts",
        {
            "engines": (
                engine(
                    counters=EngineCounters(requests_finished=9),
                    outcomes=[RequestOutcome(request_id="1", prompt_tokens=5)],
                ),
            )
        },
    ),
    (
        "load_failures",
        {"engines": (engine(counters=EngineCounters(blocks_saved=1, applied_tokens=1, load_failures=2)),)},
    ),
]


@pytest.mark.parametrize(("kind", "changes"), REMARKS)
def test_remark_leaves_the_host_healthy(kind: str, changes: dict[str, Any]) -> None:
    finding = only(evidence(**changes))
    assert (finding.kind, finding.severity) == (kind, Severity.REMARK)
    assert finding.advice
    assert diagnose(evidence(**changes)).healthy


def test_failed_loads_are_explained_by_the_reasons_of_loads() -> None:
    counters = EngineCounters(
        blocks_saved=1, applied_tokens=1, load_failures=2, misses_by_reason={"never_stored": 9, "load_timed_out": 2}
    )
    finding = only(evidence(engines=(engine(counters=counters),)))
    assert "timed_out 2 (the peer did not answer" in finding.what
    assert "never_stored" not in finding.what


def test_segment_larger_than_what_can_be_had_is_found_before_the_node_starts() -> None:
    memory = MachineMemory(
        total_bytes=16 * GIB, available_bytes=8 * GIB, cgroup_limit_bytes=GIB, cgroup_free_bytes=GIB // 2
    )
    found = diagnose(evidence(node=peer(None), memory=memory, segment_bytes=2 * GIB)).findings
    assert [finding.kind for finding in found] == ["no_node", "memory_limit"]
    assert "cgroup" in found[1].what
    assert "512 MiB" in found[1].advice


@pytest.mark.parametrize("name", ["hash_algorithm", "hash_seed", "block_size_tokens", "kv_dtype"])
def test_engines_that_can_never_match_are_found_with_field_values_and_cure(name: str) -> None:
    other = engine("B", namespace_id="0b", identity={**FIELDS, name: '"other"'})
    finding = only(evidence(engines=(engine("A"), other)))
    assert (finding.kind, finding.severity) == ("never_match", Severity.PROBLEM)
    assert finding.subject == "engine A and engine B"
    assert name in finding.what
    assert FIELD_ADVICE[name] in finding.advice
    assert finding.details == (f'{name}: {FIELDS[name]} | "other"',)


def test_cause_stands_before_what_follows_from_it() -> None:
    identity = {**FIELDS, "block_size_tokens": "64", "kv_groups.0.block_bytes": "16384"}
    finding = only(evidence(engines=(engine("A"), engine("B", namespace_id="0b", identity=identity))))
    assert [detail.partition(":")[0] for detail in finding.details] == ["block_size_tokens", "kv_groups.0.block_bytes"]


def test_engines_with_the_same_name_and_other_weights_are_a_problem_and_other_models_are_none() -> None:
    other = {**FIELDS, "weights": '"full:01"'}
    assert only(evidence(engines=(engine("A"), engine("B", namespace_id="0b", identity=other)))).kind == "never_match"
    stranger = engine("B", namespace_id="0b", identity=other, model="another")
    assert diagnose(evidence(engines=(engine("A"), stranger))).findings == ()


@pytest.mark.parametrize("changes", [{"identity": {**FIELDS, "salt": '"x"'}}, {"tenant": "b"}])
def test_engines_kept_apart_on_purpose_are_only_remarked(changes: dict[str, Any]) -> None:
    finding = only(evidence(engines=(engine("A"), engine("B", namespace_id="0b", **changes))))
    assert (finding.kind, finding.severity) == ("apart_on_purpose", Severity.REMARK)


def test_problems_come_first_and_kinds_of_workers_are_not_judged_twice() -> None:
    found = diagnose(evidence(engines=(), node=peer(merged(NODE, state="warming")), secret_failure="x")).findings
    assert [finding.severity for finding in found] == sorted(finding.severity for finding in found)
    worker = engine("A", role="worker", load_failure_policy="", counters=EngineCounters(requests_finished=9))
    assert diagnose(evidence(engines=(engine("A"), worker))).findings == ()


@pytest.mark.parametrize("status", [{}, {"table": None}, {"connections": None, "counters": 5, "directories": None}])
def test_status_that_lacks_everything_does_not_break_the_doctor(status: dict[str, Any]) -> None:
    diagnose(evidence(node=peer(status), directory=peer(status)))


# Evidence -----------------------------------------------------------------------------------------------------


def test_engines_are_read_from_both_statuses_and_the_newest_word_counts() -> None:
    old, new = engine("A", described_at=1.0), engine("A", described_at=2.0)
    worker = engine("A", role="worker")
    node = {"connections": [{"description": encode_description(old)}, {"description": "cli"}, {"description": None}]}
    directory = {
        "connections": [{"description": msgspec.to_builtins(new)}, {"description": encode_description(worker)}]
    }
    assert described_engines([node, None, directory, {}]) == (new, worker)


def test_vllm_is_recognised_by_its_command_line(tmp_path: Path) -> None:
    commands = {
        "1": ["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "x"],
        "2": ["/usr/bin/python3", "/usr/bin/vllm", "serve", "x"],
        "3": ["vim", "vllm.py"],
        "4": [""],
        "self": ["python", "-m", "vllm.entrypoints.openai.api_server"],
    }
    for name, command in commands.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "cmdline").write_bytes("\0".join(command).encode() + b"\0")
    (tmp_path / "5").mkdir()  # it ended meanwhile
    assert [process.process_id for process in engine_processes(tmp_path)] == [1, 2]


def test_limits_of_this_machine_can_be_read() -> None:
    limits = read_limits()
    assert limits.open_file_count is None or limits.open_file_count > 0
    assert read_limits(Path("/nonexistent")).shared_memory_bytes is None


def test_evidence_can_be_written_down_for_a_report() -> None:
    assert json.loads(msgspec.json.encode(evidence()))["node"]["status"]["incarnation"] == 11
