"""Functions that format numbers, durations, sizes and percentages for terminal and pages."""

import math
from collections.abc import Sequence

#: Units of time with their length in seconds, largest first. A unit is used for values of at least
#: 1.5 units, so that 80 minutes are shown as "80 min".
UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
BYTES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("bytes", 1.0))
NO_VALUE = "–"
#: Ticks of a time axis, as (seconds, label); a small chart uses every other one.
TIME_TICKS = (
    *(
        (1, "1 s"),
        (5, "5 s"),
        (20, "20 s"),
        (60, "1 min"),
        (300, "5 min"),
        (1200, "20 min"),
        (3600, "1 h"),
        (10800, "3 h"),
    ),
    *(
        (28800, "8 h"),
        (86400, "1 d"),
        (259200, "3 d"),
        (864000, "10 d"),
        (2592000, "30 d"),
        (8640000, "100 d"),
    ),
)


def figures(number: float | None, digits: int = 3) -> str:
    """Format a number with ``digits`` significant digits and without exponent.

    Examples are ``0.0123``, ``4.56`` and ``12,345``. None and infinity become a dash.
    """
    if number is None or not math.isfinite(number):
        return NO_VALUE
    if number == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(number))))
    text = f"{number:,.{min(decimals, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def common_unit(seconds: Sequence[float | None]) -> tuple[str, float]:
    """Return the (name, seconds) of the time unit that suits a whole column of durations.

    The smallest positive duration decides. None and infinite values are ignored.
    """
    known = [s for s in seconds if s is not None and math.isfinite(s) and s > 0]
    least = min(known, default=0.0)
    return next(((name, size) for name, size in UNITS if least >= 1.5 * size), UNITS[-1])


def duration(seconds: float | None, digits: int = 3) -> str:
    """Format a duration in a suitable unit, such as ``3.24 h``, or as a dash if it is None."""
    if seconds is None or not math.isfinite(seconds):
        return NO_VALUE
    name, size = common_unit([seconds])
    return f"{figures(seconds / size, digits)} {name}"


def duration_short(seconds: float | None) -> str:
    """Format a duration with two significant digits, such as ``3.2 h``."""
    return duration(seconds, 2)


def ago(at: float | None, now: float) -> str:
    """Format a time relative to ``now``, such as ``3.2 h ago``, ``in 5 min`` or ``now``."""
    if at is None:
        return NO_VALUE
    gap_s = abs(now - at)
    if gap_s < 1:
        return "now"
    return f"{duration_short(gap_s)} ago" if at < now else f"in {duration_short(gap_s)}"


def in_unit(seconds: float | None, size: float) -> str:
    """Format a duration as a number of units that are ``size`` seconds long.

    The number has two decimals, or none if the unit is the second.
    """
    if seconds is None or not math.isfinite(seconds):
        return NO_VALUE
    return f"{seconds / size:,.{2 if size > 1 else 0}f}"


def percent_short(share: float | None) -> str:
    """Format a fraction as a percentage with two significant digits, such as ``4.2 %``."""
    return NO_VALUE if share is None or not math.isfinite(share) else f"{figures(share * 100, 2)} %"


def percent(share: float | None) -> str:
    """Format a fraction as a percentage with two decimals, such as ``0.37 %``."""
    return NO_VALUE if share is None or not math.isfinite(share) else f"{share * 100:.2f} %"


def size(number: float) -> str:
    """Format a number of bytes in a suitable unit, such as ``18 kB`` or ``3.2 MB``."""
    name, unit = next(((name, unit) for name, unit in BYTES if number >= unit), BYTES[-1])
    return f"{figures(number / unit, 2)} {name}"


def count(number: float, noun: str) -> str:
    """Format a number with its noun, such as ``1 feed`` or ``1,200 feeds``."""
    return f"{number:,.0f} {noun}" + ("" if number == 1 else "s")
