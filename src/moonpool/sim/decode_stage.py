"""The decode half of a P/D cluster: chooses an engine when a prompt has been computed, and brings its KV there."""

from __future__ import annotations

from moonpool.errors import UsageError
from moonpool.scheduling.routing import Rejection
from moonpool.sim.batch import Member
from moonpool.sim.decode import DecodeEngine
from moonpool.sim.live import Live, World


class DecodeStage:
    """The decode engines by worker id.

    KV is streamed layer by layer while it is computed (FAST'25 §4.2), so that of the transfer only this is left when
    the first token is out: the last layer, and what a slow network could not carry in the time of the prefill. That
    rest is moved over the links of both nodes, beside everything else that uses them.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._engines: dict[int, DecodeEngine] = {}
        self._count: dict[int, int] = {}  # requests there, or on their way
        self._coming_tokens: dict[int, int] = {}

    def add(self, worker_id: int) -> None:
        """An engine comes up."""
        world = self._world
        self._engines[worker_id] = DecodeEngine(
            world.loop,
            step_seconds=world.costs.decode.tbt_seconds,
            limits=world.hardware.limits,
            finished=self._on_finished,
        )
        self._count[worker_id] = self._coming_tokens[worker_id] = 0

    def submit(self, live: Live) -> None:
        """The first token is out: go on elsewhere, or refuse."""
        world = self._world
        policy = world.decisions.decode
        if policy is None:
            raise UsageError("decode engines need a decode policy")
        if not live.intervals:
            world.table.tbt[live.index] = 0.0
            world.end(live)
            return
        placed = policy.place(live.asked, world.fleet, world.loop.now)
        if isinstance(placed, Rejection):
            world.refuse(live, placed.refusal)
            return
        worker_id = live.decode_id = placed.worker_id
        world.table.decode_worker[live.index] = worker_id
        self._count[worker_id] += 1
        self._coming_tokens[worker_id] += live.asked.tokens
        self._report(worker_id)
        links = [world.links[live.prefill_id].outward, world.links[worker_id].inward]
        live.stream = world.fabric.start(links, self._exposed_bytes(live), lambda: self._on_arrived(live))

    def lose(self, worker_id: int) -> list[Live]:
        """The engine has died. Returns whom it had, and who was on the way to it."""
        world = self._world
        lost = [world.live[member.index] for member in self._engines[worker_id].lose_all()]
        coming = [live for live in world.live.values() if live.decode_id == worker_id and live.stream is not None]
        for live in coming:
            assert live.stream is not None
            world.fabric.cancel(live.stream)
            live.stream = None
        for live in lost + coming:
            live.decode_id = -1
        self._count[worker_id] = self._coming_tokens[worker_id] = 0
        return lost + coming

    def request_count(self, worker_id: int) -> int:
        """Requests there, or on their way."""
        return self._count[worker_id]

    def _exposed_bytes(self, live: Live) -> float:
        hardware = self._world.hardware
        byte_count = live.asked.tokens * hardware.kv_bytes_per_token
        carried = live.seconds * hardware.network_bytes_per_second
        return max(byte_count / hardware.layer_count, byte_count - carried)

    def _on_arrived(self, live: Live) -> None:
        world = self._world
        worker_id = live.decode_id
        live.stream = None
        self._coming_tokens[worker_id] -= live.asked.tokens
        live.joined_at = world.loop.now
        world.decisions.admission.decode_joined(live.planned_end, live.joined_at)
        self._engines[worker_id].submit(
            Member(
                live.index,
                kv_tokens=live.asked.tokens + 1,
                intervals=live.intervals,
                first_token_at=live.first_token_at,
            )
        )

    def _on_finished(self, member: Member, tbt_seconds: float) -> None:
        world = self._world
        live = world.live[member.index]
        world.table.tbt[live.index] = tbt_seconds
        self._count[live.decode_id] -= 1
        self._report(live.decode_id)
        world.end(live)

    def _report(self, worker_id: int) -> None:
        kv_tokens = self._engines[worker_id].kv_tokens + self._coming_tokens[worker_id]
        self._world.fleet.decode_changed(worker_id, request_count=self._count[worker_id], kv_tokens=kv_tokens)
