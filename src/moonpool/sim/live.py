"""A request on its way through the simulated cluster, and the plain state that all stages share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from moonpool.scheduling.admission import AdmitAll
from moonpool.scheduling.costs import Costs
from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.routing import Admission, DecodePolicy, Placement, PrefillPolicy, Refusal
from moonpool.scheduling.routing import Request as Asked
from moonpool.sim.cluster import Hardware
from moonpool.sim.fabric import Fabric, Flow, Link
from moonpool.sim.index import CacheIndex
from moonpool.sim.loop import EventLoop
from moonpool.sim.prefill import PrefillJob
from moonpool.sim.result import RequestTable


class Live:
    """One request between its arrival and its end."""

    __slots__ = (
        "asked", "block_ids", "computed_tokens", "decode_id", "fetch", "first_token_at", "flows", "index", "intervals",
        "job", "joined_at", "placement", "planned_end", "prefill_id", "seconds", "stream",
    )  # fmt: skip

    def __init__(self, index: int, asked: Asked, *, block_ids: Sequence[int], intervals: int) -> None:
        self.index = index
        self.asked = asked
        self.block_ids = block_ids
        self.intervals = intervals  # tokens still to come after the first
        self.placement: Placement | None = None
        self.prefill_id = -1
        self.computed_tokens = 0
        self.seconds = 0.0  # of prefill
        self.planned_end = 0.0  # of prefill, as predicted at admission
        self.first_token_at = -1.0
        self.job: PrefillJob | None = None
        self.flows: list[Flow] = []  # loads of its prefix, the fetch included
        self.fetch: Flow | None = None  # from another worker
        self.stream: Flow | None = None  # its KV on the way to the decode engine
        self.decode_id = -1
        self.joined_at = -1.0


class NodeLinks:
    """The links of one node."""

    __slots__ = ("disk", "inward", "outward")

    def __init__(self, hardware: Hardware) -> None:
        self.outward = Link(hardware.network_bytes_per_second)
        self.inward = Link(hardware.network_bytes_per_second)
        self.disk = Link(hardware.disk_bytes_per_second)


@dataclass(kw_only=True)
class Decisions:
    """The product's own decisions, made anew for each run (policies may have state)."""

    prefill: PrefillPolicy
    decode: DecodePolicy | None = None
    admission: Admission = field(default_factory=AdmitAll)


@dataclass(kw_only=True)
class World:
    """What all stages of one run see."""

    loop: EventLoop
    fabric: Fabric
    fleet: Fleet
    index: CacheIndex
    costs: Costs
    hardware: Hardware
    decisions: Decisions
    table: RequestTable
    links: list[NodeLinks] = field(default_factory=list)
    live: dict[int, Live] = field(default_factory=dict)
    wasted_prefill_seconds: float = 0.0

    def end(self, live: Live) -> None:
        """The request has got all it asked for."""
        self.table.finished[live.index] = self.loop.now
        self._leave(live)

    def refuse(self, live: Live, refusal: Refusal) -> None:
        """The request is turned away; what was computed for it is wasted."""
        self.table.refuse(live.index, refusal)
        if live.first_token_at >= 0.0:
            self.wasted_prefill_seconds += live.seconds
        self._leave(live)

    def _leave(self, live: Live) -> None:
        if live.placement is not None:
            self.forget_plan(live)
        self.live.pop(live.index, None)

    def forget_plan(self, live: Live) -> None:
        """Tell admission that what it knew of this request's life is over."""
        admission = self.decisions.admission
        if live.joined_at < 0.0:
            live.joined_at = self.loop.now
            admission.decode_joined(live.planned_end, live.joined_at)
        admission.decode_left(live.joined_at)
        live.placement = None
        live.joined_at = -1.0


Handler = Callable[[Live], None]
