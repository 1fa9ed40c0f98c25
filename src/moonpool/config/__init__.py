"""Settings of every process: one frozen tree, and the only room that reads the environment.

`load()` merges defaults < TOML file < environment < flags; see `moonpool.config.settings` for the tree.
"""

from moonpool.config.addresses import UNIX_PREFIX, HostPort, is_loopback, split_host_port
from moonpool.config.load import Loaded, Setting, load, load_with_origins
from moonpool.config.memory import MachineMemory, choose_arena_bytes, choose_segment_bytes, read_machine_memory
from moonpool.config.secret import (
    http_token,
    load_or_create_secret,
    load_secret,
    prepare_runtime_folder,
    secret_key,
)
from moonpool.config.settings import (
    ClientSettings,
    ConductorSettings,
    Config,
    ConnectorSettings,
    DirectoryLimits,
    DirectorySettings,
    NodeLimits,
    NodeSettings,
    TelemetrySettings,
    TransferSettings,
    native_limits,
)

__all__ = [
    "UNIX_PREFIX",
    "ClientSettings",
    "ConductorSettings",
    "Config",
    "ConnectorSettings",
    "DirectoryLimits",
    "DirectorySettings",
    "HostPort",
    "Loaded",
    "MachineMemory",
    "NodeLimits",
    "NodeSettings",
    "Setting",
    "TelemetrySettings",
    "TransferSettings",
    "choose_arena_bytes",
    "choose_segment_bytes",
    "http_token",
    "is_loopback",
    "load",
    "load_or_create_secret",
    "load_secret",
    "load_with_origins",
    "native_limits",
    "prepare_runtime_folder",
    "read_machine_memory",
    "secret_key",
    "split_host_port",
]
