"""The whole benchmark, on a node of its own in another process and a temporary folder."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator

import msgspec

from moonpool.testing.bench import asking, crossing, indexing, moving, rails, sharing, transfer
from moonpool.testing.bench.measure import Effort, Row
from moonpool.testing.bench.stage import Stage, StepMaker
from moonpool.testing.bench.topics import Topic

# In the order of their measurement. Another room adds its module's topics here.
TOPICS: tuple[Topic, ...] = (
    *indexing.TOPICS,
    *asking.TOPICS,
    *moving.TOPICS,
    *sharing.TOPICS,
    *crossing.TOPICS,
    *transfer.TOPICS,
    *rails.TOPICS,
)


class BenchSettings(msgspec.Struct, frozen=True):
    """What to measure and how long. only: patterns of row names, as in a shell; empty: all."""

    effort: Effort = Effort()
    only: tuple[str, ...] = ()
    working_set_bytes: int = 0  # 0: four times the last level of cache

    def wants(self, names: Iterable[str]) -> bool:
        """Whether one of these rows is asked for."""
        return not self.only or any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in self.only)


def run(settings: BenchSettings, *, make_step: StepMaker, progress: Callable[[str], None]) -> Iterator[Row]:
    """The rows as they are measured. progress is told what is measured next.

    Raises PeerUnavailable or AssertionError when the benchmark's own processes do not start.
    """
    wanted = [topic for topic in TOPICS if settings.wants(topic.bars)]
    with Stage(settings.effort, make_step=make_step, byte_count=settings.working_set_bytes) as stage:
        for topic in wanted:
            progress(topic.title)
            for measured in topic.judged(stage):
                if settings.wants([measured.name]):
                    yield measured
