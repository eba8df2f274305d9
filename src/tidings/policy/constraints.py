"""Compute when each feed may be polled (minimum interval, ttl, Retry-After, skipHours).

The service, the simulator, the budget forecast and the demo all call `constrain` with the facts
about each feed (`FACTS`) and write the result into the policy's table (`apply_constraints`). This
module also computes the cost of a poll. It does no I/O and does not read the clock.

The minimum interval of a feed follows from the first rule that applies:

- Subscribers have set an interval: that interval, but at least the publisher's interval.
- The publisher states an interval (``Cache-Control: max-age``, ``Expires``, ``ttl``, ``sy:*``): the
  longest of them, even if it is below the operator's minimum, but at least a third of that minimum
  and at most a day.
- Half of the time in which new entries would replace the whole document is shorter than the rules
  below: that half, at least a minute.
- The server answers conditional requests with 304: the operator's minimum (`Limits`).
- The server sends the full document every time: four times the operator's minimum, and more for
  large documents.

``Retry-After`` (RFC 9110 sect. 10.2.3) and the backoff after failures are separate and always
apply. docs/politeness.md gives the reasons for the numbers.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidings.document import Hints
from tidings.model import DAY_S, HOUR_S, MINUTE_S, WEEK_S, Bools, Floats, Rows
from tidings.policy.base import HOURS_PER_WEEK, Feeds
from tidings.reasons import NO_REASON, Reason, reason

#: Default minimum and maximum time between polls of a feed.
MIN_INTERVAL_S = 15 * MINUTE_S
MAX_INTERVAL_S = WEEK_S
#: Minimum of an interval that the publisher states, as a share of the operator's minimum. With the
#: default minimum this is 5 minutes.
STATED_SHARE = 1 / 3
#: Maximum of an interval that the publisher states. Some daily newspapers state a ttl of a month.
STATED_MAX_S = DAY_S
#: Longest plausible interval that a publisher states. Longer ones are errors of units (seconds or
#: milliseconds written as minutes) and are ignored.
MAX_PLAUSIBLE_INTERVAL_S = 366 * DAY_S
#: Factor of the minimum interval for a feed whose server always sends the full document.
FULL_FACTOR = 4.0
#: Document size above which that interval grows in proportion to the size, and the maximum factor
#: of this growth.
LARGE_BYTES = 262_144.0
LARGE_FACTOR_MAX = 4.0
#: Interval of a feed whose document new entries may replace between two polls: a share of the time
#: in which they replace it, and the minimum.
OVERFLOW_SHARE = 0.5
OVERFLOW_MIN_S = MINUTE_S
#: Maximum relative increase of the minimum interval. It is multiplied by the phase of the feed and
#: separates feeds that were polled at the same time.
PHASE_JITTER_SHARE = 0.2

#: Share of the budget that policies plan for. The rest is a margin for their corrections.
PLANNED_SHARE = 0.995

#: Bytes on the wire of a poll that is answered with 304: a TLS handshake with certificates (about
#: 4.5 kB; polls of a host are too far apart to reuse a connection), TCP, and both headers.
NOT_MODIFIED_BYTES = 6000.0
#: Weight of the latest poll in the running means of a feed's transfer and of its 304 share.
LEARNING_RATE = 0.1
#: Minimum 304 share of unchanged polls for a feed to count as supporting conditional requests, and
#: the share assumed after a first document with validators (ETag, Last-Modified).
CONDITIONAL_SHARE = 0.5
ASSUMED_CONDITIONAL_SHARE = 0.75

#: Facts about a feed, one record per feed. Times are epoch seconds; 0 means "not stated".
FACTS = np.dtype(
    [
        ("polled_at", "f8"),  # time of the last poll; -inf before the first
        ("stated_s", "f8"),  # longest interval that the last response stated
        ("stated_by", "u1"),  # code of that statement: TTL, UPDATE_PERIOD or FRESHNESS_LIFETIME
        ("retry_at", "f8"),  # time from Retry-After; -inf for none
        ("backoff_until", "f8"),  # end of the backoff after failures; -inf for none
        ("override_s", "f8"),  # minimum interval that subscribers have set
        ("not_modified", "f4"),  # share of unchanged polls that were answered with 304
        ("document_bytes", "f4"),  # size of a full document on the wire
        ("poll_bytes", "f4"),  # mean transfer of a poll, without that of a 304
        ("entries", "i4"),  # number of entries in the last document
        ("window", "i4"),  # most entries seen in a document; 0 for no limit
        ("mean_gap_s", "f8"),  # mean gap between the entries of the last document; nan if unknown
        ("skip", "u1", (HOURS_PER_WEEK // 8,)),  # bits: hours of the week in which not to poll
    ]
)

#: Codes of the constraints that can determine the earliest time of a poll; indexes of `CODES`.
(
    UNCONSTRAINED,
    MIN_INTERVAL,
    FULL_DOCUMENT,
    OVERRIDE,
    OVERFLOW,
    TTL,
    UPDATE_PERIOD,
    FRESHNESS_LIFETIME,
    RETRY_AFTER,
    BACKOFF,
) = range(10)
#: Reason codes (`tidings.reasons`) of these constraints.
CODES = (
    "",
    "min_interval",
    "min_interval_full",
    "min_interval_override",
    "min_interval_overflow",
    "ttl",
    "update_period",
    "fresh",
    "retry_after",
    "backoff",
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Minimum and maximum time between polls of a feed, as the operator configured them."""

    #: Minimum for feeds without a stated interval that answer with 304; seconds, 0 for none.
    min_interval_s: float = MIN_INTERVAL_S
    #: Maximum, unless the earliest allowed time is later; seconds.
    max_interval_s: float = MAX_INTERVAL_S


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Constraints:
    """Poll constraints of several feeds; each attribute has one element per feed."""

    earliest: Floats  #: earliest allowed poll in epoch seconds, -inf for any time
    min_interval_s: Floats  #: minimum time between polls, according to the current facts
    max_interval_s: Floats  #: maximum time between polls
    cost: Floats  #: cost of a poll, 1 for one that is answered with 304
    skip: Bools | None  #: (n, 168) hours of the week in which not to poll; None if there are none
    code: npt.NDArray[np.uint8]  #: code of the constraint that determines `earliest`

    def of(self, rows: Rows) -> "Constraints":
        """Return the constraints of the feeds with these row numbers."""
        return Constraints(
            self.earliest[rows],
            self.min_interval_s[rows],
            self.max_interval_s[rows],
            self.cost[rows],
            None if self.skip is None else self.skip[rows],
            self.code[rows],
        )


def no_facts(n: int) -> npt.NDArray[np.void]:
    """Return n records of facts for feeds about which nothing is known."""
    facts = np.zeros(n, dtype=FACTS)
    for name in ("polled_at", "retry_at", "backoff_until"):
        facts[name] = -np.inf
    facts["mean_gap_s"] = np.nan
    return facts


def constrain(facts: npt.NDArray[np.void], phase: Floats, limits: Limits) -> Constraints:
    """Compute the poll constraints of feeds from the facts about them (`FACTS`).

    ``phase`` in [0, 1) lengthens the minimum interval of each feed by up to `PHASE_JITTER_SHARE`,
    except where the publisher states an interval.
    """
    n = len(facts)
    minimum = limits.min_interval_s
    interval = np.full(n, float(minimum))
    code = np.full(n, MIN_INTERVAL, dtype=np.uint8)

    full = facts["not_modified"] < CONDITIONAL_SHARE
    large = np.clip(facts["document_bytes"] / LARGE_BYTES, 1.0, LARGE_FACTOR_MAX)
    interval[full] *= FULL_FACTOR * large[full]
    code[full] = FULL_DOCUMENT

    overridden = facts["override_s"] > 0
    # The operator may have raised the minimum since the override was set.
    override = np.maximum(facts["override_s"], minimum)
    interval[overridden], code[overridden] = override[overridden], OVERRIDE

    overflow = np.maximum(OVERFLOW_SHARE * overflow_s(facts), OVERFLOW_MIN_S)
    overflows = (overflow < interval) & ~overridden
    interval[overflows], code[overflows] = overflow[overflows], OVERFLOW
    interval *= 1 + PHASE_JITTER_SHARE * phase

    stated_s = facts["stated_s"]
    stated = stated_s > 0
    bounded = np.clip(stated_s, STATED_SHARE * minimum, STATED_MAX_S)
    stated &= ~(overridden & (override > bounded))
    interval[stated], code[stated] = bounded[stated], facts["stated_by"][stated]

    # After a failure the backoff replaces the interval.
    failing = ~np.isneginf(facts["backoff_until"])
    earliest = np.where(failing, facts["backoff_until"], facts["polled_at"] + interval)
    code[failing] = BACKOFF
    later = facts["retry_at"] > earliest
    earliest[later], code[later] = facts["retry_at"][later], RETRY_AFTER
    code[np.isneginf(earliest)] = UNCONSTRAINED
    return Constraints(
        earliest=earliest,
        min_interval_s=interval,
        max_interval_s=np.full(n, limits.max_interval_s),
        cost=1 + marginal_bytes(facts) / NOT_MODIFIED_BYTES,
        skip=unpack_skip_hours(facts["skip"]),
        code=code,
    )


def marginal_bytes(facts: npt.NDArray[np.void]) -> Floats:
    """Return the bytes per day that one more poll per day would transfer (marginal transfer).

    A changed document must be fetched once in any case. For a feed that answers with 304, the
    marginal transfer is therefore less than the mean transfer of its polls. With changes at rate r
    and a gap g between polls, (1 - exp(-r g)) / g documents are transferred per day. The
    derivative with respect to 1 / g is c + (1 - c) ln(1 - c), where c = 1 - exp(-r g) is the share
    of polls that transfer a document. If the server sends the document every time, c is 1, and
    each poll adds the size of the document.
    """
    size = np.maximum(facts["document_bytes"].astype(np.float64), 1.0)
    share = np.clip(facts["poll_bytes"] / size, 0.0, 1.0)
    unchanged = np.maximum(1 - share, 1e-12)
    marginal: Floats = size * (share + unchanged * np.log(unchanged))
    return marginal


def apply_constraints(feeds: Feeds, rows: Rows | slice, constraints: Constraints) -> None:
    """Write constraints into the ``rows`` of the policy's table of feeds."""
    feeds.earliest[rows] = constraints.earliest
    feeds.min_interval_s[rows] = constraints.min_interval_s
    feeds.max_interval_s[rows] = constraints.max_interval_s
    feeds.cost[rows] = constraints.cost
    if constraints.skip is not None and feeds.skip is None:
        feeds.skip = np.zeros((len(feeds), HOURS_PER_WEEK), dtype=np.bool_)
    if feeds.skip is not None:
        feeds.skip[rows] = False if constraints.skip is None else constraints.skip


def reason_of(constraints: Constraints, facts: npt.NDArray[np.void], i: int) -> Reason:
    """Return why feed ``i`` may not be polled earlier, or `NO_REASON` without a constraint."""
    code = int(constraints.code[i])
    if code == UNCONSTRAINED:
        return NO_REASON
    if code == RETRY_AFTER:
        return reason("retry_after", wait_s=float(facts["retry_at"][i] - facts["polled_at"][i]))
    if code == BACKOFF:
        wait_s = float(facts["backoff_until"][i] - facts["polled_at"][i])
        return reason("backoff", wait_s=wait_s, failures=1, error="")
    stated = code in (TTL, UPDATE_PERIOD, FRESHNESS_LIFETIME)
    seconds = facts["stated_s"][i] if stated else constraints.min_interval_s[i]
    return reason(CODES[code], interval_s=float(seconds))


# --- capacity -------------------------------------------------------------------------------------


def capacity_per_day(feeds: Feeds) -> Floats:
    """Return the polls per day that the constraints of each feed allow, inf without a minimum."""
    with np.errstate(divide="ignore"):
        capacity = DAY_S / feeds.min_interval_s
    if feeds.skip is not None:
        capacity = capacity * (1 - feeds.skip.mean(axis=1))
    return capacity


def usable_budget(feeds: Feeds, budget_per_day: float) -> tuple[float, int]:
    """Return the part of a budget that the constraints allow, in polls per day.

    The second value is the number of feeds whose minimum interval keeps them below an equal share.
    """
    if not len(feeds):
        return budget_per_day, 0
    capacity = capacity_per_day(feeds)
    usable = min(PLANNED_SHARE * budget_per_day, float(capacity.sum()))
    limited_feeds = int((capacity < budget_per_day / len(feeds)).sum())
    return usable, limited_feeds


# --- learning the facts ---------------------------------------------------------------------------


def stated_interval(
    ttl_s: Floats, period_s: Floats, fresh_s: Floats
) -> tuple[Floats, npt.NDArray[np.uint8]]:
    """Return the longest interval in seconds that each publisher states, and its code.

    ``ttl_s`` is from RSS ttl, ``period_s`` from sy:updatePeriod, and ``fresh_s`` is the freshness
    lifetime of the response (RFC 9111 sect. 4.2.1). 0 means that the publisher states none.
    Implausible values (over a year) are ignored. The code is TTL, UPDATE_PERIOD or
    FRESHNESS_LIFETIME.
    """
    stated = np.stack([ttl_s, period_s, fresh_s])
    stated = np.where((stated > 0) & (stated <= MAX_PLAUSIBLE_INTERVAL_S), stated, 0.0)
    longest = stated.argmax(axis=0)
    return stated.max(axis=0), (longest + TTL).astype(np.uint8)


def learn_transfer(
    facts: npt.NDArray[np.void], bytes_: Floats, unchanged: Bools, not_modified: Bools
) -> npt.NDArray[np.void]:
    """Return the facts about the transfer of each feed, updated by one poll per feed.

    ``bytes_`` is the size of each response body. ``unchanged`` and ``not_modified`` state whether
    the poll found no change and whether the server answered with 304. The facts are exponential
    moving averages (EWMA).

    A poll without changes shows whether the server supports conditional requests: it does if it
    answers with 304, and does not if it sends the full document.
    """
    facts = facts.copy()
    first = facts["document_bytes"] <= 0
    document = ~not_modified & (bytes_ > 0)
    facts["document_bytes"] = np.where(document, bytes_, facts["document_bytes"])
    gain = np.where(first, 1.0, LEARNING_RATE)
    # After a first document with validators some polls will get 304: start from half of its size.
    sample = np.where(first & (facts["not_modified"] >= CONDITIONAL_SHARE), 0.5 * bytes_, bytes_)
    facts["poll_bytes"] += gain * (sample - facts["poll_bytes"])
    step = np.where(unchanged, not_modified - facts["not_modified"], 0.0)
    facts["not_modified"] += 3 * LEARNING_RATE * step
    return facts


def overflow_s(facts: npt.NDArray[np.void]) -> Floats:
    """Return the seconds in which new entries would replace a full document, inf if unknown.

    The estimate uses the mean gap between the entries of the last document.
    """
    entries, window = facts["entries"], facts["window"]
    full = (window > 0) & (entries >= np.maximum(window, 2)) & np.isfinite(facts["mean_gap_s"])
    return np.where(full, facts["mean_gap_s"] * entries, np.inf)


def skip_hours(hints: Hints) -> bytes:
    """Return RSS skipHours and skipDays as 168 bits, one per hour from Monday 0:00 GMT.

    The result is b"" if no hour is skipped, and also if all hours are.
    """
    if not hints.skip_hours and not hints.skip_days:
        return b""
    hour = np.arange(HOURS_PER_WEEK)
    skipped = np.isin(hour % 24, list(hints.skip_hours)) | np.isin(
        hour // 24, list(hints.skip_days)
    )
    return b"" if skipped.all() else np.packbits(skipped).tobytes()


def unpack_skip_hours(packed: npt.NDArray[np.uint8]) -> Bools | None:
    """Return which hours of the week each feed skips, or None if no feed skips any.

    ``packed`` has 21 bytes per feed. The result has the shape (n, 168).
    """
    if not packed.any():
        return None
    return np.unpackbits(packed, axis=1).astype(np.bool_)


def is_skipped(hours: bytes, at: float) -> bool:
    """Return whether the time ``at`` (epoch seconds) is in the hours from `skip_hours`."""
    if not hours:
        return False
    hour = int((at + 3 * DAY_S) // HOUR_S) % HOURS_PER_WEEK  # the Unix epoch was a Thursday
    return bool(hours[hour // 8] & (128 >> hour % 8))
