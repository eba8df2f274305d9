"""Numbers as people read them: the same words in the terminal and on the page."""

import math
from collections.abc import Sequence

#: Largest first. A unit serves from 1.5 of it upwards, so that "80 min" is not "1.33 h".
UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
BYTES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("bytes", 1.0))
NO_VALUE = "–"
#: Ticks of an axis of times, in seconds; whoever has no room for all takes every other one.
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
    """About three figures, never in exponents: ``0.0123``, ``4.56``, ``789``, ``12,345``."""
    if number is None or not math.isfinite(number):
        return NO_VALUE
    if number == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(number))))
    text = f"{number:,.{min(decimals, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def common_unit(seconds: Sequence[float | None]) -> tuple[str, float]:
    """One unit for a whole column, by its smallest value: figures that are to be compared share a unit."""
    known = [s for s in seconds if s is not None and math.isfinite(s) and s > 0]
    least = min(known, default=0.0)
    return next(((name, size) for name, size in UNITS if least >= 1.5 * size), UNITS[-1])


def duration(seconds: float | None, digits: int = 3) -> str:
    """``3.24 h``: three figures and the unit that suits; a dash where there is nothing to say."""
    if seconds is None or not math.isfinite(seconds):
        return NO_VALUE
    name, size = common_unit([seconds])
    return f"{figures(seconds / size, digits)} {name}"


def duration_short(seconds: float | None) -> str:
    """``3.2 h``: as much as somebody wants to know who waits."""
    return duration(seconds, 2)


def ago(at: float | None, now: float) -> str:
    """``3.2 h ago``, ``in 5 min``, ``now``."""
    if at is None:
        return NO_VALUE
    gap_s = abs(now - at)
    if gap_s < 1:
        return "now"
    return f"{duration_short(gap_s)} ago" if at < now else f"in {duration_short(gap_s)}"


def in_unit(seconds: float | None, size: float) -> str:
    """Seconds in a unit that the heading names, two decimals; whole where the unit is the second."""
    if seconds is None or not math.isfinite(seconds):
        return NO_VALUE
    return f"{seconds / size:,.{2 if size > 1 else 0}f}"


def percent_short(share: float | None) -> str:
    """``80 %``, ``4.2 %``, ``0.37 %``: two figures, as they stand in a sentence."""
    return NO_VALUE if share is None or not math.isfinite(share) else f"{figures(share * 100, 2)} %"


def percent(share: float | None) -> str:
    """``0.37 %``: two decimals, which stand below each other in a column."""
    return NO_VALUE if share is None or not math.isfinite(share) else f"{share * 100:.2f} %"


def size(number: float) -> str:
    """``18 kB``, ``3.2 MB``: of so many bytes."""
    name, unit = next(((name, unit) for name, unit in BYTES if number >= unit), BYTES[-1])
    return f"{figures(number / unit, 2)} {name}"


def count(number: float, noun: str) -> str:
    """``1 feed``, ``1,200 feeds``."""
    return f"{number:,.0f} {noun}" + ("" if number == 1 else "s")
