import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonpool.errors import UsageError
from moonpool.pool.keys import key_bytes, key_from_text, key_list, key_text


def test_text_becomes_utf8_and_bytes_stay() -> None:
    assert key_list(["ä", b"\x00\xff"]) == ["ä".encode(), b"\x00\xff"]


@pytest.mark.parametrize("key", ["", b"", 7, None, bytearray(b"a"), ["a"], "\ud800"])
def test_what_is_no_key_is_refused(key: object) -> None:
    with pytest.raises(UsageError):
        key_bytes(key)  # type: ignore[arg-type]


def test_a_key_has_at_most_1024_bytes() -> None:
    assert len(key_bytes("k" * 1024)) == 1024
    with pytest.raises(UsageError, match="1025 bytes") as caught:
        key_bytes("k" * 1025)
    assert caught.value.kind == "key_too_long"


@pytest.mark.parametrize("keys", ["abc", b"abc", 5])
def test_a_lone_key_is_not_taken_for_a_list(keys: object) -> None:
    with pytest.raises(UsageError, match="list"):
        key_list(keys)  # type: ignore[arg-type]


@given(st.binary(min_size=1, max_size=64) | st.text(min_size=1, max_size=16).map(str.encode))
def test_a_printed_key_can_be_typed_again(key: bytes) -> None:
    assert key_from_text(key_text(key)) == key


def test_bytes_of_a_shell_that_are_no_utf8_are_the_key() -> None:
    assert key_from_text("\udcff\udcfea") == b"\xff\xfea"


def test_hexadecimal_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="hexadecimal"):
        key_from_text("0xzz")
