"""The command line on a running node, as a user types it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from moonpool.testing.cluster import Cluster, value_of, wait_until

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def on(standing: Cluster, moonpool: Run) -> Run:
    """Runs a command on an empty node."""
    with standing.connect() as pool:
        pool.clear(0)

    def run(command: str, *arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
        return moonpool(command, "--runtime-folder", str(standing.folder), *arguments, **options)

    return run


def rows(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, object]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_file_goes_in_and_comes_out(on: Run, folder: Path) -> None:
    source, target = folder / "source", folder / "target"
    source.write_bytes(value_of("file", 3_000_000))
    assert on("put", "file", str(source)).returncode == 0
    assert on("get", "file", "-o", str(target)).returncode == 0
    assert target.read_bytes() == source.read_bytes()


def test_standard_input_and_output_carry_any_bytes(on: Run) -> None:
    assert on("put", "0x00ff", content=b"\x00\n\xff").returncode == 0
    assert on("get", "0x00ff").stdout == b"\x00\n\xff"
    assert on("put", "text", "--text", "hello").stdout.startswith(b"stored text (5 bytes")
    again = on("put", "text", "--text", "hello", "--json")
    assert rows(again)[0]["status"] == "present"
    conflict = on("put", "text", "--text", "other")
    assert (conflict.returncode, conflict.stdout) == (1, b"")
    assert conflict.stderr.startswith(b"conflict: text")


def test_objects_are_listed_shown_pinned_and_removed(on: Run) -> None:
    for key in ("a/1", "a/2", "b"):
        assert on("put", key, "--text", key).returncode == 0
    listed = rows(on("ls", "a/", "--json"))
    assert sorted((row["key"], row["length"]) for row in listed) == [("a/1", 3), ("a/2", 3)]
    assert b"a/1" in on("ls").stdout
    assert len(rows(on("ls", "--limit", "2", "--json"))) == 2
    assert on("pin", "a/1").stdout == b"pinned a/1\n"
    assert {row["key"]: row["pinned"] for row in rows(on("ls", "--json"))}["a/1"] is True
    assert on("unpin", "a/1").returncode == 0
    shown = on("stat", "a/1", "nothing", "--json")
    assert [row["status"] for row in rows(shown)] == ["hit", "miss"]
    assert shown.returncode == 1
    assert on("rm", "a/1", "a/2").stdout == b"removed a/1\nremoved a/2\n"
    gone = on("rm", "a/1")
    assert gone.returncode == 1
    assert b"not removed: a/1" in gone.stderr


def test_an_endless_input_is_refused_before_it_fills_our_memory(on: Run) -> None:
    ended = on("put", "endless", "/dev/zero")
    assert ended.returncode == 1
    assert b"does not fit into one arena" in ended.stderr


def test_a_miss_is_explained_and_is_exit_code_1(on: Run) -> None:
    on("put", "k", "--text", "v")
    on("rm", "k")
    missed = on("get", "k")
    assert (missed.returncode, missed.stdout) == (1, b"")
    assert b"removed" in missed.stderr
    reason = on("why", "k", "--json")
    assert (reason.returncode, rows(reason)[0]["reason"]) == (1, "removed")
    assert b"is there" not in on("why", "k").stdout
    never = on("why", "never")
    assert b"what an earlier incarnation held is gone" in never.stdout
    assert on("why", "--request", "r-1").returncode == 1


def test_the_state_of_the_node_is_shown(on: Run, standing: Cluster) -> None:
    status = json.loads(on("stat", "--json").stdout)
    assert status["incarnation"] == standing.node.announcement.incarnation
    text = on("stat").stdout.decode()
    assert "node-under-test" in text
    snapshot = json.loads(on("top", "--once", "--json").stdout)
    assert snapshot["node"]["state"] == "ready"
    assert snapshot["tiers"][0]["capacity_bytes"] == status["table"]["capacity_bytes"]
    screen = on("top", "--once")
    assert screen.returncode == 0
    assert b"node-under-test" in screen.stdout


# Shells start background jobs, a CI run among them, with SIGINT ignored; a terminal does not.
HEAR_INTERRUPTS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        command = [sys.executable, "-c", HEAR_INTERRUPTS, "-m", "moonpool", *arguments]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        os.set_blocking(self._master, False)
        self._seen = ""

    def wait_for(self, text: str) -> None:
        """Until it shows the text anew."""
        wait_until(lambda: self._shows(text), f"{text!r} on the terminal", timeout_s=30)
        self._seen = self._seen[self._seen.rindex(text) + len(text) :]

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        wait_until(lambda: self._shows("") and self.process.poll() is not None, "the command to end")
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def _shows(self, text: str) -> bool:
        with contextlib.suppress(BlockingIOError, OSError):  # nothing new, or the other side is gone
            self._seen += os.read(self._master, 65536).decode(errors="replace")
        return text in self._seen


def test_top_shows_the_node_live_while_it_dies_and_comes_back(cluster: Cluster) -> None:
    terminal = Terminal("top", "--interval", "0.1", "--runtime-folder", str(cluster.folder))
    try:
        terminal.wait_for("node-under-test")
        cluster.node.kill()
        terminal.wait_for("no node answers")
        cluster.node.start()
        terminal.wait_for("node-under-test")
        assert terminal.interrupt() == 0
    finally:
        terminal.close()


def test_why_says_after_a_restart_that_the_node_is_young(cluster: Cluster, moonpool: Run) -> None:
    with cluster.connect() as pool:
        assert pool.put({"k": b"v"})["k"]
    cluster.node.restart()
    done = moonpool("why", "k", "--runtime-folder", str(cluster.folder))
    assert done.returncode == 1
    assert b"this node began" in done.stdout
    assert b"what an earlier incarnation held is gone" in done.stdout


def test_without_a_node_every_command_says_what_to_do_in_one_line(moonpool: Run, folder: Path) -> None:
    for command in (["get", "k"], ["put", "k", "--text", "v"], ["ls"], ["rm", "k"], ["stat"], ["pin", "k"]):
        done = moonpool(command[0], "--runtime-folder", str(folder), *command[1:])
        assert done.returncode == 1, command
        assert done.stderr.count(b"\n") == 1, done.stderr
        assert b"moonpool up" in done.stderr
    assert (
        b"no node answers"
        in moonpool("why", "k", "--runtime-folder", str(folder)).stdout
        + moonpool("why", "--runtime-folder", str(folder)).stdout
    )
    assert moonpool("top", "--once", "--runtime-folder", str(folder)).returncode == 1
    assert list(folder.iterdir()) == [], "a client that found nothing leaves nothing"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["put"],
        ["put", "k", "/no/such/file"],
        ["get", "0xzz"],
        ["get", ""],
        ["get", "k" * 1025],
        ["ls", "--set", "node.segment=4"],
        ["node", "--segment", "many"],
        ["why", "k", "--last", "3"],
        ["top", "--interval", "0"],
    ],
    ids=lambda arguments: " ".join(arguments)[:30],
)
def test_a_wrong_call_is_exit_code_2_without_a_traceback(moonpool: Run, folder: Path, arguments: list[str]) -> None:
    command, *rest = arguments
    extra = [] if command == "nonsense" else ["--runtime-folder", str(folder)]
    done = moonpool(command, *extra, *rest)
    assert done.returncode == 2, done.stderr
    assert b"Traceback" not in done.stderr
    assert done.stderr.strip()


def test_help_and_version_need_no_node(moonpool: Run) -> None:
    assert b"moonpool up" in moonpool("--help").stdout
    for command in ("up", "node", "directory", "put", "get", "ls", "rm", "pin", "unpin", "stat", "top", "why"):
        assert moonpool(command, "--help").returncode == 0, command
    assert json.loads(moonpool("version", "--json").stdout)["wire"]


def test_output_into_a_closed_pipe_is_no_traceback(standing: Cluster) -> None:
    with standing.connect() as pool:
        pool.put({f"key-{number}": b"v" for number in range(5000)})
    command = f"{sys.executable} -m moonpool ls --json --runtime-folder {standing.folder} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60)
    assert done.stderr == b""
    assert done.stdout.count(b"\n") == 1
