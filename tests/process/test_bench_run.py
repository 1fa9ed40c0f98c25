"""The whole benchmark on real processes: every row that it declares, and nothing left behind."""

from __future__ import annotations

import pytest

from moonpool.cli.bench import scheduler_step
from moonpool.testing.bench import run as bench_run
from moonpool.testing.bench.measure import Effort
from moonpool.testing.bench.run import BenchSettings

SMALLEST_BYTES = 128 * 1024 * 1024  # room for one value of 64 MiB and a copy
SHORTEST = Effort(pass_count=1, call_count=20)


@pytest.mark.slow
@pytest.mark.process
def test_every_row_is_measured_beside_its_limit() -> None:
    settings = BenchSettings(
        effort=SHORTEST, only=("pool.*", "machine.*", "connector.*", "python.*"), working_set_bytes=SMALLEST_BYTES
    )
    told: list[str] = []
    rows = list(bench_run.run(settings, make_step=scheduler_step, progress=told.append))
    declared = {name: bar for topic in bench_run.TOPICS for name, bar in topic.bars.items()}
    wanted = [name for name in declared if settings.wants([name])]
    assert [measured.name for measured in rows] == wanted
    assert all(measured.value > 0 for measured in rows)
    assert all((measured.reached is None) == (declared[measured.name] is None) for measured in rows)
    without_limit = {measured.name for measured in rows if not measured.ratio}
    assert without_limit == {"machine.ping_pong.64B.p50", "machine.tcp_ping_pong.64B.p50"}
    assert told
