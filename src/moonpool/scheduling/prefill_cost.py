"""Time to compute a prompt: fitted to the paper, fitted online from what was measured, or read from a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from moonpool.scheduling.regression import ForgettingLeastSquares
from moonpool.scheduling.table import Grid


@dataclass(frozen=True, slots=True)
class FittedPrefill:
    """Quadratic in the tokens, with the time to load what is cached.

    ``per_token · (n - p) + per_square · (n² - p²) + fixed_load + per_cached_token · p`` for ``n`` tokens of which the
    first ``p`` > 0 are cached; the last two terms are absent for p = 0. The defaults are fitted to Fig 14 of the
    Mooncake paper (FAST'25; 8 x A800, LLaMA3-70B): its 0 % curve to 2 %, and its 95 % curve, from which the load terms
    come (residuals under 0.02 s; the slope is the paper's 128 GB/s from host to device at 320 KiB a token).
    """

    per_token_seconds: float = 1.1467e-4
    per_square_seconds: float = 7.179e-10
    fixed_load_seconds: float = 0.0625
    per_cached_token_seconds: float = 2.5e-6

    def seconds(self, tokens: int, cached_tokens: int) -> float:
        """See `moonpool.scheduling.costs.PrefillCost`."""
        computed = self.per_token_seconds * (tokens - cached_tokens) + self.per_square_seconds * (
            tokens * tokens - cached_tokens * cached_tokens
        )
        if cached_tokens <= 0:
            return computed
        return computed + self.fixed_load_seconds + self.per_cached_token_seconds * cached_tokens

    @classmethod
    def without_load(cls) -> Self:
        """Loading hidden behind computing (layer-wise, FAST'25 §4): only the two quadratic terms."""
        return cls(fixed_load_seconds=0.0, per_cached_token_seconds=0.0)


# So scaled, the features of a prompt of ten thousand tokens are near one, and so is the conditioning of the fit.
_TOKENS, _SQUARES = 1e4, 1e8


class OnlinePrefill:
    """Learns the same four terms from measured prompts; starts from a prior and never answers below zero.

    Least squares with forgetting: an engine that changed (other GPUs, other batch limits) is learnt anew
    within about ``1 / (1 - forgetting)`` prompts. A fixed cost for every prompt is learnt as well.
    """

    def __init__(self, prior: FittedPrefill | None = None, *, forgetting: float = 0.995) -> None:
        start = FittedPrefill() if prior is None else prior
        self._fit = ForgettingLeastSquares(
            [
                start.per_token_seconds * _TOKENS,
                start.per_square_seconds * _SQUARES,
                start.fixed_load_seconds,
                start.per_cached_token_seconds * _TOKENS,
                0.0,
            ],
            forgetting=forgetting,
        )

    @property
    def sample_count(self) -> int:
        """Measurements that were believed."""
        return self._fit.sample_count

    def seconds(self, tokens: int, cached_tokens: int) -> float:
        """See `moonpool.scheduling.costs.PrefillCost`."""
        return self._fit.value(_prefill_features(tokens, cached_tokens))

    def learn(self, tokens: int, cached_tokens: int, seconds: float) -> bool:
        """A prompt was computed alone on its engine in ``seconds``. False: not believed (absurd, or an outlier)."""
        if tokens < 1 or not 0 <= cached_tokens <= tokens:
            return False
        return self._fit.learn(_prefill_features(tokens, cached_tokens), seconds)


def _prefill_features(tokens: int, cached: int) -> list[float]:
    loads = 1.0 if cached > 0 else 0.0
    return [(tokens - cached) / _TOKENS, (tokens * tokens - cached * cached) / _SQUARES, loads, cached / _TOKENS, 1.0]


class TablePrefill:
    """Interpolates between measured prompts: ``seconds[i][j]`` for ``tokens[i]`` with ``fractions[j]`` of them cached.

    Linear in between; past the longest prompt the last slope goes on, which is too little for attention: measure up to
    the longest prompt that is served.
    """

    def __init__(self, tokens: list[float], fractions: list[float], seconds: list[list[float]]) -> None:
        self._grid = Grid(tokens, fractions, seconds)

    def seconds(self, tokens: int, cached_tokens: int) -> float:
        """See `moonpool.scheduling.costs.PrefillCost`."""
        return max(0.0, self._grid.value(tokens, cached_tokens / tokens if tokens else 0.0))
