"""A node that serves by TCP: the same verbs, bounded waits, and nothing kept for clients that went away."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client_processes import Client
from raw_peer import RawPeer, dial
from remote_cluster import MIB, address_of, in_time, listening, remote_pool

import moonpool
from moonpool import Pool, Reason, Status
from moonpool.errors import AccessDenied, PeerUnavailable
from moonpool.testing.cluster import Cluster, value_of, wait_until
from moonpool.testing.processes import free_port


@pytest.fixture
def serving(folder: Path) -> Iterator[Cluster]:
    with listening(folder) as running:
        yield running


def held_bytes(pool: Pool) -> int:
    count: int = pool.stat()["table"]["held_bytes"]
    return count


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_remote_client_has_the_same_verbs_and_bytes(folder: Path, host: str) -> None:
    with listening(folder, host) as cluster, remote_pool(cluster) as remote, cluster.connect() as local:
        values = {f"k{length}": value_of(f"k{length}", length) for length in (1, 4096, 65_537, 9 * MIB + 3)}
        assert all(remote.put(values).values())
        targets = [bytearray(len(value)) for value in values.values()]
        results = remote.get_into(list(values), targets)
        assert [result.byte_count for result in results] == [len(value) for value in values.values()]
        assert targets == list(values.values())
        assert local.get_bytes(list(values)) == list(values.values())
        with remote.get(list(values)) as views:
            assert [bytes(view or b"") for view in views] == list(values.values())
        assert remote.exists(["k1", "nothing"])[1].reason == Reason.NEVER_STORED
        assert remote.remove(["k1"])[0]
        assert local.get_bytes(["k1"]) == [None]
        assert remote.info["transport"] == "tcp"
        assert [item["transport"] for item in local.stat()["connections"] if item["remote"]] == ["tcp"]


def test_a_directory_told_by_tcp_says_where_to_find_a_key(serving: Cluster) -> None:
    with remote_pool(serving) as pool:
        pool.put({"a": b"abc"})
        wait_until(lambda: pool.locate(["a"])[0][0].address == address_of(serving), "the directory to be told")
        assert pool.locate(["a"])[0][0].incarnation == pool.info["incarnation"]


def test_a_target_may_be_a_host_and_a_port(serving: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOONPOOL_RUNTIME_FOLDER", str(serving.folder))
    with moonpool.connect(address_of(serving)) as pool:
        assert pool.put({"a": b"abc"})["a"].hint.address == address_of(serving)  # type: ignore[union-attr]


def test_a_stranger_without_the_secret_is_refused(serving: Cluster, tmp_path: Path) -> None:
    wrong = tmp_path / "secret"
    wrong.write_bytes(b"x" * 32)
    wrong.chmod(0o600)
    stranger = Cluster(serving.folder, settings={"secret_file": wrong, "client.node": address_of(serving)})
    with pytest.raises(AccessDenied):
        stranger.connect()


def test_a_silent_remote_client_is_dropped_and_its_holds_with_it(serving: Cluster) -> None:
    with serving.connect() as local:
        local.put({"a": value_of("a", MIB)})
        with dial(address_of(serving)):  # says nothing at all: the handshake's own limit ends it
            pass
        peer = RawPeer(address_of(serving), serving.secret)
        assert peer.hold([b"a"])[0].status == Status.HIT
        assert held_bytes(local) > 0
        wait_until(lambda: held_bytes(local) == 0, "the silent client's hold to be let go")
        assert local.stat()["counters"]["dropped_silent"] == 1
        peer.socket.close()


def test_an_idle_remote_client_keeps_its_connection_by_its_heartbeat(folder: Path) -> None:
    patient_ms = 4_000  # on a machine that is busy with other things
    with (
        listening(folder, **{"node.limits.remote_silent_ms": patient_ms}) as serving,
        remote_pool(serving) as idle,
    ):
        first = idle.info["connection"]
        began = time.monotonic()
        wait_until(lambda: time.monotonic() > began + 1.5 * patient_ms / 1000, "the silence to be long enough")
        assert (idle.connected, idle.info["connection"]) == (True, first)


def test_a_stopped_remote_client_is_dropped_and_connects_again(serving: Cluster) -> None:
    with serving.connect() as local:
        local.put({"a": value_of("a", MIB)})
        client = Client(serving, _hold_remotely, address_of(serving))
        try:
            assert client.answer() == 1
            client.stop()
            wait_until(lambda: held_bytes(local) == 0, "the stopped client's hold to be let go")
            client.resume()
            assert client.ask("again") == value_of("a", MIB)
        finally:
            client.kill()


def test_a_killed_remote_client_leaves_nothing(serving: Cluster) -> None:
    with serving.connect() as local:
        local.put({"a": value_of("a", MIB)})
        peer = RawPeer(address_of(serving), serving.secret)
        assert peer.hold([b"a"])[0].status == Status.HIT
        assert peer.reserve([b"b"], MIB)[0].status == Status.STORED
        peer.socket.close()
        wait_until(lambda: local.stat()["table"]["used_bytes"] < 2 * MIB, "the reservation's space to be back")
        assert held_bytes(local) == 0
        assert local.put({"b": b"mine"})["b"].status == Status.STORED


def test_a_node_that_is_killed_is_a_miss_and_comes_back(serving: Cluster) -> None:
    with remote_pool(serving) as pool:
        pool.put({"a": b"abc"})
        serving.node.kill()
        assert in_time(lambda: pool.get_bytes(["a"], timeout_ms=60_000)) == [None]
        assert pool.exists(["a"])[0].reason == Reason.UNAVAILABLE
        serving.node.start()
        wait_until(lambda: pool.put({"b": b"abc"})["b"], "the pool to be usable again")
        assert pool.exists(["a"])[0].reason == Reason.NEVER_STORED


def test_a_stopped_node_costs_a_bounded_wait_once(serving: Cluster) -> None:
    with remote_pool(serving) as pool, serving.node.stopped():
        assert pool.exists(["a"], timeout_ms=200)[0].reason == Reason.TIMED_OUT
        found = in_time(lambda: pool.exists(["a"], timeout_ms=60_000))
        assert found[0].reason == Reason.UNAVAILABLE  # it is remembered


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-name.invalid"])
def test_connecting_where_nobody_is_ends_in_bounded_time(serving: Cluster, host: str) -> None:
    with pytest.raises(PeerUnavailable):
        in_time(lambda: serving.connect(node=f"{host}:{free_port()}", connect_timeout_ms=500))


def test_connecting_to_a_port_that_swallows_everything_ends_in_bounded_time(serving: Cluster) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        place = full.getsockname()
        with contextlib.ExitStack() as waiting:
            for _ in range(4):  # its queue is full: further connects get no answer
                extra = waiting.enter_context(socket.socket())
                extra.setblocking(False)
                extra.connect_ex(place)
            with pytest.raises(PeerUnavailable) as caught:
                serving.connect(node=f"127.0.0.1:{place[1]}", connect_timeout_ms=300)
            assert caught.value.kind == "timed_out"


def _hold_remotely(pool: Pool, pipe: Any, address: str) -> None:
    """In a process of its own: holds a view by hand until told to read again."""
    import os

    folder = Path(pool.address.removeprefix("unix:")).parent
    os.environ["MOONPOOL_RUNTIME_FOLDER"] = str(folder)
    with moonpool.connect(address) as remote:
        peer = RawPeer(address, Cluster(folder).secret)
        pipe.send(int(peer.hold([b"a"])[0].status == Status.HIT))
        pipe.recv()
        wait_until(lambda: remote.get_bytes(["a"])[0], "the pool to answer again")
        pipe.send(remote.get_bytes(["a"])[0])
        peer.socket.close()
