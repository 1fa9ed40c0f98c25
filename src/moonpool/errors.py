"""Every error that Moonpool raises.

::

    MoonpoolError
    ├── UsageError             the call is wrong: change the calling code      (also a ValueError)
    │   ├── ClosedError        used after close(), or before connect()
    │   └── BadRequest         the body of a request over HTTP is wrong: answered with a status of HTTP
    ├── ConfigError            a setting is wrong or unknown: change the setting
    ├── IdentityError          what the KV bytes depend on is incomplete or unsafe to share: do not share
    ├── AccessDenied           the peer refused this principal: get the right secret or tenant
    ├── PeerUnavailable        nobody answered in time: go on without, try again later (also a ConnectionError)
    └── ProtocolError          the peer said something malformed: report it
        └── VersionMismatch    the two releases share no wire version: upgrade one

A class is there only where a handler would act differently; finer distinctions are in ``kind``, an append-only
string that programs may compare. Nothing of this is raised on the way of a read, a put or a look-up once
connected: there a fault is a value (see `moonpool.types`).
"""

from __future__ import annotations

from typing import ClassVar


class MoonpoolError(Exception):
    """Root of the tree. The message says what failed, with the key or the peer, and what to do."""

    kind_default: ClassVar[str] = "internal"

    def __init__(self, message: str, *, kind: str | None = None) -> None:
        super().__init__(message)
        self.kind = self.kind_default if kind is None else kind
        if self.kind not in KINDS:
            raise AssertionError(f"unknown error kind {self.kind!r}: append it to moonpool.errors.KINDS")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args[0], self.kind)


class UsageError(MoonpoolError, ValueError):
    """The call is wrong, and would be wrong again. Raised before anything is allocated or touched."""

    kind_default = "usage"


class ClosedError(UsageError):
    """The object is closed, or was never connected."""

    kind_default = "closed"


class BadRequest(UsageError):
    """The body of a request over HTTP is wrong. ``reason`` is the API's own word for how; ``status`` that of HTTP;
    ``field`` what it is about, with an index in a list.
    """

    kind_default = "bad_request"

    def __init__(
        self,
        message: str,
        reason: str = "invalid",
        *,
        field: str | tuple[str, int] = "",
        status: int = 400,
        kind: str | None = None,
    ) -> None:
        super().__init__(message, kind=kind)
        self.reason = reason
        self.field = field
        self.status = status


class ConfigError(MoonpoolError):
    """A setting is wrong. The message names its path, where it came from and what would be accepted."""

    kind_default = "config"


class IdentityError(MoonpoolError):
    """The identity is incomplete, or bytes of this kind must not be shared. The message names the field."""

    kind_default = "identity"


class AccessDenied(MoonpoolError):
    """The peer refused the secret, the tenant or the verb."""

    kind_default = "access_denied"


class PeerUnavailable(MoonpoolError, ConnectionError):
    """The peer could not be reached, or did not answer, within the given time."""

    kind_default = "unavailable"


class ProtocolError(MoonpoolError):
    """The peer sent bytes that are no message of this protocol."""

    kind_default = "protocol"


class VersionMismatch(ProtocolError):
    """No wire version is spoken by both sides. The message names both ranges."""

    kind_default = "version_mismatch"


# Append only: programs compare these.
KINDS: frozenset[str] = frozenset(
    {
        "internal",
        "usage",
        "closed",
        "config",
        "unknown_setting",
        "bad_value",
        "bad_file",
        "secret_rights",
        "secret_missing",
        "insecure_listen",
        "identity",
        "incomplete_identity",
        "dummy_weights",
        "bad_weights",
        "access_denied",
        "unavailable",
        "timed_out",
        "protocol",
        "version_mismatch",
        "key_too_long",
        "value_too_large",
        "bad_address",
        "start_failed",
        "stop_failed",
        "bad_request",
    }
)


def _rebuild(kind_of_error: type[MoonpoolError], message: str, kind: str) -> MoonpoolError:
    return kind_of_error(message, kind=kind)
