import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonpool.errors import UsageError
from moonpool.pool.regions import Regions, require_disjoint

REGION = st.tuples(st.integers(1, 400), st.integers(1, 30))


def covered(ranges: list[tuple[int, int]], address: int, length: int) -> bool:
    return any(start <= address and address + length <= start + size for start, size in ranges)


@given(st.lists(REGION, max_size=12), st.lists(st.tuples(st.integers(1, 430), st.integers(0, 40)), min_size=1))
def test_only_ranges_inside_one_registered_range_are_taken(
    offered: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    regions, taken = Regions(), []
    for start, size in offered:
        overlaps = any(start < other + length and other < start + size for other, length in taken)
        if overlaps:
            with pytest.raises(UsageError, match="overlaps"):
                regions.add(start, size, None)
        else:
            regions.add(start, size, None)
            taken.append((start, size))
    assert len(regions) == len(taken)
    for address, length in asked:
        if covered(taken, address, length):
            regions.require([address], [length])
        else:
            with pytest.raises(UsageError, match="registered"):
                regions.require([address], [length])
    if all(covered(taken, *span) for span in asked):
        regions.require([address for address, _ in asked], [length for _, length in asked])


@pytest.mark.parametrize(
    ("address", "length"), [(0, 8), (-4096, 8), (4096, -1), (2**64 - 8, 16), (4096, 2**64)], ids=str
)
def test_null_negative_and_overflowing_ranges_are_refused(address: int, length: int) -> None:
    regions = Regions()
    with pytest.raises(UsageError):
        regions.add(address, length, None)
    regions.add(4096, 4096, None)
    with pytest.raises(UsageError):
        regions.require([address], [length])


def test_a_range_that_was_taken_back_is_refused() -> None:
    regions = Regions()
    regions.add(4096, 64, None)
    regions.discard(4096)
    with pytest.raises(UsageError, match="registered"):
        regions.require([4096], [1])
    with pytest.raises(UsageError, match="no registered range"):
        regions.discard(4096)


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 10)), max_size=10))
def test_overlapping_targets_are_refused(spans: list[tuple[int, int]]) -> None:
    bytes_covered = [address + offset for address, length in spans for offset in range(length)]
    addresses, lengths = [span[0] for span in spans], [span[1] for span in spans]
    if len(bytes_covered) == len(set(bytes_covered)):
        require_disjoint(addresses, lengths)
    else:
        with pytest.raises(UsageError, match="overlap"):
            require_disjoint(addresses, lengths)
