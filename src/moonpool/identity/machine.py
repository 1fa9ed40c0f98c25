"""Which instruction set this host's CPU has, as far as the layout of KV blocks depends on it."""

from __future__ import annotations

import platform
from pathlib import Path

# Strongest first within each line of development. CPU attention kernels pick their block layout by these.
_FLAGS = {
    "x86_64": (("amx_bf16", "amx_tile"), ("avx512_bf16", "avx512f", "avx2", "avx")),
    "aarch64": (("sve2", "sve"), ("bf16", "asimd")),
}


def instruction_set(cpu_file: Path = Path("/proc/cpuinfo")) -> str:
    """For example "x86_64 avx2" or "x86_64 amx_bf16 avx512_bf16"; the bare machine name where nothing is known."""
    machine = platform.machine()
    try:
        present = _flags(cpu_file.read_text())
    except OSError:  # no such file in this sandbox: the machine's name is all that is known
        present = frozenset()
    strongest = [next((flag for flag in line if flag in present), "") for line in _FLAGS.get(machine, ())]
    return " ".join([machine, *filter(None, strongest)])


def _flags(text: str) -> frozenset[str]:
    """Flags of the first processor (Linux does not run on machines whose processors differ in these)."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            return frozenset(value.split())
    return frozenset()
