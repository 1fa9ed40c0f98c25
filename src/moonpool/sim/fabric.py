"""The network and the disks: links whose bandwidth is shared by the flows that cross them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from moonpool.sim.loop import EventLoop


class Link:
    """Something with a bandwidth: a node's way out, its way in, its disk."""

    __slots__ = ("bytes_per_second", "flows")

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self.flows: dict[Flow, None] = {}  # a dict, not a set: the order must not depend on addresses

    @property
    def share_bytes_per_second(self) -> float:
        """What each of its flows may use at most."""
        return self.bytes_per_second / max(1, len(self.flows))


class Flow:
    """Bytes under way over one or more links. `cancel` makes it end without a word."""

    __slots__ = ("bytes_left", "links", "rate", "settled_at", "then", "version")

    def __init__(self, links: Sequence[Link], byte_count: float, then: Callable[[], Any]) -> None:
        self.links = links
        self.bytes_left = float(byte_count)
        self.then = then
        self.rate = 0.0
        self.settled_at = 0.0
        self.version = 0


class Fabric:
    """Flows over links; a flow runs at the smallest of the equal shares of its links.

    That is what a fair transport gives each flow when every bottleneck is crossed by flows that are all limited there.
    It never gives a link more than it has; where a flow is limited elsewhere, what it leaves unused stays unused.
    """

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self.bytes_moved = 0.0

    def start(self, links: Sequence[Link], byte_count: float, then: Callable[[], Any]) -> Flow:
        """Move that many bytes over all of these links at once; `then()` runs when the last one has arrived."""
        flow = Flow(links, byte_count, then)
        flow.settled_at = self._loop.now
        for link in links:
            link.flows[flow] = None
        self._share_anew(links)
        return flow

    def cancel(self, flow: Flow) -> None:
        """Stop a flow; its `then` never runs. A flow that has ended may be cancelled: nothing happens."""
        self._settle(flow)
        flow.version += 1
        self._leave(flow)

    def _leave(self, flow: Flow) -> None:
        for link in flow.links:
            link.flows.pop(flow, None)
        self._share_anew(flow.links)

    def _share_anew(self, links: Sequence[Link]) -> None:
        touched: dict[Flow, None] = {}
        for link in links:
            touched.update(link.flows)
        for flow in touched:
            rate = min(link.share_bytes_per_second for link in flow.links)
            if rate != flow.rate:
                self._settle(flow)
                flow.rate = rate
                flow.version += 1
                self._loop.at(self._loop.now + flow.bytes_left / rate, self._arrived, (flow, flow.version))

    def _settle(self, flow: Flow) -> None:
        moved = min(flow.bytes_left, flow.rate * (self._loop.now - flow.settled_at))
        flow.bytes_left -= moved
        self.bytes_moved += moved
        flow.settled_at = self._loop.now

    def _arrived(self, argument: tuple[Flow, int]) -> None:
        flow, version = argument
        if version != flow.version:
            return
        self.bytes_moved += flow.bytes_left
        flow.bytes_left = 0.0
        flow.version += 1
        self._leave(flow)
        flow.then()
