"""What `moonpool vllm-args` prints can be pasted."""

from __future__ import annotations

import json
import shlex

from click.testing import CliRunner

from moonpool.cli.vllm_args import vllm_args


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(vllm_args, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def flags_of(text: str) -> list[str]:
    return shlex.split(text.replace("\\\n", " "), comments=True)


def test_pasted_flags_name_the_connector_and_recompute() -> None:
    flags = flags_of(printed())
    transfer = json.loads(flags[flags.index("--kv-transfer-config") + 1])
    assert transfer == {
        "kv_connector": "MoonpoolConnector",
        "kv_role": "kv_both",
        "kv_connector_module_path": "moonpool.connectors.vllm",
        "kv_load_failure_policy": "recompute",
    }
    assert flags[flags.index("--prefix-caching-hash-algo") + 1] == "sha256_cbor"
    assert len(flags) == 4, "nothing but flags and values: it is pasted into a command line"


def test_a_stack_elsewhere_and_a_name_go_into_the_extra_config() -> None:
    flags = flags_of(printed("--runtime-folder", "/tmp/a b", "--engine-id", "A", "--block-size", "64"))
    transfer = json.loads(flags[flags.index("--kv-transfer-config") + 1])
    assert transfer["kv_connector_extra_config"] == {"moonpool.runtime_folder": "/tmp/a b", "moonpool.engine_id": "A"}
    assert flags[flags.index("--block-size") + 1] == "64"


def test_json_gives_the_same_flags_and_the_environment() -> None:
    document = json.loads(printed("--json"))
    assert document["flags"] == flags_of(printed())
    assert document["environment"] == {"PYTHONHASHSEED": "0"}


def test_kv_events_go_to_the_runtime_folder_or_to_a_port() -> None:
    result = CliRunner().invoke(
        vllm_args, ["--json", "--events", "--runtime-folder", "/run/mp", "--engine-id", "A"], catch_exceptions=False
    )
    flags = json.loads(result.output)["flags"]
    published = json.loads(flags[flags.index("--kv-events-config") + 1])
    assert published == {
        "enable_kv_cache_events": True, "publisher": "zmq",
        "endpoint": "ipc:///run/mp/events-A.sock", "replay_endpoint": "ipc:///run/mp/replay-A.sock",
    }  # fmt: skip
    result = CliRunner().invoke(vllm_args, ["--json", "--events-port", "5557"], catch_exceptions=False)
    flags = json.loads(result.output)["flags"]
    published = json.loads(flags[flags.index("--kv-events-config") + 1])
    assert (published["endpoint"], published["replay_endpoint"]) == ("tcp://*:5557", "tcp://*:6557")
