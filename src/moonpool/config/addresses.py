"""Addresses as people write them: what can be reached from where. Asks nobody."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from moonpool.errors import ConfigError

UNIX_PREFIX = "unix:"
_ANY = frozenset({"0.0.0.0", "::"})


class HostPort(NamedTuple):
    """A host (a name or a number, without brackets) and a port."""

    host: str
    port: int


def split_host_port(text: str) -> HostPort | None:
    """``host:port`` or ``[v6]:port``; None for what is neither."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        return None
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif any(letter in host for letter in ":[]/"):
        return None
    return HostPort(host, int(port)) if host else None


def require_host_port(text: str, what: str) -> HostPort:
    """The same; ConfigError `bad_value` naming what it is for."""
    found = split_host_port(text)
    if found is None:
        raise ConfigError(f"{what} = {text!r} is no host:port, such as 10.0.0.5:7801 or [::1]:7801", kind="bad_value")
    return found


def is_any(host: str) -> bool:
    """Whether a server that listens there takes every address of the machine, so that others cannot be told it."""
    return host in _ANY


def is_loopback(host: str) -> bool:
    """Whether only processes of this host can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name: it may resolve to anything
        return False
