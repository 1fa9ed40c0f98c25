"""Time between two tokens of a running batch: fitted to the paper, fitted online, or read from a table."""

from __future__ import annotations

from dataclasses import dataclass

from moonpool.scheduling.regression import ForgettingLeastSquares
from moonpool.scheduling.table import Grid


@dataclass(frozen=True, slots=True)
class FittedDecode:
    """``fixed + per_kv_token · ΣKV + per_request · B + per_square · B²`` seconds for B requests.

    The defaults are the mean of the *worst tenth* of a request's intervals, the paper's TBT (FAST'25 §5.1), not the
    mean interval: first two terms from Fig 14, last two by least squares on the seven points of Fig 15 (residuals
    under 0.75 ms), B by Little's law.
    """

    fixed_seconds: float = 26.2e-3
    per_kv_token_seconds: float = 3.6e-8
    per_request_seconds: float = 2.22e-3
    per_square_seconds: float = 0.294e-3

    def tbt_seconds(self, request_count: int, kv_tokens: int) -> float:
        """See `moonpool.scheduling.costs.DecodeCost`."""
        batch = self.per_request_seconds * request_count + self.per_square_seconds * request_count * request_count
        return self.fixed_seconds + self.per_kv_token_seconds * kv_tokens + batch


# Scales that bring the features of a full batch near one.
_REQUESTS, _SQUARES, _KV_TOKENS = 10.0, 100.0, 1e5


class OnlineDecode:
    """Learns the same four terms from measured steps; see `moonpool.scheduling.prefill_cost.OnlinePrefill`."""

    def __init__(self, prior: FittedDecode | None = None, *, forgetting: float = 0.995) -> None:
        start = FittedDecode() if prior is None else prior
        self._fit = ForgettingLeastSquares(
            [
                start.fixed_seconds,
                start.per_kv_token_seconds * _KV_TOKENS,
                start.per_request_seconds * _REQUESTS,
                start.per_square_seconds * _SQUARES,
            ],
            forgetting=forgetting,
        )

    @property
    def sample_count(self) -> int:
        """Measurements that were believed."""
        return self._fit.sample_count

    def tbt_seconds(self, request_count: int, kv_tokens: int) -> float:
        """See `moonpool.scheduling.costs.DecodeCost`."""
        return self._fit.value(_decode_features(request_count, kv_tokens))

    def learn(self, request_count: int, kv_tokens: int, seconds: float) -> bool:
        """A step with such a batch took ``seconds``. False: not believed."""
        if request_count < 1 or kv_tokens < 0:
            return False
        return self._fit.learn(_decode_features(request_count, kv_tokens), seconds)


def _decode_features(request_count: int, kv_tokens: int) -> list[float]:
    return [1.0, kv_tokens / _KV_TOKENS, request_count / _REQUESTS, request_count * request_count / _SQUARES]


class TableDecode:
    """Interpolates ``seconds[i][j]`` measured with ``requests[i]`` in the batch and ``kv_tokens[j]`` of KV together."""

    def __init__(self, requests: list[float], kv_tokens: list[float], seconds: list[list[float]]) -> None:
        self._grid = Grid(requests, kv_tokens, seconds)

    def tbt_seconds(self, request_count: int, kv_tokens: int) -> float:
        """See `moonpool.scheduling.costs.DecodeCost`."""
        return max(0.0, self._grid.value(request_count, kv_tokens))
