"""Recursive least squares with forgetting, guarded against what a live system measures."""

from __future__ import annotations

import math
from collections.abc import Sequence

# Past this the fit knows too little of some direction to forget more of it (wind-up when all samples look alike).
_UNCERTAINTY_MAX = 1e4
_UNCERTAINTY_START = 10.0


class RecursiveLeastSquares:
    """Linear in the features, weights learnt one sample at a time (Ljung, System Identification, §11.2).

    Guards: a sample that is not a positive finite number is refused; after ``sample_count_min`` samples one that is
    more than ``outlier_factor`` times the prediction (or less than its inverse) is refused, but when many in a row are
    refused the world has changed, and they are believed; forgetting pauses while uncertainty would blow up; negative
    weights count as zero in ``value``, as no term of a cost can be negative.
    """

    def __init__(
        self,
        prior: Sequence[float],
        *,
        forgetting: float = 0.995,
        outlier_factor: float = 5.0,
        sample_count_min: int = 20,
    ) -> None:
        self.weights = list(prior)
        self.sample_count = 0
        self.refused_count = 0
        self._forgetting = forgetting
        self._outlier_factor = outlier_factor
        self._sample_count_min = sample_count_min
        self._refused_in_a_row = 0
        size = len(prior)
        self._uncertainty = [
            [_UNCERTAINTY_START if row == column else 0.0 for column in range(size)] for row in range(size)
        ]

    def value(self, features: Sequence[float]) -> float:
        """What the fit predicts; never negative for features that are not."""
        return sum(max(0.0, weight) * feature for weight, feature in zip(self.weights, features, strict=True))

    def learn(self, features: Sequence[float], measured: float) -> bool:
        """Take one sample in. False: refused."""
        if not (0.0 < measured < math.inf) or not self._believable(self.value(features), measured):
            self.refused_count += 1
            return False
        # Relative errors: a prompt of a second must not teach a hundred times less than one of a hundred seconds.
        scale = 1.0 / measured
        self._update([feature * scale for feature in features], 1.0)
        self.sample_count += 1
        return True

    def _believable(self, predicted: float, measured: float) -> bool:
        factor = self._outlier_factor
        near = predicted <= measured * factor and measured <= predicted * factor
        if near or self.sample_count < self._sample_count_min or self._refused_in_a_row >= self._sample_count_min:
            self._refused_in_a_row = 0 if near else self._refused_in_a_row
            return True
        self._refused_in_a_row += 1
        return False

    def _update(self, features: list[float], measured: float) -> None:
        size = range(len(features))
        rows = self._uncertainty
        direction = [sum(rows[i][j] * features[j] for j in size) for i in size]
        gain_divisor = self._forgetting + sum(features[i] * direction[i] for i in size)
        error = measured - sum(self.weights[i] * features[i] for i in size)
        for i in size:
            self.weights[i] += direction[i] / gain_divisor * error
        trace = sum(rows[i][i] for i in size)
        forgetting = self._forgetting if trace < _UNCERTAINTY_MAX else 1.0
        for i in size:
            for j in size:
                rows[i][j] = (rows[i][j] - direction[i] * direction[j] / gain_divisor) / forgetting
