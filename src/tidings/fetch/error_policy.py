"""What an answer means for the feed's future: read on, slow down, stay away, retire, move. Pure rules, each with its reason.

Nothing is dropped silently: errors back off to a day, a feed that failed for a month is still tried once a month, and only
410, by which a publisher says that it is gone for good, ends the asking.
"""

from collections.abc import Mapping
from enum import StrEnum
from hashlib import blake2b
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from tidings.fetch.models import FetchProblem, FetchRequest, FetchResult, Problem
from tidings.formatting import duration_short
from tidings.model import DAY_S, HOUR_S
from tidings.reasons import NO_REASON, Reason, reason

BACKOFF_BASE_S = HOUR_S
BACKOFF_MAX_S = DAY_S
#: After this long without success a feed counts as dead; it is tried that seldom from then on, because domains do come back.
DEAD_AFTER_S = 30 * DAY_S
DEAD_RETRY_S = 30 * DAY_S
#: Waits are stretched by up to this share, by the feed's own number: feeds that failed together do not come back together.
JITTER = 0.1
#: A move is adopted after so many sightings of the same target in a row, which by our timing takes hours: portals, hijacks and
#: slips of a configuration also answer 301.
MOVE_SIGHTINGS = 3

#: Hosts that answer 403 where others answer 429. The last labels of the name are compared.
RATE_LIMIT_403_HOSTS = frozenset(
    {"reddit.com", "youtube.com", "medium.com", "substack.com", "vimeo.com", "deviantart.com"}
)
#: Headers of firewalls that check for robots; a 403 with one of these is about the asking, not about the document.
BOT_CHALLENGE_HEADERS = (
    "cf-mitigated",
    "x-amzn-waf-action",
    "x-sucuri-block",
    "x-datadome",
    "x-ddg-challenge",
)


def is_rate_limited(status: int, host: str, headers: Mapping[str, str]) -> bool:
    """Whether a whole host says "less": 429; 503 with a time; 403 where it is known to mean that."""
    if status == 429:
        return True
    if status in (403, 503) and "Retry-After" in headers:
        return True
    return status == 403 and ".".join(host.split(".")[-2:]) in RATE_LIMIT_403_HOSTS


def is_bot_challenge(headers: Mapping[str, str]) -> bool:
    """Whether a robot check answered in the publisher's place."""
    return any(name in headers for name in BOT_CHALLENGE_HEADERS)


def as_unreadable(request: FetchRequest, result: FetchResult, message: str) -> FetchResult:
    """A document that turned out to be no feed is a failure: it replaces neither validators nor digest, so it is read again."""
    error = FetchProblem(Problem.UNREADABLE, message)
    return replace(
        result,
        error=error,
        body=None,
        validators=request.validators,
        digest=request.body_digest,
        moved_to=None,
    )


class Action(StrEnum):
    """What to do with the feed."""

    READ = "read"  #: there is a document
    UNCHANGED = "unchanged"
    BACK_OFF = "back off"
    WAIT = "wait"  #: told to; nobody's fault
    RETIRE = "retire"


class FailureHistory(Struct, frozen=True):
    """What is remembered of a feed's failures; kept with the feed."""

    errors: int = 0  #: in a row
    failing_since: float | None = None
    has_succeeded: bool = False  #: has it ever given a document?
    is_owner_notified: bool = False  #: does its owner know that it is taken for dead?


class FetchDecision(Struct, frozen=True):
    """The decision, and the state to be kept."""

    action: Action
    history: FailureHistory
    earliest: float  #: no poll before this; -inf where the answer does not say
    reason: Reason  #: of `earliest`
    notice: str = ""  #: something that the feed's owner should be told now


def decide(result: FetchResult, history: FailureHistory, now: float, key: str) -> FetchDecision:
    """The rules. `key` names the feed (its id or address) and spreads the waits."""
    error = result.error
    if error is None:
        action = Action.UNCHANGED if result.unchanged else Action.READ
        return FetchDecision(action, FailureHistory(has_succeeded=True), float("-inf"), NO_REASON)
    if error.kind is Problem.PAUSED:
        until = result.retry_at or now
        host = urlsplit(result.url).hostname or ""
        return FetchDecision(
            Action.WAIT, history, until, reason("host_paused", host=host, wait_s=until - now)
        )
    if result.status == 410:
        message = "the publisher says that it is gone for good (410)"
        return FetchDecision(
            Action.RETIRE,
            history,
            float("inf"),
            reason("retired", text=message),
            f"Retired: {message}.",
        )

    since = now if history.failing_since is None else history.failing_since
    dead = now - since >= DEAD_AFTER_S
    failed = FailureHistory(
        history.errors + 1, since, history.has_succeeded, history.is_owner_notified or dead
    )
    rate_limited = result.rate_limited or (
        result.status == 403 and result.bot_challenged and history.has_succeeded
    )
    if rate_limited and result.retry_at is not None:
        wait_reason = reason("retry_after", error=error.message, wait_s=result.retry_at - now)
        return FetchDecision(
            Action.WAIT, failed, max(result.retry_at, result.fresh_until or now), wait_reason
        )
    steep = 400 <= result.status < 500 and not rate_limited
    wait_s = (DEAD_RETRY_S if dead else _backoff_s(failed.errors, steep)) * _jitter(
        key, failed.errors
    )
    earliest = max(now + wait_s, result.retry_at or now, result.fresh_until or now)
    wait_reason = reason(
        "backoff", error=error.message, failures=failed.errors, wait_s=earliest - now
    )
    action = Action.WAIT if rate_limited else Action.BACK_OFF
    notice = f"No document for {duration_short(now - since)}: {error.message}. It is still tried once a month."
    return FetchDecision(
        action,
        failed,
        earliest,
        wait_reason,
        notice if dead and not history.is_owner_notified else "",
    )


def _backoff_s(errors: int, steep: bool) -> float:
    """Doubling from an hour to a day; 4xx four-fold, since what is missing seldom returns within the hour."""
    return min(BACKOFF_BASE_S * (4.0 if steep else 2.0) ** min(errors - 1, 10), BACKOFF_MAX_S)


def _jitter(key: str, errors: int) -> float:
    digest = blake2b(f"{key} {errors}".encode(), digest_size=4).digest()
    return 1.0 + JITTER * int.from_bytes(digest, "big") / 2**32


class Move(Struct, frozen=True):
    """Sightings of a permanent redirect (301, 308) to one target; temporary ones leave no trace."""

    target: str
    sightings: int
    since: float

    @property
    def is_settled(self) -> bool:
        """Whether the feed's address should be changed to the target."""
        return self.sightings >= MOVE_SIGHTINGS


def update_move(move: Move | None, result: FetchResult, now: float) -> Move | None:
    """The sightings after this answer. A failure is no evidence either way; an answer from elsewhere ends the count."""
    if result.error is not None:
        return move
    if result.moved_to is None:
        return None
    if move is None or move.target != result.moved_to:
        return Move(result.moved_to, 1, now)
    return Move(move.target, move.sightings + 1, move.since)
