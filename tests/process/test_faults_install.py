"""cases/faults.md 21: an environment with only our wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PUT_AND_GET = """
import moonpool
with moonpool.connect() as pool:
    assert pool.put({"k": b"v" * 100_000})["k"], "put"
    assert pool.get_bytes(["k"]) == [b"v" * 100_000], "get"
with moonpool.connect(embedded=True, segment_bytes=1 << 24) as pool:
    assert pool.put({"k": b"v"})["k"], "embedded"
"""


def run(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """With nothing of this checkout in reach: no PYTHONPATH, another working folder."""
    environment = {"PATH": f"{folder / 'venv' / 'bin'}:/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run([str(part) for part in command], cwd=folder, env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_only_the_wheel_is_needed_for_up_put_and_get(folder: Path) -> None:
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(ROOT),
    ]
    tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(build, check=True, env={**os.environ, "PATH": tools})
    wheel = next(folder.glob("moonpool-*.whl"))
    venv.create(folder / "venv", with_pip=True)
    python, moonpool = folder / "venv" / "bin" / "python", folder / "venv" / "bin" / "moonpool"
    installed = run(python, "-m", "pip", "install", "-q", wheel, folder=folder)
    assert installed.returncode == 0, installed.stderr
    assert run(python, "-m", "pip", "check", folder=folder).returncode == 0

    settings = ["--runtime-folder", str(folder / "run"), "--segment", "32MiB"]
    ports = ["--node-http-port", "0", "--directory-http-port", "0"]
    script = f"import os; os.environ['MOONPOOL_RUNTIME_FOLDER'] = {str(folder / 'run')!r}\n{PUT_AND_GET}"
    served = run(moonpool, "up", *settings, *ports, "--", python, "-c", script, folder=folder)
    assert served.returncode == 0, served.stderr

    assert run(moonpool, "version", folder=folder).returncode == 0
    for command in ("verify", "bench", "doctor", "vllm-args", "config", "top", "why"):
        assert run(moonpool, command, "--help", folder=folder).returncode == 0, command
    absent = run(moonpool, "doctor", "--runtime-folder", folder / "run", folder=folder)
    assert absent.returncode == 1
    assert "no node" in absent.stdout
