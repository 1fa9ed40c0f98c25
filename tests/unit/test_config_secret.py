"""The secret: made once, readable by its owner only."""

import hashlib
import multiprocessing
from pathlib import Path

import pytest

from moonpool.config import http_token, load_or_create_secret, load_secret, secret_key
from moonpool.errors import ConfigError


def make(folder: str, start: object, results: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    results.put(load_or_create_secret(folder))  # type: ignore[attr-defined]


def test_first_process_makes_it_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    secret = load_or_create_secret(folder)
    assert len(secret) == 32
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "secret").stat().st_mode & 0o777 == 0o600
    assert load_or_create_secret(folder) == load_secret(folder) == secret
    assert [path.name for path in folder.iterdir()] == ["secret"]


def test_processes_that_come_at_once_get_one_secret(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, results = context.Event(), context.Queue()
    folder = str(tmp_path / "run")
    children = [context.Process(target=make, args=(folder, start, results)) for _ in range(4)]
    for child in children:
        child.start()
    start.set()
    secrets = {results.get(timeout=60) for _ in children}
    for child in children:
        child.join(timeout=60)
    assert len(secrets) == 1
    assert [path.name for path in Path(folder).iterdir()] == ["secret"]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o602, 0o601])
def test_secret_that_others_can_reach_is_refused_with_the_cure(tmp_path: Path, mode: int) -> None:
    load_or_create_secret(tmp_path / "run")
    (tmp_path / "run" / "secret").chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600") as caught:
        load_or_create_secret(tmp_path / "run")
    assert caught.value.kind == "secret_rights"


def test_open_runtime_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o755)
    with pytest.raises(ConfigError, match="chmod 700"):
        load_or_create_secret(tmp_path / "run")


def test_link_in_place_of_the_secret_or_the_folder_is_refused(tmp_path: Path) -> None:
    load_or_create_secret(tmp_path / "theirs")
    (tmp_path / "linked").symlink_to(tmp_path / "theirs")
    with pytest.raises(ConfigError, match="no folder of user"):
        load_or_create_secret(tmp_path / "linked")
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "mine" / "secret").symlink_to(tmp_path / "theirs" / "secret")
    with pytest.raises(ConfigError):
        load_or_create_secret(tmp_path / "mine")


def test_named_secret_is_never_made_and_may_be_group_readable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_or_create_secret(tmp_path / "run", tmp_path / "named")
    assert caught.value.kind == "secret_missing"
    (tmp_path / "named").write_bytes(b"x" * 16)
    (tmp_path / "named").chmod(0o440)
    assert load_or_create_secret(tmp_path / "run", tmp_path / "named") == b"x" * 16
    (tmp_path / "named").chmod(0o444)
    with pytest.raises(ConfigError, match="other users"):
        load_secret(tmp_path / "run", tmp_path / "named")


@pytest.mark.parametrize("size", [0, 15, 4097])
def test_secret_of_wrong_size_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "named").write_bytes(b"x" * size)
    (tmp_path / "named").chmod(0o600)
    with pytest.raises(ConfigError) as caught:
        load_secret(tmp_path, tmp_path / "named")
    assert caught.value.kind == "bad_file"


def test_client_does_not_make_a_secret(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="moonpool up"):
        load_secret(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_key_and_token_are_derived_and_differ(tmp_path: Path) -> None:
    secret = b"s" * 32
    assert secret_key(secret) == hashlib.sha256(secret).digest()[:16]
    assert len(bytes.fromhex(http_token(secret))) == 32
    assert secret_key(secret).hex() not in http_token(secret)
    assert http_token(secret) != http_token(b"t" * 32)


@pytest.mark.parametrize("folder", ["/proc/moonpool", "/dev/null/moonpool", "/dev/null"])
def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(folder: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot use {folder} as runtime folder") as caught:
        load_or_create_secret(folder)
    assert caught.value.kind == "start_failed"
