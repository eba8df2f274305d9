"""Expected posts lost to a full window: E (N - S)+ for a count N that is more scattered than Poisson."""

import numpy as np

from tidings.model import Floats

# The normal distribution function, tabulated: numpy has none, and interpolation is faster than any that is exact.
_Z = np.linspace(-8.0, 8.0, 4001)
_PDF = np.exp(-(_Z**2) / 2) / np.sqrt(2 * np.pi)
_CDF = np.concatenate([[0.0], np.cumsum((_PDF[1:] + _PDF[:-1]) / 2 * (_Z[1] - _Z[0]))])


def gamma_cdf(shape: Floats, x: Floats) -> Floats:
    """P(shape, x), the regularised lower incomplete gamma function, after Wilson and Hilferty; good to about 0.01."""
    spread = 1 / (9 * shape)
    z = (np.cbrt(x / shape) - (1 - spread)) / np.sqrt(spread)
    cdf: Floats = np.interp(z, _Z, _CDF)
    return cdf


def expected_loss(mass: Floats, window: Floats, fano: Floats) -> Floats:
    """E (N - S)+ with mean ``mass`` and variance ``fano`` x mean: F x the loss of a Poisson count at mass / F and S / F.

    Poisson: E (N - S)+ = m P(N >= S) - S P(N >= S + 1), with P(N >= k) the gamma distribution function at m.
    """
    m, s = mass / fano, window / fano
    lost: Floats = fano * np.maximum(m * gamma_cdf(s, m) - s * gamma_cdf(s + 1, m), 0.0)
    return lost
