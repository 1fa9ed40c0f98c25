"""The error tree."""

import pickle

import pytest

from moonpool import errors
from moonpool.errors import KINDS, ClosedError, MoonpoolError, UsageError


def every_class(root: type[MoonpoolError] = MoonpoolError) -> list[type[MoonpoolError]]:
    return [root, *(found for child in root.__subclasses__() for found in every_class(child))]


def test_docstring_shows_every_class() -> None:
    for kind_of_error in every_class():
        assert kind_of_error.__name__ in (errors.__doc__ or "")


def test_every_class_has_a_declared_kind_of_its_own() -> None:
    kinds = [kind_of_error.kind_default for kind_of_error in every_class()]
    assert len(set(kinds)) == len(kinds)
    assert set(kinds) <= KINDS


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(AssertionError, match="append it"):
        UsageError("x", kind="no such kind")


@pytest.mark.parametrize("kind_of_error", every_class())
def test_error_survives_pickling_between_processes(kind_of_error: type[MoonpoolError]) -> None:
    error = kind_of_error("node down; start it", kind="timed_out")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind_of_error
    assert (str(copy), copy.kind) == ("node down; start it", "timed_out")


def test_misuse_can_be_caught_as_the_standard_error() -> None:
    assert issubclass(ClosedError, ValueError)
    assert issubclass(errors.PeerUnavailable, ConnectionError)
