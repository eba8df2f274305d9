"""The one rule that says when a feed may be polled, and what a poll costs.

The service, the simulator, the budget forecast and the demo call `constrain` with what is known of each
feed (`FACTS`), and hand the result to the policy's table (`apply`). Pure: no I/O, no clock.

The minimum interval follows the evidence:

- the publisher states an interval (``Cache-Control: max-age``, ``Expires``, ``ttl``, ``sy:*``): the longest
  statement holds, in both directions, within a third of the operator's minimum and a day;
- it states nothing and answers conditional requests with 304: the operator's minimum (`Limits`);
- it states nothing and sends the full document every time: four times that, longer for large documents;
- subscribers set one themselves: that instead of the last two, and never less than a statement;
- the document would be replaced sooner: half of that time, unless the publisher states an interval.

``Retry-After`` and the backoff after failures are separate and always hold. docs/politeness.md gives the
reasons for the numbers.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidings.document import Hints
from tidings.model import DAY_S, HOUR_S, MINUTE_S, WEEK_S, Bools, Floats, Rows
from tidings.policy.base import HOURS_PER_WEEK, Feeds
from tidings.reasons import NO_REASON, Reason, reason

MIN_INTERVAL_S = 15 * MINUTE_S
MAX_INTERVAL_S = WEEK_S
#: A publisher's statement counts down to this share of the operator's minimum: 5 min by default.
STATED_SHARE = 1 / 3
#: ... and up to a day: feeds of daily papers have been seen with a ttl of a month.
STATED_MAX_S = DAY_S
#: More than this is a mistake of units (seconds or milliseconds written as minutes), and is ignored.
MAX_PLAUSIBLE_INTERVAL_S = 366 * DAY_S
#: Minimum intervals for a feed that always sends its full document, and the size from which it grows.
FULL_FACTOR = 4.0
LARGE_BYTES = 262_144.0
LARGE_FACTOR_MAX = 4.0
#: A feed is polled after this share of the time in which new entries would replace its document ...
OVERFLOW_SHARE = 0.5
#: ... but never more often than this.
OVERFLOW_MIN_S = MINUTE_S
#: Minimum intervals are stretched by up to this share, by the feed's phase: feeds that were polled
#: together part.
PHASE_JITTER_SHARE = 0.2

#: Policies plan for this share of the budget: their corrections then stay below it.
PLANNED_SHARE = 0.995

#: Bytes on the wire of a poll that is answered with 304: a TLS handshake with its certificates (about
#: 4.5 kB, since polls of one host are too far apart to keep the connection), TCP, and both headers.
NOT_MODIFIED_BYTES = 6000.0
#: Weight of the last poll in the running mean of a feed's transfer and of its 304 share.
LEARNING_RATE = 0.1
#: Share of unchanged polls that are answered with 304 from which a feed counts as conditional, and what
#: a first document with validators is believed to promise.
CONDITIONAL_SHARE = 0.5
ASSUMED_CONDITIONAL_SHARE = 0.75

#: What is known of a feed, one record each. Times are epoch seconds; 0 stands for "not stated".
FACTS = np.dtype(
    [
        ("polled_at", "f8"),  # the last poll; -inf before the first
        ("stated_s", "f8"),  # the longest interval that the publisher stated in the last answer
        ("stated_by", "u1"),  # TTL, UPDATE_PERIOD or FRESH
        ("retry_at", "f8"),  # Retry-After, -inf for none
        ("backoff_until", "f8"),  # after failures, -inf for none
        ("override_s", "f8"),  # minimum interval that subscribers have set
        ("not_modified", "f4"),  # share of unchanged polls that were answered with 304
        ("document_bytes", "f4"),  # of a full document, on the wire
        ("poll_bytes", "f4"),  # mean transfer of a poll beyond that of a 304
        ("entries", "i4"),  # in the last document
        ("window", "i4"),  # entries that a document holds, as far as is known; 0 for no limit
        ("mean_gap_s", "f8"),  # between the entries of the last document; nan if unknown
        ("skip", "u1", (HOURS_PER_WEEK // 8,)),  # hours of the week not to poll in, Monday first
    ]
)

#: Reason codes, in the order in which ties are decided.
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
    """The operator's limits."""

    min_interval_s: float = (
        MIN_INTERVAL_S  #: where publishers say nothing and answer with 304; 0: none
    )
    max_interval_s: float = MAX_INTERVAL_S  #: no feed waits longer, unless its publisher says so


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Constraints:
    """When each feed may be polled next; one element per feed."""

    earliest: Floats  #: no poll before this time
    min_interval_s: Floats  #: between any two polls, as long as nothing else is learned
    max_interval_s: Floats
    cost: Floats  #: of a poll, 1 for one that is answered with 304
    skip: Bools | None  #: (n, 168) hours of the week not to poll in; None where there are none
    code: npt.NDArray[np.uint8]  #: what sets `earliest`

    def of(self, rows: Rows) -> "Constraints":
        """Those of some of the feeds."""
        return Constraints(
            self.earliest[rows],
            self.min_interval_s[rows],
            self.max_interval_s[rows],
            self.cost[rows],
            None if self.skip is None else self.skip[rows],
            self.code[rows],
        )


def no_facts(n: int) -> npt.NDArray[np.void]:
    """Records of feeds of which nothing is known."""
    facts = np.zeros(n, dtype=FACTS)
    for name in ("polled_at", "retry_at", "backoff_until"):
        facts[name] = -np.inf
    facts["mean_gap_s"] = np.nan
    return facts


def constrain(facts: npt.NDArray[np.void], phase: Floats, limits: Limits) -> Constraints:
    """Apply the rule; ``phase`` in [0, 1) stretches the minimum interval of each feed."""
    n = len(facts)
    shortest = limits.min_interval_s
    interval = np.full(n, float(shortest))
    code = np.full(n, MIN_INTERVAL, dtype=np.uint8)

    full = facts["not_modified"] < CONDITIONAL_SHARE
    large = np.clip(facts["document_bytes"] / LARGE_BYTES, 1.0, LARGE_FACTOR_MAX)
    interval[full] *= FULL_FACTOR * large[full]
    code[full] = FULL_DOCUMENT

    chosen = facts["override_s"] > 0
    override = np.maximum(
        facts["override_s"], shortest
    )  # the operator may have raised the minimum since
    interval[chosen], code[chosen] = override[chosen], OVERRIDE

    overflow = np.maximum(OVERFLOW_SHARE * overflow_s(facts), OVERFLOW_MIN_S)
    soon = (overflow < interval) & ~chosen
    interval[soon], code[soon] = overflow[soon], OVERFLOW
    interval *= 1 + PHASE_JITTER_SHARE * phase

    stated_s = facts["stated_s"]
    stated = stated_s > 0
    obeyed = np.clip(stated_s, STATED_SHARE * shortest, STATED_MAX_S)
    stated &= ~(chosen & (override > obeyed))
    interval[stated], code[stated] = obeyed[stated], facts["stated_by"][stated]

    # After a failure the backoff stands in for the interval.
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
    """Bytes that one more poll a day of each feed adds to a day's transfer.

    A document that has changed must be fetched once in any case, so for a feed that answers with 304 this is less than the
    mean transfer of its polls. With changes at rate r and a gap g, polls transfer (1 - exp(-r g)) / g documents a day;
    the derivative by 1 / g is c + (1 - c) ln(1 - c), c = 1 - exp(-r g) being the share of polls that transfer one. For a
    feed that sends its document every time c is 1, and a poll adds the document.
    """
    size = np.maximum(facts["document_bytes"].astype(np.float64), 1.0)
    share = np.clip(facts["poll_bytes"] / size, 0.0, 1.0)
    left = np.maximum(1 - share, 1e-12)
    added: Floats = size * (share + left * np.log(left))
    return added


def apply_constraints(feeds: Feeds, rows: Rows | slice, constraints: Constraints) -> None:
    """Write constraints into the policy's table."""
    feeds.earliest[rows] = constraints.earliest
    feeds.min_interval_s[rows] = constraints.min_interval_s
    feeds.max_interval_s[rows] = constraints.max_interval_s
    feeds.cost[rows] = constraints.cost
    if constraints.skip is not None and feeds.skip is None:
        feeds.skip = np.zeros((len(feeds), HOURS_PER_WEEK), dtype=np.bool_)
    if feeds.skip is not None:
        feeds.skip[rows] = False if constraints.skip is None else constraints.skip


def reason_of(constraints: Constraints, facts: npt.NDArray[np.void], i: int) -> Reason:
    """Why feed ``i`` may not be polled before its earliest time; none where any time will do."""
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
    """Polls a day that the minimum interval of each feed allows; inf where there is none."""
    with np.errstate(divide="ignore"):
        most = DAY_S / feeds.min_interval_s
    if feeds.skip is not None:
        most = most * (1 - feeds.skip.mean(axis=1))
    return most


def usable_budget(feeds: Feeds, budget_per_day: float) -> tuple[float, int]:
    """How much of a budget can be used, and how many feeds the minimum interval keeps below their share."""
    if not len(feeds):
        return budget_per_day, 0
    capacity = capacity_per_day(feeds)
    usable = min(PLANNED_SHARE * budget_per_day, float(capacity.sum()))
    held_back = int((capacity < budget_per_day / len(feeds)).sum())
    return usable, held_back


# --- learning the facts ---------------------------------------------------------------------------


def stated_interval(
    ttl_s: Floats, period_s: Floats, fresh_s: Floats
) -> tuple[Floats, npt.NDArray[np.uint8]]:
    """The longest interval that a publisher states, and which statement it is; 0 stands for none.

    Absurd ones (over a year) are ignored.
    """
    said = np.stack([ttl_s, period_s, fresh_s])
    said = np.where((said > 0) & (said <= MAX_PLAUSIBLE_INTERVAL_S), said, 0.0)
    longest = said.argmax(axis=0)
    return said.max(axis=0), (longest + TTL).astype(np.uint8)


def learn_transfer(
    facts: npt.NDArray[np.void], bytes_: Floats, unchanged: Bools, not_modified: Bools
) -> npt.NDArray[np.void]:
    """Take in what polls transferred: ``bytes_`` of body each; returns the records changed.

    An unchanged poll is evidence about conditional requests: 304 speaks for them, a full document with
    nothing new in it against.
    """
    facts = facts.copy()
    first = facts["document_bytes"] <= 0
    document = ~not_modified & (bytes_ > 0)
    facts["document_bytes"] = np.where(document, bytes_, facts["document_bytes"])
    gain = np.where(first, 1.0, LEARNING_RATE)
    # A first document is followed by 304s where it can be: half of it is a fair first guess.
    seen = np.where(first & (facts["not_modified"] >= CONDITIONAL_SHARE), 0.5 * bytes_, bytes_)
    facts["poll_bytes"] += gain * (seen - facts["poll_bytes"])
    step = np.where(unchanged, not_modified - facts["not_modified"], 0.0)
    facts["not_modified"] += 3 * LEARNING_RATE * step
    return facts


def overflow_s(facts: npt.NDArray[np.void]) -> Floats:
    """How soon new entries would replace a full document, at the pace of those in it; inf if never."""
    entries, window = facts["entries"], facts["window"]
    full = (window > 0) & (entries >= np.maximum(window, 2)) & np.isfinite(facts["mean_gap_s"])
    return np.where(full, facts["mean_gap_s"] * entries, np.inf)


def skip_hours(hints: Hints) -> bytes:
    """skipHours and skipDays as 168 bits, Monday 0:00 GMT first; nothing where they would skip all."""
    if not hints.skip_hours and not hints.skip_days:
        return b""
    hour = np.arange(HOURS_PER_WEEK)
    skipped = np.isin(hour % 24, list(hints.skip_hours)) | np.isin(
        hour // 24, list(hints.skip_days)
    )
    return b"" if skipped.all() else np.packbits(skipped).tobytes()


def unpack_skip_hours(packed: npt.NDArray[np.uint8]) -> Bools | None:
    """Hours of the week (n, 168) from 21 bytes each; None where no feed skips any."""
    if not packed.any():
        return None
    return np.unpackbits(packed, axis=1).astype(np.bool_)


def is_skipped(hours: bytes, at: float) -> bool:
    """Whether a time falls into the hours that `skip_hours` gave."""
    if not hours:
        return False
    hour = int((at + 3 * DAY_S) // HOUR_S) % HOURS_PER_WEEK  # the epoch was a Thursday
    return bool(hours[hour // 8] & (128 >> hour % 8))
