"""Keeps one core awake at the lowest priority: python -m moonpool.testing.bench.spinner CORE. Ends with its stdin.

The cores of an idle virtual machine sleep deeply and wake slowly, which would be measured instead of the pool.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator


def spin() -> None:
    """For ever."""
    while True:
        pass


@contextlib.contextmanager
def awake() -> Iterator[None]:
    """A spinner on each core that this process may use, inside the block."""
    command = [sys.executable, "-m", "moonpool.testing.bench.spinner"]
    spinners = [
        subprocess.Popen([*command, str(core)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for core in sorted(os.sched_getaffinity(0))
    ]
    try:
        for spinner in spinners:
            assert spinner.stdout is not None
            spinner.stdout.readline()
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.communicate()


def main() -> None:
    """One spinner."""
    os.sched_setaffinity(0, {int(sys.argv[1])})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    threading.Thread(target=spin, daemon=True).start()
    sys.stdout.write("spinning\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
