"""How sure the median of a few repeats is: the interval that the command's tables tell, too."""

from __future__ import annotations

from collections.abc import Sequence

#: The interval is to hold the true median in so many of 100 sets of repeats.
_MIN_COVERAGE = 0.93


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Both ends of the interval of the median of ``values``, of which there is one at least.

    It holds the true median with a probability of 0.93 or more, whatever the values' distribution; of fewer than five
    values it is their range.
    """
    ordered = sorted(values)
    cut = _cut(len(ordered))
    return ordered[cut], ordered[-1 - cut]


def _cut(n: int) -> int:
    """How many of the lowest, and of the highest, of ``n`` values lie outside.

    The true median is below the lowest value but k when k or fewer values are below it, and each is with probability
    1/2: a sum of binomial coefficients, the same on the other side.
    """
    below, term, cut = 0.0, 0.5**n, 0
    for k in range(n // 2):
        below += term
        if 1.0 - 2.0 * below < _MIN_COVERAGE:
            break
        term *= (n - k) / (k + 1)
        cut = k
    return cut
