"""The prefill half of a P/D cluster: gives placed prompts to engines and fetches what they need from others."""

from __future__ import annotations

from moonpool.scheduling.routing import Placement
from moonpool.sim.fabric import Flow, Link
from moonpool.sim.live import Handler, Live, World
from moonpool.sim.prefill import PrefillEngine, PrefillJob

CORRECTION_SECONDS = 1e-3  # a prediction of an engine's queue that is off by less is left alone


class PrefillStage:
    """The prefill engines by worker id. `then(live)` runs when a prompt has been computed: its first token is out."""

    def __init__(self, world: World, *, then: Handler) -> None:
        self._world = world
        self._then = then
        self._engines: dict[int, PrefillEngine] = {}
        self._queued_seconds: dict[int, float] = {}

    def add(self, worker_id: int) -> None:
        """An engine comes up."""
        self._engines[worker_id] = PrefillEngine(self._world.loop, finished=self._on_finished)
        self._queued_seconds[worker_id] = 0.0

    def busy_seconds(self, worker_id: int) -> float:
        """GPU seconds that this engine has worked."""
        return self._engines[worker_id].busy_seconds

    def queue_length(self, worker_id: int) -> int:
        """Prompts given to it and not finished."""
        return self._engines[worker_id].queue_length

    def submit(self, live: Live, placement: Placement) -> None:
        """Do what the policy decided."""
        world = self._world
        worker_id = placement.worker_id
        live.prefill_id = worker_id
        slowdown = world.fleet.workers[worker_id].slowdown
        live.seconds = world.costs.prefill.seconds(live.asked.tokens, placement.cached_tokens) * slowdown
        live.computed_tokens = live.asked.tokens - placement.cached_tokens
        live.planned_end = world.fleet.prefill_queued(
            worker_id,
            start_seconds=world.loop.now + placement.load_seconds,
            seconds=live.seconds,
            tokens=live.computed_tokens,
        )
        self._queued_seconds[worker_id] += live.seconds
        job = live.job = PrefillJob(live.index, seconds=live.seconds)
        self._load(live, job, placement)
        self._store(live, placement)
        self._engines[worker_id].submit(job)

    def _load(self, live: Live, job: PrefillJob, placement: Placement) -> None:
        world = self._world
        if world.index.has_disk:
            own = live.asked.prefixes.of(placement.worker_id)
            local_tokens = placement.cached_tokens - placement.fetched_tokens
            disk_tokens = max(0, min(own.disk_tokens, local_tokens - own.dram_tokens))
            if disk_tokens:
                job.loads_left += 1
                self._start_load(live, job, [world.links[placement.worker_id].disk], tokens=disk_tokens)
        if placement.source_id is not None and placement.fetched_tokens:
            job.loads_left += 1
            self._fetch(live, job, placement)

    def _fetch(self, live: Live, job: PrefillJob, placement: Placement) -> None:
        """Fetch from the source once it has computed what is to be fetched."""
        world = self._world
        source_id, target_id = placement.source_id, placement.worker_id
        assert source_id is not None
        links = [world.links[source_id].outward, world.links[target_id].inward]
        world.fleet.transfer_started(source_id, target_id)
        ends = (source_id, target_id)
        live.fetch = self._start_load(live, job, links, tokens=placement.fetched_tokens, ends=ends)

    def _start_load(
        self, live: Live, job: PrefillJob, links: list[Link], *, tokens: int, ends: tuple[int, int] | None = None
    ) -> Flow:
        world = self._world

        def arrived() -> None:
            if ends is not None:
                world.fleet.transfer_finished(*ends)
            live.flows.remove(flow)
            if live.fetch is flow:
                live.fetch = None
            self._engines[live.prefill_id].loaded(job)

        flow = world.fabric.start(links, tokens * world.hardware.kv_bytes_per_token, arrived)
        live.flows.append(flow)
        return flow

    def _store(self, live: Live, placement: Placement) -> None:
        world = self._world
        table = world.table
        world.index.use(placement.worker_id, live.block_ids)
        table.hit_tokens[live.index] = placement.cached_tokens
        table.fetched_tokens[live.index] = placement.fetched_tokens
        table.prefill_worker[live.index] = placement.worker_id

    def _on_finished(self, job: PrefillJob) -> None:
        world = self._world
        live = world.live[job.index]
        worker_id = live.prefill_id
        now = world.loop.now
        left = self._queued_seconds[worker_id] = max(0.0, self._queued_seconds[worker_id] - job.seconds)
        busy_until = now + left
        predicted = world.fleet.workers[worker_id].busy_until_seconds
        is_off = abs(busy_until - predicted) > CORRECTION_SECONDS
        world.fleet.prefill_finished(
            worker_id, tokens=live.computed_tokens, busy_until_seconds=busy_until if is_off else None
        )
        world.table.prefill_seconds[live.index] += job.seconds
        if live.first_token_at < 0.0:
            world.table.ttft[live.index] = now - world.table.arrival[live.index]
            live.first_token_at = now
        self._then(live)

    def lose(self, worker_id: int) -> list[Live]:
        """The engine has died. Returns whom it had, in its order."""
        world = self._world
        lost = [world.live[job.index] for job in self._engines[worker_id].lose_all()]
        self._queued_seconds[worker_id] = 0.0
        for live in lost:
            for flow in live.flows:
                world.fabric.cancel(flow)
            if live.fetch is not None and live.placement is not None and live.placement.source_id is not None:
                world.fleet.transfer_finished(live.placement.source_id, worker_id)
            live.flows.clear()
            live.fetch = None
        return lost

    def source_lost(self, worker_id: int) -> int:
        """A worker has died: what others were fetching from it they compute. Returns how many did."""
        world = self._world
        fetching = [
            live
            for live in world.live.values()
            if live.fetch is not None and live.placement is not None and live.placement.source_id == worker_id
        ]
        for live in fetching:
            self._compute_instead(live)
        return len(fetching)

    def _compute_instead(self, live: Live) -> None:
        """The fetch has failed: the prompt is computed from what its engine holds itself."""
        world = self._world
        placement, job, flow = live.placement, live.job, live.fetch
        assert placement is not None
        assert job is not None
        assert flow is not None
        world.fabric.cancel(flow)
        live.flows.remove(flow)
        live.fetch = None
        own_tokens = placement.cached_tokens - placement.fetched_tokens
        slowdown = world.fleet.workers[live.prefill_id].slowdown
        seconds = world.costs.prefill.seconds(live.asked.tokens, own_tokens) * slowdown
        self._queued_seconds[live.prefill_id] += seconds - job.seconds
        job.seconds = live.seconds = seconds
        world.table.hit_tokens[live.index] = own_tokens
        world.table.fetched_tokens[live.index] = 0
        self._engines[live.prefill_id].loaded(job)
