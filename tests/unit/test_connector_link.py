"""The thread that keeps clients connected; its waits are conditions, its node a fake."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from moonpool.connectors.health import Health
from moonpool.connectors.link import NodeLink
from moonpool.testing.cluster import wait_until


class FakeNode:
    """A node that is there, away or silent, as the test says."""

    def __init__(self) -> None:
        self.state = "there"
        self.connected = False
        self.connect_count = self.ping_count = self.close_count = 0
        self.thread_names: set[str] = set()

    def connect(self, timeout_ms: int) -> tuple[int, str]:
        self.thread_names.add(threading.current_thread().name)
        self.connect_count += 1
        self.connected = self.state == "there"
        return (0, "") if self.connected else (15, "nobody")

    def ping(self, *, timeout_ms: int = 0) -> bool:
        self.thread_names.add(threading.current_thread().name)
        self.ping_count += 1
        self.connected = self.connected and self.state != "away"
        return self.state == "there" and self.connected

    def close(self) -> None:
        self.close_count += 1


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
def link(node: FakeNode) -> Iterator[NodeLink]:
    health = Health(failure_count_max=1, probe_ms_min=1, probe_ms_max=5)
    made = NodeLink(lambda: [node], health=health, clock_ms=lambda: time.monotonic() * 1000)
    yield made
    made.stop()


def test_nothing_is_opened_before_the_start(node: FakeNode, link: NodeLink) -> None:
    assert not link.up
    assert node.connect_count == 0


def test_the_thread_connects_and_the_caller_never_does(node: FakeNode, link: NodeLink) -> None:
    link.start()
    wait_until(lambda: link.up, "the link to be up")
    assert node.thread_names == {"moonpool-link"}
    link.start()
    assert node.connect_count == 1, "once a process"


def test_a_node_that_comes_later_is_found(node: FakeNode, link: NodeLink) -> None:
    node.state = "away"
    link.start()
    wait_until(lambda: node.connect_count > 3, "tries to connect")
    assert not link.up
    node.state = "there"
    wait_until(lambda: link.up, "the link to be up")


def test_a_silent_node_is_left_alone_until_it_answers_a_ping(node: FakeNode, link: NodeLink) -> None:
    link.start()
    wait_until(lambda: link.up, "the link to be up")
    node.state = "silent"
    link.unanswered()
    assert not link.up, "at once, not after the next ping"
    pings = node.ping_count
    wait_until(lambda: node.ping_count > pings + 2, "probes")
    assert not link.up
    node.state = "there"
    wait_until(lambda: link.up, "the link to be up again")
    assert node.connect_count == 1


def test_the_end_of_a_node_is_noticed_though_nobody_calls(node: FakeNode, link: NodeLink) -> None:
    link.start()
    wait_until(lambda: link.up, "the link to be up")
    node.state = "away"
    wait_until(lambda: not link.up, "the link to be down")
    node.state = "there"
    wait_until(lambda: link.up, "the link to be up again")
    assert node.connect_count > 1
