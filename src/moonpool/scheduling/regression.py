"""Least squares that forgets, guarded against what a live system measures."""

from __future__ import annotations

import math
from collections.abc import Sequence

# How many samples' worth the prior is: little enough to give way at once, enough where nothing was ever measured.
_PRIOR_SAMPLES = 0.1


class ForgettingLeastSquares:
    """Linear in the features; weights learnt one sample at a time, older samples fading by ``forgetting`` each.

    The normal equations are kept and solved when asked. Into them fades the prior as old samples fade out, so that a
    term which present samples say nothing about returns to the prior instead of drifting (no wind-up). Errors count
    relative to what was measured: a prompt of a second teaches as much as one of a hundred.

    Guards: a sample that is not a positive finite number is refused; after ``sample_count_min`` samples so is one more
    than ``outlier_factor`` times off the prediction. As many refusals in a row mean that the world has changed: all is
    forgotten, and the next samples are believed. Negative weights count as zero: no term of a cost is negative.
    """

    def __init__(
        self,
        prior: Sequence[float],
        *,
        forgetting: float = 0.995,
        outlier_factor: float = 5.0,
        sample_count_min: int = 20,
    ) -> None:
        self.sample_count = 0
        self.refused_count = 0
        self._prior = list(prior)
        self._forgetting = forgetting
        self._outlier_factor = outlier_factor
        self._sample_count_min = sample_count_min
        self._since_forgotten = 0
        self._refused_in_a_row = 0
        self._squares: list[list[float]] = []
        self._products: list[float] = []
        self._weights: list[float] | None = None
        self._forget()

    def value(self, features: Sequence[float]) -> float:
        """What the fit predicts; never negative for features that are not."""
        if self._weights is None:
            self._weights = [max(0.0, weight) for weight in _solved(self._squares, self._products)]
        return sum(weight * feature for weight, feature in zip(self._weights, features, strict=True))

    def learn(self, features: Sequence[float], measured: float) -> bool:
        """Take one sample in. False: refused."""
        if not (0.0 < measured < math.inf) or not self._believable(features, measured):
            self.refused_count += 1
            return False
        self._update([feature / measured for feature in features])
        self.sample_count += 1
        self._since_forgotten += 1
        self._refused_in_a_row = 0
        return True

    def _believable(self, features: Sequence[float], measured: float) -> bool:
        if self._since_forgotten < self._sample_count_min:
            return True
        predicted = self.value(features)
        if predicted <= measured * self._outlier_factor and measured <= predicted * self._outlier_factor:
            return True
        self._refused_in_a_row += 1
        if self._refused_in_a_row >= self._sample_count_min:
            self._forget()
        return False

    def _forget(self) -> None:
        size = range(len(self._prior))
        self._squares = [[_PRIOR_SAMPLES if row == column else 0.0 for column in size] for row in size]
        self._products = [_PRIOR_SAMPLES * weight for weight in self._prior]
        self._weights = None
        self._since_forgotten = 0
        self._refused_in_a_row = 0

    def _update(self, features: list[float]) -> None:
        """One sample whose measured value, like its features, is divided by itself: the target is 1."""
        keep, fresh = self._forgetting, (1.0 - self._forgetting) * _PRIOR_SAMPLES
        for row, feature in enumerate(features):
            squares = self._squares[row]
            for column, other in enumerate(features):
                squares[column] = keep * squares[column] + feature * other
            squares[row] += fresh
            self._products[row] = keep * self._products[row] + feature + fresh * self._prior[row]
        self._weights = None


def _solved(squares: list[list[float]], products: list[float]) -> list[float]:
    """Gaussian elimination with pivots; the matrix is positive definite by its prior."""
    rows = [[*row, product] for row, product in zip(squares, products, strict=True)]
    size = len(rows)
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(rows[row][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for below in range(column + 1, size):
            factor = rows[below][column] / rows[column][column]
            for index in range(column, size + 1):
                rows[below][index] -= factor * rows[column][index]
    weights = [0.0] * size
    for row in reversed(range(size)):
        known = sum(rows[row][column] * weights[column] for column in range(row + 1, size))
        weights[row] = (rows[row][size] - known) / rows[row][row]
    return weights
