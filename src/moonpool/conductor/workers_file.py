"""Workers named in a file or on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from moonpool.conductor import bodies
from moonpool.conductor.registration import Registration
from moonpool.errors import BadRequest, ConfigError

FILE_BYTES_MAX = 64 * 1024 * 1024


def read_workers(path: str) -> list[Registration]:
    """``{"workers": [body of /register, …]}``, or Mooncake's ``{"kvevent_instance": {name: {…}}}``.

    ConfigError names the entry that is wrong.
    """
    try:
        content = Path(path).read_bytes()
        document = msgspec.json.decode(content)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"cannot read workers file {path}: {error}", kind="bad_file") from error
    if not isinstance(document, dict):
        raise ConfigError(f"workers file {path}: a JSON object with `workers` is expected", kind="bad_file")
    entries = list(document.get("workers") or ())
    for name, entry in (document.get("kvevent_instance") or {}).items():
        entries.append({"instance_id": name, **entry})
    return [_registration(entry, f"workers file {path}, entry {index}") for index, entry in enumerate(entries)]


def parse_worker(text: str) -> Registration:
    """``NAME=ENDPOINT,model=M,block_size=16[,…]``: the fields of /register, those of hash_profile among them."""
    name, _, rest = text.partition("=")
    endpoint, *fields = rest.split(",")
    entry: dict[str, Any] = {"instance_id": name, "endpoint": endpoint, "hash_profile": {}}
    for field in fields:
        key, _, value = field.partition("=")
        if key in ("algorithm", "python_hash_seed", "strategy", "extra_keys"):
            entry["hash_profile"][key] = value
        else:
            entry["modelname" if key == "model" else key] = int(value) if key in ("block_size", "dp_rank") else value
    registration = _registration(entry, f"--worker {text}")
    return msgspec.structs.replace(registration, origin="command line")


def _registration(entry: object, place: str) -> Registration:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{place}: an object is expected", kind="bad_value")
    try:
        return bodies.registration(entry, origin="file")
    except BadRequest as error:
        raise ConfigError(f"{place}: {error}", kind="bad_value") from error
