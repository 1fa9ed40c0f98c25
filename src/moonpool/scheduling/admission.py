"""Whether a request is worth beginning (Mooncake, arXiv 2407.00079 §7: overload-oriented scheduling)."""

from __future__ import annotations

import bisect
import math

from moonpool.scheduling.costs import DecodeCost
from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.routing import Placement, Refusal, Rejection, Request
from moonpool.scheduling.saturation import RETRY_SECONDS_MIN


class AdmitAll:
    """No admission: whatever a policy places is begun."""

    def admit(self, request: Request, placement: Placement, fleet: Fleet, *, now_seconds: float) -> Rejection | None:
        """See `moonpool.scheduling.routing.Admission`."""
        return None

    def prefill_planned(self, end_seconds: float) -> None:
        """Nothing to remember."""

    def decode_joined(self, planned_end_seconds: float, now_seconds: float) -> None:
        """Nothing to remember."""

    def decode_left(self, joined_seconds: float) -> None:
        """Nothing to remember."""


class TtftObjective(AdmitAll):
    """Refuses at arrival what would miss the TTFT objective; decoding is not looked at (the paper's base line).

    Together with ``LeastTbt(cost, refuse=True)`` the decode stage refuses for itself, when prefill is already spent.
    """

    def admit(self, request: Request, placement: Placement, fleet: Fleet, *, now_seconds: float) -> Rejection | None:
        """See `moonpool.scheduling.routing.Admission`."""
        return _ttft_rejection(placement, fleet)


class EarlyRejection(AdmitAll):
    """Refuses at arrival by the greater of the two loads: predicted TTFT and today's mean TBT, over their objectives.

    The decode load that it sees is one prefill old when the request gets there: the two pools' loads swing in
    anti-phase under overload (arXiv §7.3).
    """

    def __init__(self, cost: DecodeCost) -> None:
        self._cost = cost

    def admit(self, request: Request, placement: Placement, fleet: Fleet, *, now_seconds: float) -> Rejection | None:
        """See `moonpool.scheduling.routing.Admission`."""
        rejection = _ttft_rejection(placement, fleet)
        if rejection is not None:
            return rejection
        return _tbt_rejection(self._cost, fleet, request, request_count=fleet.decode_count)


class PredictedLoad(AdmitAll):
    """Refuses at arrival by the decode load predicted for when this prompt will be computed (arXiv §7.4).

    To today's decoding requests are added those whose prefill ends before, and from it are taken those that will have
    decoded for ``decode_seconds`` by then: the paper's uniform decode time, learnt from those that finish. Spread
    evenly over the decode workers, this gives the mean TBT of that moment.
    """

    def __init__(self, cost: DecodeCost, *, decode_seconds: float = 10.0, learning: float = 0.02) -> None:
        self._cost = cost
        self.decode_seconds = decode_seconds
        self._learning = learning
        self._planned: list[float] = []
        self._joined: list[float] = []
        self._now_seconds = 0.0  # the latest that was told; ends of decoding come without a time

    def admit(self, request: Request, placement: Placement, fleet: Fleet, *, now_seconds: float) -> Rejection | None:
        """See `moonpool.scheduling.routing.Admission`."""
        self._now_seconds = max(self._now_seconds, now_seconds)
        rejection = _ttft_rejection(placement, fleet)
        if rejection is not None:
            return rejection
        at_seconds = now_seconds + placement.ttft_seconds
        return _tbt_rejection(self._cost, fleet, request, request_count=self.decoding_at(at_seconds))

    def decoding_at(self, at_seconds: float) -> int:
        """How many requests will be decoding then, by what is known now."""
        gone_before = at_seconds - self.decode_seconds
        arriving = bisect.bisect_right(self._planned, at_seconds) - bisect.bisect_right(self._planned, gone_before)
        staying = len(self._joined) - bisect.bisect_right(self._joined, gone_before)
        return arriving + staying

    def prefill_planned(self, end_seconds: float) -> None:
        """See `moonpool.scheduling.routing.Admission`."""
        bisect.insort(self._planned, end_seconds)

    def decode_joined(self, planned_end_seconds: float, now_seconds: float) -> None:
        """See `moonpool.scheduling.routing.Admission`."""
        self._now_seconds = max(self._now_seconds, now_seconds)
        _remove(self._planned, planned_end_seconds)
        bisect.insort(self._joined, now_seconds)

    def decode_left(self, joined_seconds: float) -> None:
        """See `moonpool.scheduling.routing.Admission`. The decode time is learnt from those that decoded at all."""
        _remove(self._joined, joined_seconds)
        decoded_seconds = self._now_seconds - joined_seconds
        if decoded_seconds > 0.0:
            self.decode_seconds += self._learning * (decoded_seconds - self.decode_seconds)


class MemorylessLoad(PredictedLoad):
    """`PredictedLoad` for outputs of very different lengths: who decodes now goes on with the same chance each second.

    With a uniform decode time, requests longer than the mean are taken for gone while they still decode, and the load
    is predicted too low; here a request is still there after t seconds with probability exp(-t / mean decode time).
    """

    def decoding_at(self, at_seconds: float) -> int:
        """The expected number of requests that will be decoding then."""
        mean_seconds = max(self.decode_seconds, 1e-3)
        expected = len(self._joined) * math.exp(-max(0.0, at_seconds - self._now_seconds) / mean_seconds)
        for end_seconds in self._planned[: bisect.bisect_right(self._planned, at_seconds)]:
            expected += math.exp((max(end_seconds, self._now_seconds) - at_seconds) / mean_seconds)
        return round(expected)


def _ttft_rejection(placement: Placement, fleet: Fleet) -> Rejection | None:
    late = placement.ttft_seconds - fleet.limits.ttft_seconds
    return Rejection(Refusal.TTFT, max(RETRY_SECONDS_MIN, late)) if late > 0.0 else None


def _tbt_rejection(cost: DecodeCost, fleet: Fleet, request: Request, *, request_count: int) -> Rejection | None:
    """With ``request_count`` others spread evenly over the decode workers, each with today's mean KV, and this one."""
    workers = fleet.decode_worker_count
    if workers == 0:
        return Rejection(Refusal.NO_WORKER, RETRY_SECONDS_MIN)
    mean_kv_tokens = fleet.kv_tokens / fleet.decode_count if fleet.decode_count else request.tokens
    batch = math.ceil((request_count + 1) / workers)
    tbt_seconds = cost.tbt_seconds(batch, round(batch * mean_kv_tokens))
    return Rejection(Refusal.TBT, RETRY_SECONDS_MIN) if tbt_seconds > fleet.limits.tbt_seconds else None


def _remove(ordered: list[float], value: float) -> None:
    index = bisect.bisect_left(ordered, value)
    if index < len(ordered) and ordered[index] == value:
        del ordered[index]
