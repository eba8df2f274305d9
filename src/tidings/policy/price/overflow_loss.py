"""Compute how many posts are expected to be missed because a document cannot list them all.

This is E (N - S)+ for N new posts and a document that lists S entries (its window). The count N is
overdispersed: its variance exceeds its mean (docs/policy.md Eq. 5).
"""

import numpy as np

from tidings.model import Floats


def gamma_cdf(shape: Floats, x: Floats) -> Floats:
    """Approximate the regularized lower incomplete gamma function P(shape, x) to about 0.01.

    Wilson-Hilferty approximation: the cube root of a gamma variable is nearly normal. The normal
    distribution function is approximated by a logistic function of a cubic, to 0.0002.
    """
    variance = 1 / (9 * shape)
    z = (np.cbrt(x / shape) - (1 - variance)) / np.sqrt(variance)
    z *= -1.5976 - 0.07056 * z * z
    np.exp(np.minimum(z, 50.0, out=z), out=z)
    cdf: Floats = 1 / (1 + z)
    return cdf


def expected_loss(mass: Floats, window: Floats, fano: Floats) -> Floats:
    """Return E (N - S)+ for a count N with mean ``mass`` and variance ``fano`` times the mean.

    For Poisson N with mean m: E (N - S)+ = m P(N >= S) - S P(N >= S + 1), where P(N >= k) is the
    gamma distribution function with shape k at m. With overdispersion F (Fano factor) it is
    approximated by F times the loss of a Poisson count with mean m / F and window S / F.
    """
    m, s = mass / fano, window / fano
    lost: Floats = fano * np.maximum(m * gamma_cdf(s, m) - s * gamma_cdf(s + 1, m), 0.0)
    return lost
