"""The cluster secret: one file, readable by its owner only. What everybody proves to know before a word is said."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from moonpool.errors import ConfigError

SECRET_BYTES_MIN = 16
SECRET_BYTES_MAX = 4096
_SECRET_BYTES_MADE = 32
_HTTP_TOKEN_PURPOSE = b"moonpool http bearer token, version 1"


def load_or_create_secret(runtime_folder: str | Path, secret_file: str | Path = "") -> bytes:
    """The content of the secret, made now if this is the first process in the runtime folder.

    Several processes may come first at once: all get the same secret. A `secret_file` that is named explicitly is
    never made. ConfigError `secret_missing`, or `secret_rights` when others could read it.
    """
    if secret_file:
        return load_secret(runtime_folder, secret_file)
    folder = Path(runtime_folder)
    prepare_runtime_folder(folder)
    path = folder / "secret"
    if not path.exists():
        _create(path)
    return load_secret(folder)


def load_secret(runtime_folder: str | Path, secret_file: str | Path = "") -> bytes:
    """The content of the secret; never makes one. ConfigError `secret_missing` or `secret_rights`."""
    path = Path(secret_file) if secret_file else Path(runtime_folder) / "secret"
    try:
        # A link in the runtime folder is not ours; a named file may be one (Kubernetes mounts secrets so).
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if secret_file else os.O_NOFOLLOW))
    except OSError as error:
        raise ConfigError(
            f"no secret at {path} ({error.strerror}): start `moonpool up` (it makes one), or name the cluster's "
            "with secret_file",
            kind="secret_missing",
        ) from error
    with os.fdopen(descriptor, "rb") as file:
        _check_rights(path, os.fstat(descriptor), group_may_read=bool(secret_file))
        content = file.read(SECRET_BYTES_MAX + 1)
    if not SECRET_BYTES_MIN <= len(content) <= SECRET_BYTES_MAX:
        raise ConfigError(
            f"secret {path} has {len(content)} bytes, {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} are accepted: "
            "make a new one with `head -c 32 /dev/urandom`",
            kind="bad_file",
        )
    return content


def prepare_runtime_folder(folder: Path) -> None:
    """Makes the runtime folder with mode 0700, or checks that it is ours alone. ConfigError `secret_rights`, or
    `start_failed` where no folder can be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise _unusable(folder, error) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise ConfigError(
            f"runtime folder {folder} is no folder of user {os.geteuid()}: remove it, or set runtime_folder",
            kind="secret_rights",
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigError(
            f"runtime folder {folder} is open to other users (mode {stat.S_IMODE(found.st_mode):04o}): "
            f"run `chmod 700 {folder}`",
            kind="secret_rights",
        )


def secret_key(secret: bytes) -> bytes:
    """The 16-byte key for handshakes and digests: the first half of the secret's SHA-256."""
    return hashlib.sha256(secret).digest()[:16]


def http_token(secret: bytes) -> str:
    """The bearer token of /status and /metrics: derived, so that a leaked token does not give the secret away."""
    return hmac.new(secret, _HTTP_TOKEN_PURPOSE, hashlib.sha256).hexdigest()


def _create(path: Path) -> None:
    """Writes a complete file beside and links it into place: others see all of it or nothing, the first wins."""
    temporary = path.with_name(f".secret.{os.getpid()}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(path.parent, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_SECRET_BYTES_MADE))
            file.flush()
            os.fsync(descriptor)
        os.link(temporary, path)
    except FileExistsError:  # another process was first: its secret holds
        pass
    finally:
        temporary.unlink()


def _unusable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"cannot use {folder} as runtime folder ({error.strerror}): set runtime_folder to a folder that you may write",
        kind="start_failed",
    )


def _check_rights(path: Path, found: os.stat_result, *, group_may_read: bool) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"secret {path} is not a plain file: remove it, or set secret_file", kind="secret_rights")
    if found.st_uid not in (os.geteuid(), 0):
        raise ConfigError(
            f"secret {path} belongs to user {found.st_uid}, not to you ({os.geteuid()}): use a folder of your own",
            kind="secret_rights",
        )
    if mode & (0o037 if group_may_read else 0o077):
        raise ConfigError(
            f"secret {path} can be read or changed by other users (mode {mode:04o}): run `chmod 600 {path}`; "
            "if they may have read it, delete it and restart every process",
            kind="secret_rights",
        )
