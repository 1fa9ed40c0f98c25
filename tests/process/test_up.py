"""`moonpool up`, `node` and `directory` as processes: readiness, signals, restarts, nothing left behind."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import moonpool
from moonpool import config
from moonpool.telemetry.process import Announcement, read_announcement
from moonpool.testing.cluster import Cluster, process_state, wait_until


class Up:
    """A running `moonpool up` on a folder."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.log = folder.with_suffix(".log")
        command = [sys.executable, "-m", "moonpool", "up", "--runtime-folder", str(folder), "--segment", "32MiB"]
        command += ["--node-http-port", "0", "--directory-http-port", "0", *arguments]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def announcement(self, kind: str) -> Announcement | None:
        return read_announcement(self.folder, kind)

    def wait_until_up(self) -> tuple[Announcement, Announcement]:
        """The announcements of node and directory."""
        wait_until(lambda: b"Ctrl-C stops" in self.log.read_bytes(), "moonpool up to be ready", timeout_s=30)
        node, directory = self.announcement("node"), self.announcement("directory")
        assert node is not None
        assert directory is not None
        return node, directory

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        return self.process.wait(30)


@contextlib.contextmanager
def running(folder: Path, *arguments: str) -> Iterator[Up]:
    up = Up(folder, *arguments)
    try:
        yield up
    finally:
        if up.process.poll() is None:
            up.process.kill()
            up.process.wait()
        up.log.unlink()


def gone(process_id: int) -> bool:
    return process_state(process_id) in ("", "Z", "X")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_up_serves_until_a_signal_and_leaves_nothing(folder: Path, how: signal.Signals) -> None:
    with running(folder) as up:
        node, directory = up.wait_until_up()
        with moonpool.connect(folder) as pool:
            assert pool.put({"k": b"v"})["k"]
        assert up.end(how) == 0
        assert gone(node.process_id)
        assert gone(directory.process_id)
        assert {path.name for path in folder.iterdir()} == {"secret", "up.lock"}
        assert b"Traceback" not in up.log.read_bytes()


def test_up_starts_a_killed_node_again_and_clients_go_on(folder: Path) -> None:
    with running(folder) as up:
        node, _ = up.wait_until_up()
        with moonpool.connect(folder) as pool:
            assert pool.put({"before": b"v"})["before"]
            os.kill(node.process_id, signal.SIGKILL)
            wait_until(lambda: pool.put({"after": b"v"})["after"], "a put on the next incarnation", timeout_s=10)
            assert pool.get_bytes(["after"]) == [b"v"]
        wait_until(lambda: up.announcement("node") is not None, "the next announcement", timeout_s=10)
        assert up.announcement("node") != node
        assert up.end(signal.SIGTERM) == 0


def test_without_restart_a_killed_node_stays_dead_and_can_be_started_alone(folder: Path) -> None:
    with running(folder, "--no-restart") as up:
        node, directory = up.wait_until_up()
        os.kill(node.process_id, signal.SIGKILL)
        wait_until(lambda: b"`moonpool node` starts it again" in up.log.read_bytes(), "the word about it")
        assert not gone(directory.process_id)
        alone = Cluster(folder)
        try:
            alone.node.start()
            with alone.connect() as pool:
                assert pool.put({"k": b"v"})["k"]
        finally:
            alone.node.kill()
        assert up.end(signal.SIGTERM) == 0


def test_the_children_end_when_up_is_killed(folder: Path) -> None:
    with running(folder) as up:
        node, directory = up.wait_until_up()
        up.end(signal.SIGKILL)
        wait_until(lambda: gone(node.process_id) and gone(directory.process_id), "the children to end")


def test_up_runs_a_command_and_takes_its_exit_code(folder: Path) -> None:
    script = f"import moonpool; assert moonpool.connect({str(folder)!r}).put({{'k': b'v'}})['k']; raise SystemExit(7)"
    with running(folder, "--", sys.executable, "-c", script) as up:
        assert up.process.wait(60) == 7
        assert not (folder / "node.sock").exists()


def test_a_second_up_on_the_same_folder_is_refused_and_the_first_goes_on(folder: Path) -> None:
    with running(folder) as up:
        node, _ = up.wait_until_up()
        again = subprocess.run(up.process.args, capture_output=True, timeout=60)
        assert again.returncode == 1
        assert f"process {node.process_id}" in again.stderr.decode() or b"already" in again.stderr
        assert b"Traceback" not in again.stderr
        with moonpool.connect(folder) as pool:
            assert pool.put({"k": b"v"})["k"]
        assert up.end(signal.SIGINT) == 0


def test_of_two_that_start_at_once_one_comes_up(folder: Path) -> None:
    with (folder / "up.lock").open("w") as first:  # one that has just begun, and announced nothing yet
        fcntl.flock(first, fcntl.LOCK_EX)
        command = [sys.executable, "-m", "moonpool", "up", "--runtime-folder", str(folder), "--segment", "8MiB"]
        second = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert second.returncode == 1
    assert b"already" in second.stderr
    assert {path.name for path in folder.iterdir()} == {"up.lock"}


def test_a_segment_beyond_the_memory_is_refused_in_plain_words(folder: Path) -> None:
    command = [sys.executable, "-m", "moonpool", "up", "--runtime-folder", str(folder), "--segment", "8TiB"]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert done.returncode == 1
    assert b"is more than the" in done.stderr
    assert b"Traceback" not in done.stderr
    assert not (folder / "node.sock").exists()


def test_a_second_node_on_a_socket_is_refused_and_a_stale_socket_is_not(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "moonpool", "node", *cluster.arguments()]
    second = subprocess.run(command, capture_output=True, timeout=60)
    assert second.returncode == 1
    assert b"cannot start" in second.stderr
    with cluster.connect() as pool:
        assert pool.put({"k": b"v"})["k"]
    cluster.node.kill()
    assert Path(cluster.socket_path).exists(), "what a killed node leaves behind"
    cluster.node.start()


def answer(url: str, token: str = "") -> tuple[int, bytes]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_every_process_answers_on_http_and_only_health_is_open(cluster: Cluster) -> None:
    token = config.http_token(config.load_secret(cluster.folder))
    assert cluster.directory is not None
    for server in (cluster.node, cluster.directory):
        url = server.announcement.http
        assert answer(f"{url}/healthz")[0] == 200
        for path in ("/status", "/metrics"):
            assert answer(url + path)[0] == 401
            assert answer(url + path, "wrong")[0] in (401, 403)
        status = json.loads(answer(f"{url}/status", token)[1])
        assert status["incarnation"] == server.announcement.incarnation
        code, metrics = answer(f"{url}/metrics", token)
        assert code == 200
        assert b"moonpool" in metrics


def test_a_server_ends_in_order_on_sigterm(cluster: Cluster) -> None:
    assert cluster.directory is not None
    for server in (cluster.node, cluster.directory):
        assert server.terminate() == 0
        assert "Traceback" not in server.log_end()
    assert not list(cluster.folder.glob("*.sock"))
    assert not list(cluster.folder.glob("*.json"))


def test_importing_moonpool_opens_nothing_and_loads_little() -> None:
    script = (
        "import sys, os; before = len(os.listdir('/proc/self/fd')); import moonpool; "
        "after = len(os.listdir('/proc/self/fd')); "
        "print(after - before, [name for name in sys.modules if name.split('.')[0] in "
        "('aiohttp', 'rich', 'click', 'msgspec', 'numpy', 'torch', 'asyncio')], 'moonpool._native' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=True)
    assert done.stdout.decode().strip() == "0 [] False"


def test_the_announcement_of_a_dead_process_is_not_believed_when_its_number_is_taken_again(folder: Path) -> None:
    with Cluster(folder, directory=False) as cluster:
        left = cluster.node.announcement
        cluster.node.kill()
        taken = msgspec.structs.replace(left, process_id=os.getpid())
        (folder / "node.json").write_bytes(msgspec.json.encode(taken))
        assert read_announcement(folder, "node") is None
        cluster.node.start()
        assert cluster.node.announcement.incarnation != left.incarnation


def test_a_server_may_open_as_many_files_as_its_hard_limit_allows(folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = min(soft, 256)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
        cluster = Cluster(folder, directory=False)
        cluster.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resource.prlimit(cluster.node.process_id, resource.RLIMIT_NOFILE) == (hard, hard)
    cluster.close()
