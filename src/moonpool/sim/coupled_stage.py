"""Engines that prefill and decode on the same GPUs: the cluster without P/D."""

from __future__ import annotations

from moonpool.scheduling.routing import Placement
from moonpool.sim.batch import Member
from moonpool.sim.coupled import CoupledEngine, Prompt
from moonpool.sim.live import Live, World


class CoupledStage:
    """The coupled engines by worker id. Nothing is fetched: each uses the cache that it has."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._engines: dict[int, CoupledEngine] = {}
        self._prompt_seconds: dict[int, float] = {}
        self._decoding: dict[int, int] = {}
        self._busy_seconds: dict[int, float] = {}

    def add(self, worker_id: int) -> None:
        """An engine comes up."""
        world = self._world
        engine = CoupledEngine(
            world.loop,
            step_seconds=world.costs.decode.tbt_seconds,
            limits=world.hardware.limits,
            prefilled=self._on_prefilled,
            finished=self._on_finished,
        )
        engine.mixing = world.hardware.mixing
        engine.chunk_tokens = world.hardware.chunk_tokens
        self._engines[worker_id] = engine
        self._prompt_seconds[worker_id] = self._busy_seconds[worker_id] = 0.0
        self._decoding[worker_id] = 0

    def busy_seconds(self, worker_id: int) -> float:
        """GPU seconds of prefill."""
        return self._busy_seconds[worker_id]

    def queue_length(self, worker_id: int) -> int:
        """Prompts given to it and not computed."""
        return self._engines[worker_id].queue_length

    def submit(self, live: Live, placement: Placement) -> None:
        """Do what the policy decided."""
        world = self._world
        worker_id = live.prefill_id = live.decode_id = placement.worker_id
        own = live.asked.prefixes.of(worker_id)
        cached_tokens = min(own.tokens, placement.cached_tokens)
        slowdown = world.fleet.workers[worker_id].slowdown
        live.seconds = world.costs.prefill.seconds(live.asked.tokens, cached_tokens) * slowdown
        live.computed_tokens = live.asked.tokens - cached_tokens
        live.planned_end = world.fleet.prefill_queued(
            worker_id, start_seconds=world.loop.now, seconds=live.seconds, tokens=live.computed_tokens
        )
        self._prompt_seconds[worker_id] += live.seconds
        world.index.use(worker_id, live.block_ids)
        world.table.hit_tokens[live.index] = cached_tokens
        world.table.prefill_worker[live.index] = world.table.decode_worker[live.index] = worker_id
        self._engines[worker_id].submit(
            Prompt(
                live.index,
                tokens=live.asked.tokens,
                computed_tokens=live.computed_tokens,
                seconds=live.seconds,
                intervals=live.intervals,
            )
        )

    def lose(self, worker_id: int) -> list[Live]:
        """The engine has died. Returns whom it had: first those that waited for their prompt."""
        world = self._world
        prompts, members = self._engines[worker_id].lose_all()
        self._prompt_seconds[worker_id] = 0.0
        self._decoding[worker_id] = 0
        lost = [prompt.index for prompt in prompts] + [member.index for member in members]
        return [world.live[index] for index in lost]

    def _on_prefilled(self, prompt: Prompt) -> None:
        world = self._world
        live = world.live[prompt.index]
        worker_id = live.prefill_id
        now = world.loop.now
        self._prompt_seconds[worker_id] = max(0.0, self._prompt_seconds[worker_id] - live.seconds)
        world.fleet.prefill_finished(
            worker_id, tokens=live.computed_tokens, busy_until_seconds=now + self._prompt_seconds[worker_id]
        )
        world.table.prefill_seconds[live.index] += live.seconds
        self._busy_seconds[worker_id] += live.seconds
        if live.first_token_at < 0.0:
            world.table.ttft[live.index] = now - world.table.arrival[live.index]
            live.first_token_at = now
        live.joined_at = now
        world.decisions.admission.decode_joined(live.planned_end, now)
        self._decoding[worker_id] += 1
        self._report(worker_id)

    def _on_finished(self, member: Member, tbt_seconds: float) -> None:
        world = self._world
        live = world.live[member.index]
        world.table.tbt[live.index] = tbt_seconds
        self._decoding[live.decode_id] -= 1
        self._report(live.decode_id)
        world.end(live)

    def _report(self, worker_id: int) -> None:
        self._world.fleet.decode_changed(
            worker_id, request_count=self._decoding[worker_id], kv_tokens=self._engines[worker_id].kv_tokens
        )
