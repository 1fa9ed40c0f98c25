"""`moonpool vllm-args`: the flags that put a vLLM engine on the pool."""

from __future__ import annotations

import json
import shlex
from typing import Any

import click
import msgspec

CONNECTOR = "MoonpoolConnector"
MODULE_PATH = "moonpool.connectors.vllm"
HASH_ALGORITHM = "sha256_cbor"
HASH_SEED = "0"
REPLAY_PORT_OFFSET = 1_000


class Advice(msgspec.Struct, frozen=True):
    """What to start vLLM with: flags in order, environment, and remarks for people."""

    flags: tuple[tuple[str, str], ...]
    environment: dict[str, str]
    remarks: tuple[str, ...]


class Events(msgspec.Struct, frozen=True):
    """Where the engine is to publish KV events, for a conductor."""

    endpoint: str
    replay_endpoint: str


def events_in(runtime_folder: str, engine_id: str) -> Events:
    """Unix sockets in the runtime folder: nobody else reaches them."""
    name = engine_id or "engine"
    return Events(f"ipc://{runtime_folder}/events-{name}.sock", f"ipc://{runtime_folder}/replay-{name}.sock")


def events_at(port: int) -> Events:
    """Ports that other hosts reach; ranks of data parallelism take the following ones."""
    return Events(f"tcp://*:{port}", f"tcp://*:{port + REPLAY_PORT_OFFSET}")


def advise(
    *, runtime_folder: str = "", engine_id: str = "", block_size: int = 0, events: Events | None = None
) -> Advice:
    """The flags of every engine that shares. Empty and 0: leave it to the defaults."""
    extra = {
        f"moonpool.{name}": value
        for name, value in (("runtime_folder", runtime_folder), ("engine_id", engine_id))
        if value
    }
    transfer: dict[str, Any] = {
        "kv_connector": CONNECTOR,
        "kv_role": "kv_both",
        "kv_connector_module_path": MODULE_PATH,
        "kv_load_failure_policy": "recompute",
    }
    if extra:
        transfer["kv_connector_extra_config"] = extra
    flags = [
        ("--kv-transfer-config", json.dumps(transfer)),
        ("--prefix-caching-hash-algo", HASH_ALGORITHM),
    ]
    if events is not None:
        publishing = {"enable_kv_cache_events": True, "publisher": "zmq", **msgspec.structs.asdict(events)}
        flags.append(("--kv-events-config", json.dumps(publishing)))
    if block_size:
        flags.append(("--block-size", str(block_size)))
    remarks = (
        "recompute: a lost block is computed again; else it would fail the request, so no hits are offered then",
        f"{HASH_ALGORITHM} and one PYTHONHASHSEED: engines with different ones hash differently and share nothing",
        "every engine needs the same --block-size (on CPU a multiple of 32), dtype and tensor parallel size",
    )
    return Advice(tuple(flags), {"PYTHONHASHSEED": HASH_SEED}, remarks)


def as_shell(advice: Advice) -> str:
    """Flags to paste after a command, one a line; what is no flag stands in comments."""
    environment = " ".join(f"{name}={value}" for name, value in advice.environment.items())
    comments = [f"# environment: {environment}", *(f"# {remark}" for remark in advice.remarks)]
    flags = [f"{name} {shlex.quote(value)}" for name, value in advice.flags]
    return "\n".join([*comments, " \\\n".join(flags)])


def as_json(advice: Advice) -> str:
    """One JSON object: flags as a list of arguments, environment, remarks."""
    arguments = [part for flag in advice.flags for part in flag]
    document = {"flags": arguments, "environment": advice.environment, "remarks": list(advice.remarks)}
    return json.dumps(document, indent=2)


@click.command("vllm-args", short_help="Print the flags that make vLLM share its KV cache.")
@click.option("--runtime-folder", default="", help="The stack's runtime folder, where it is not the default.")
@click.option("--engine-id", default="", help="Name of this engine in /status, top and why.")
@click.option("--events", is_flag=True, help="Publish KV events for a conductor on this host.")
@click.option(
    "--events-port",
    default=0,
    type=click.IntRange(0, 64_000),
    help="Publish them on this TCP port, for other hosts too.",
)
@click.option("--block-size", default=0, type=click.IntRange(0, 65_536), help="Tokens of a block; 0: vLLM's choice.")
@click.option("--json", "json_wanted", is_flag=True, help="One JSON object instead of shell text.")
def vllm_args(
    *, runtime_folder: str, engine_id: str, events: bool, events_port: int, block_size: int, json_wanted: bool
) -> None:
    """Print what to start vLLM with so that it shares its KV cache; paste it after the model's name."""
    published = None
    if events_port:
        published = events_at(events_port)
    elif events:
        from moonpool import config

        overrides = {"runtime_folder": runtime_folder} if runtime_folder else {}
        published = events_in(config.load(overrides=overrides).runtime_folder, engine_id)
    advice = advise(runtime_folder=runtime_folder, engine_id=engine_id, block_size=block_size, events=published)
    click.echo(as_json(advice) if json_wanted else as_shell(advice))
