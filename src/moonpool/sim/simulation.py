"""One run: requests come in, the product's decisions place them, the simulated cluster does what they say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from moonpool.errors import UsageError
from moonpool.scheduling.costs import Costs
from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.routing import Rejection
from moonpool.scheduling.routing import Request as Asked
from moonpool.scheduling.workers import Limits, Role, WorkerState
from moonpool.sim.cluster import Cluster, Die, Drain, FleetEvent, Join
from moonpool.sim.coupled_stage import CoupledStage
from moonpool.sim.decode_stage import DecodeStage
from moonpool.sim.fabric import Fabric
from moonpool.sim.index import CacheIndex
from moonpool.sim.live import Decisions, Live, NodeLinks, World
from moonpool.sim.loop import EventLoop
from moonpool.sim.prefill_stage import PrefillStage
from moonpool.sim.result import Objectives, RequestTable, Result, Sample, WorkerReport
from moonpool.sim.trace import Request

ROLES = {"P": Role.PREFILL, "D": Role.DECODE, "C": Role.BOTH}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to run: objectives (for counting; admission has its own copy in `limits`), speed-up, sampling."""

    costs: Costs  # what work takes in truth; a policy may believe in others
    label: str = ""
    objectives: Objectives = field(default_factory=Objectives)
    limits: Limits = field(default_factory=Limits)
    speed: float = 1.0  # arrivals come so many times faster
    sample_seconds: float = 10.0  # 0: no samples


class Simulation:
    """A cluster, the decisions that drive it, and one run over a trace."""

    def __init__(self, cluster: Cluster, decisions: Decisions, plan: Plan) -> None:
        self.plan = plan
        self._cluster = cluster
        loop = EventLoop()
        self._world = World(
            loop=loop,
            fabric=Fabric(loop),
            fleet=Fleet(plan.limits, decode_load=plan.costs.decode.tbt_seconds),
            index=CacheIndex(block_tokens=cluster.caches.block_tokens),
            costs=plan.costs,
            hardware=cluster.hardware,
            decisions=decisions,
            table=RequestTable(),
        )
        self._decode = DecodeStage(self._world)
        self._coupled = CoupledStage(self._world)
        self._prefill = PrefillStage(self._world, then=self._decode.submit if cluster.shape.decode else self._world.end)
        self._samples: list[Sample] = []
        self._rerouted_count = self._failed_fetch_count = 0
        self._requests: Iterable[Request] = ()
        for kind, count in zip(
            "PDC", (cluster.shape.prefill, cluster.shape.decode, cluster.shape.coupled), strict=True
        ):
            for _ in range(count):
                self._add_worker(kind)

    def run(self, requests: Iterable[Request]) -> Result:
        """Play the trace to its end, which is when the last request has got all it asked for or was turned away."""
        world = self._world
        if len(world.table):
            raise UsageError("a simulation runs once: make a new one, with new decisions")
        self._requests = iter(requests)
        for event in self._cluster.events:
            world.loop.at(event.at_seconds, self._on_event, event)
        self._schedule_arrival()
        if self.plan.sample_seconds > 0.0:
            world.loop.at(0.0, self._on_sample)
        world.loop.run()
        return Result(
            label=self.plan.label,
            table=world.table,
            workers=[self._report(worker_id) for worker_id in range(len(world.fleet.workers))],
            samples=self._samples,
            objectives=self.plan.objectives,
            end_seconds=world.loop.now,
            event_count=world.loop.event_count,
            rerouted_count=self._rerouted_count,
            failed_fetch_count=self._failed_fetch_count,
            fetched_bytes=world.fabric.bytes_moved,
            wasted_prefill_seconds=world.wasted_prefill_seconds,
        )

    # Arrivals

    def _schedule_arrival(self) -> None:
        request = next(iter(self._requests), None)
        if request is not None:
            self._world.loop.at(request.arrival_s / self.plan.speed, self._on_arrival, request)
        else:
            self._requests = ()

    def _on_arrival(self, request: Request) -> None:
        world = self._world
        now = world.loop.now
        index = world.table.add(now, request.input_tokens, request.output_tokens)
        asked = Asked(request.input_tokens, now, root=request.block_ids[0] if request.block_ids else None)
        live = Live(index, asked, block_ids=request.block_ids, intervals=max(0, request.output_tokens - 1))
        world.live[index] = live
        self._route(live)
        self._schedule_arrival()

    def _route(self, live: Live) -> None:
        world = self._world
        now = world.loop.now
        live.asked.prefixes = world.index.match(live.block_ids, live.asked.tokens)
        placement = world.decisions.prefill.place(live.asked, world.fleet, now)
        if isinstance(placement, Rejection):
            world.refuse(live, placement.refusal)
            return
        if live.first_token_at < 0.0:  # one that an engine lost has been admitted already
            rejection = world.decisions.admission.admit(live.asked, placement, world.fleet, now_seconds=now)
            if rejection is not None:
                world.refuse(live, rejection.refusal)
                return
        live.placement = placement
        stage = self._coupled if self._cluster.shape.coupled else self._prefill
        stage.submit(live, placement)
        world.decisions.admission.prefill_planned(live.planned_end)

    # Fleet

    def _add_worker(self, kind: str) -> None:
        world = self._world
        limits = world.hardware.limits
        name = f"{kind}{sum(1 for worker in world.fleet.workers if worker.role is ROLES[kind])}"
        worker_id = world.fleet.add(name, ROLES[kind], kv_capacity_tokens=limits.kv_tokens).worker_id
        world.links.append(NodeLinks(world.hardware))
        if kind == "D":
            self._decode.add(worker_id)
            return
        world.index.add(worker_id, self._cluster.caches.dram(), self._cluster.caches.disk())
        (self._coupled if kind == "C" else self._prefill).add(worker_id)

    def _on_event(self, event: FleetEvent) -> None:
        match event:
            case Join(kind=kind):
                self._add_worker(kind)
            case Drain(worker_id=worker_id):
                self._world.fleet.set_state(worker_id, WorkerState.DRAINING)
            case Die(worker_id=worker_id):
                self._lose(worker_id)

    def _lose(self, worker_id: int) -> None:
        world = self._world
        role = world.fleet.workers[worker_id].role
        world.fleet.set_state(worker_id, WorkerState.DEAD)
        world.index.remove(worker_id)
        lose = {Role.DECODE: self._decode.lose, Role.PREFILL: self._prefill.lose, Role.BOTH: self._coupled.lose}[role]
        lost = lose(worker_id)
        if role is Role.PREFILL:
            self._failed_fetch_count += self._prefill.source_lost(worker_id)
        for live in lost:
            self._rerouted_count += 1
            world.forget_plan(live)
            self._route(live)

    # Watching

    def _on_sample(self, _: object) -> None:
        world = self._world
        now = world.loop.now
        workers = world.fleet.workers
        table = world.table
        self._samples.append(
            Sample(
                now,
                tuple(worker.queue_seconds(now) for worker in workers),
                tuple(worker.queue_count for worker in workers),
                tuple(worker.decode_count for worker in workers),
                tuple(worker.kv_tokens for worker in workers),
                len(table) - table.refusal.count(0),
            )
        )
        if world.live or self._requests:
            world.loop.at(now + self.plan.sample_seconds, self._on_sample)

    def _report(self, worker_id: int) -> WorkerReport:
        world = self._world
        worker = world.fleet.workers[worker_id]
        report = WorkerReport(worker_id, worker.name, worker.role.value, worker.state.value)
        if worker.role is not Role.DECODE:
            stage = self._coupled if worker.role is Role.BOTH else self._prefill
            report.busy_seconds = stage.busy_seconds(worker_id)
            table = world.table
            given = [index for index, chosen in enumerate(table.prefill_worker) if chosen == worker_id]
            report.prompt_count = len(given)
            report.hit_tokens = sum(table.hit_tokens[index] for index in given)
            if worker.state is not WorkerState.DEAD:
                report.block_count = world.index.block_count(worker_id)
        return report
