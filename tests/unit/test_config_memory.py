"""How much memory is ours to offer."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonpool.config import choose_arena_bytes, choose_segment_bytes, read_machine_memory

MIB, GIB = 2**20, 2**30


def machine(tmp_path: Path, membership: str, files: dict[str, str]) -> tuple[Path, Path]:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n")
    (proc / "self" / "cgroup").write_text(membership)
    for name, text in files.items():
        (cgroups / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroups / name).write_text(text)
    return proc, cgroups


def test_without_a_limit_it_is_what_the_machine_has(tmp_path: Path) -> None:
    found = read_machine_memory(*machine(tmp_path, "0::/\n", {"memory.max": "max\n", "memory.current": "5\n"}))
    assert (found.total_bytes, found.available_bytes, found.usable_bytes) == (8 * GIB, 4 * GIB, 4 * GIB)
    assert found.cgroup_limit_bytes is None


def test_version_2_the_tightest_ancestor_counts_and_file_pages_are_free(tmp_path: Path) -> None:
    files = {
        "a/memory.max": str(GIB), "a/memory.current": str(900 * MIB),
        "a/memory.stat": f"anon 1\ninactive_file {100 * MIB}\n",
        "a/b/memory.max": str(2 * GIB), "a/b/memory.current": "0", "a/b/memory.stat": "",
    }  # fmt: skip
    found = read_machine_memory(*machine(tmp_path, "0::/a/b\n", files))
    assert found.cgroup_limit_bytes == GIB
    assert found.usable_bytes == GIB - 800 * MIB


def test_version_1_no_limit_is_a_huge_number(tmp_path: Path) -> None:
    files = {
        "memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": "7",
        "memory/x/memory.limit_in_bytes": str(GIB), "memory/x/memory.usage_in_bytes": str(GIB // 2),
    }  # fmt: skip
    found = read_machine_memory(*machine(tmp_path, "4:memory:/x\n3:cpu:/x\n", files))
    assert (found.cgroup_limit_bytes, found.usable_bytes) == (GIB, GIB // 2)


def test_container_that_sees_only_its_own_root(tmp_path: Path) -> None:
    files = {"memory.max": str(GIB), "memory.current": "0"}
    found = read_machine_memory(*machine(tmp_path, "0::/docker/not/visible\n", files))
    assert found.usable_bytes == GIB


def test_this_machine_can_be_read() -> None:
    found = read_machine_memory()
    assert 0 < found.usable_bytes <= found.total_bytes


@pytest.mark.parametrize(
    ("usable", "chosen"), [(0, 64 * MIB), (GIB, 256 * MIB), (1000 * GIB, 64 * GIB), (GIB + 5, 256 * MIB)]
)
def test_segment_is_a_quarter_within_bounds(usable: int, chosen: int) -> None:
    assert choose_segment_bytes(usable) == chosen


@given(st.integers(MIB, 100 * GIB))
def test_arenas_fill_the_segment_and_keep_their_bounds(segment_bytes: int) -> None:
    arena_bytes = choose_arena_bytes(segment_bytes)
    count = segment_bytes // arena_bytes
    assert arena_bytes <= segment_bytes
    assert segment_bytes - count * arena_bytes < 4096 * count
    if segment_bytes >= 2 * GIB:
        assert 256 * MIB - 4096 <= arena_bytes <= 8 * GIB
    else:
        assert arena_bytes >= min(segment_bytes, 256 * MIB) - 4096
