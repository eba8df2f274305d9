"""Expected posts lost to a full window: E (N - S)+ for a count N that is more scattered than Poisson."""

import numpy as np

from tidings.model import Floats


def gamma_cdf(shape: Floats, x: Floats) -> Floats:
    """P(shape, x), the regularised lower incomplete gamma function, after Wilson and Hilferty; good to about 0.01.

    Their z is normal; the normal distribution function is a logistic one of a cubic, to 0.0002.
    """
    spread = 1 / (9 * shape)
    z = (np.cbrt(x / shape) - (1 - spread)) / np.sqrt(spread)
    z *= -1.5976 - 0.07056 * z * z
    np.exp(np.minimum(z, 50.0, out=z), out=z)
    cdf: Floats = 1 / (1 + z)
    return cdf


def expected_loss(mass: Floats, window: Floats, fano: Floats) -> Floats:
    """E (N - S)+ with mean ``mass`` and variance ``fano`` x mean: F x the loss of a Poisson count at mass / F and S / F.

    Poisson: E (N - S)+ = m P(N >= S) - S P(N >= S + 1), with P(N >= k) the gamma distribution function at m.
    """
    m, s = mass / fano, window / fano
    lost: Floats = fano * np.maximum(m * gamma_cdf(s, m) - s * gamma_cdf(s + 1, m), 0.0)
    return lost
