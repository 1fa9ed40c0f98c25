import pytest

from moonpool.config import MachineMemory
from moonpool.errors import ConfigError, UsageError
from moonpool.pool.memory import require_memory
from moonpool.pool.options import BlockOptions, PutOptions, WaitOptions, checked


def test_the_default_timeout_is_filled_in_and_a_given_one_kept() -> None:
    assert checked({}, WaitOptions, 30) == {"timeout_ms": 30}
    assert checked({"timeout_ms": 5, "priority": 1}, PutOptions, 30) == {"timeout_ms": 5, "priority": 1}


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"timeout": 5}, WaitOptions, "unknown option 'timeout'.*timeout_ms"),
        ({"priority": 1}, WaitOptions, "unknown option"),
        ({"bundle_id": 1}, BlockOptions, "unknown option"),
        ({"timeout_ms": 0}, WaitOptions, "between 1"),
        ({"timeout_ms": 1.5}, WaitOptions, "int"),
        ({"priority": 256}, PutOptions, "between 0 and 255"),
        ({"keep_at_most_ms": -1}, PutOptions, "between 0"),
        ({"tags": [1]}, PutOptions, "Tags"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(options: dict[str, object], kind: type, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        checked(options, kind, 30)


def test_a_segment_larger_than_the_free_memory_is_refused_naming_the_limit() -> None:
    gib = 2**30
    require_memory(gib, MachineMemory(total_bytes=4 * gib, available_bytes=gib))
    with pytest.raises(ConfigError, match="2048 MiB is more than the 1024 MiB that this machine has free"):
        require_memory(2 * gib, MachineMemory(total_bytes=4 * gib, available_bytes=gib))
    contained = MachineMemory(
        total_bytes=64 * gib, available_bytes=32 * gib, cgroup_limit_bytes=gib, cgroup_free_bytes=gib
    )
    with pytest.raises(ConfigError, match=r"cgroup.*raise the container's memory limit"):
        require_memory(2 * gib, contained)
