"""Rules for failed fetches, which set backoff, permanent redirects and the end of polling.

The rules are pure functions that return a decision with a reason. No feed is dropped silently: the
delay after errors grows to a day, a feed that failed for a month is still tried once a month, and
only 410 (Gone) ends polling.
"""

from collections.abc import Mapping
from enum import StrEnum
from hashlib import blake2b
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from tidings.fetch.models import FetchProblem, FetchRequest, FetchResult, Problem
from tidings.formatting import duration_short
from tidings.i18n import _
from tidings.model import DAY_S, HOUR_S
from tidings.reasons import NO_REASON, Reason, reason

#: Delay in seconds after the first error. It doubles with each error up to `BACKOFF_MAX_S`.
BACKOFF_BASE_S = HOUR_S
#: Maximum delay in seconds after an error.
BACKOFF_MAX_S = DAY_S
#: Time in seconds without success after which a feed is considered dead.
DEAD_AFTER_S = 30 * DAY_S
#: Delay in seconds between retries of a dead feed. There are retries because some domains are
#: restored.
DEAD_RETRY_S = 30 * DAY_S
#: Maximum jitter as a fraction of the delay. The jitter is derived from the feed's key, so that
#: feeds which failed together are not retried together.
JITTER = 0.1
#: Number of consecutive permanent redirects to the same target after which the feed's URL is
#: changed. It is more than one because captive portals, hijacked domains and configuration errors
#: also respond with 301.
MIN_MOVE_REDIRECTS = 3

#: Domains that send 403 instead of 429. The last two labels of a host name are compared.
RATE_LIMIT_403_HOSTS = frozenset(
    {"reddit.com", "youtube.com", "medium.com", "substack.com", "vimeo.com", "deviantart.com"}
)
#: Headers that bot protection sends. A 403 with one of them concerns the client, not the document.
BOT_CHALLENGE_HEADERS = (
    "cf-mitigated",
    "x-amzn-waf-action",
    "x-sucuri-block",
    "x-datadome",
    "x-ddg-challenge",
)


def is_rate_limited(status: int, host: str, headers: Mapping[str, str]) -> bool:
    """Return whether a response means that the host limits the rate of requests.

    Such responses are 429, 403 or 503 with Retry-After, and any 403 of `RATE_LIMIT_403_HOSTS`.
    """
    if status == 429:
        return True
    if status in (403, 503) and "Retry-After" in headers:
        return True
    return status == 403 and ".".join(host.split(".")[-2:]) in RATE_LIMIT_403_HOSTS


def is_bot_challenge(headers: Mapping[str, str]) -> bool:
    """Return whether bot protection sent the response instead of the publisher."""
    return any(name in headers for name in BOT_CHALLENGE_HEADERS)


def as_unreadable(request: FetchRequest, result: FetchResult, message: str) -> FetchResult:
    """Return the result as a failure, because the document is not a feed.

    Validators and digest stay those of the request, so that the document is parsed again next time.
    """
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
    """Action to take with the feed after a fetch."""

    READ = "read"  #: the document is new and must be processed
    UNCHANGED = "unchanged"
    BACK_OFF = "back off"
    WAIT = "wait"  #: the server limits requests, but the feed has not failed
    RETIRE = "retire"  #: polling of the feed ends


class FailureHistory(Struct, frozen=True):
    """Consecutive failures of a feed, which are stored with the feed."""

    errors: int = 0  #: number of consecutive failures
    failing_since: float | None = None
    has_succeeded: bool = False  #: whether the feed has ever returned a document
    is_owner_notified: bool = False  #: whether the owner was notified that the feed is dead


class FetchDecision(Struct, frozen=True):
    """Action after a fetch, with its reason and the failure history to store."""

    action: Action
    history: FailureHistory
    earliest: float  #: earliest time of the next poll, or -inf for no constraint
    reason: Reason  #: reason of `earliest`
    notice: str = ""  #: notification for the feed's owner


def decide(result: FetchResult, history: FailureHistory, now: float, key: str) -> FetchDecision:
    """Decide what to do with a feed after a fetch.

    ``key`` (the id or URL of the feed) seeds the jitter of the delay.
    """
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
        message = _("the publisher has removed the feed (410 Gone)")
        return FetchDecision(
            Action.RETIRE,
            history,
            float("inf"),
            reason("retired", text=message),
            _("The feed is no longer checked: %(reason)s.", reason=message),
        )

    since = now if history.failing_since is None else history.failing_since
    is_dead = now - since >= DEAD_AFTER_S
    failed = FailureHistory(
        history.errors + 1, since, history.has_succeeded, history.is_owner_notified or is_dead
    )
    rate_limited = result.rate_limited or (
        result.status == 403 and result.bot_challenged and history.has_succeeded
    )
    if rate_limited and result.retry_at is not None:
        wait_reason = reason("retry_after", error=error.message, wait_s=result.retry_at - now)
        return FetchDecision(
            Action.WAIT, failed, max(result.retry_at, result.fresh_until or now), wait_reason
        )
    is_client_error = 400 <= result.status < 500 and not rate_limited
    backoff_s = DEAD_RETRY_S if is_dead else _backoff_s(failed.errors, is_client_error)
    wait_s = backoff_s * _jitter(key, failed.errors)
    earliest = max(now + wait_s, result.retry_at or now, result.fresh_until or now)
    wait_reason = reason(
        "backoff", error=error.message, failures=failed.errors, wait_s=earliest - now
    )
    action = Action.WAIT if rate_limited else Action.BACK_OFF
    notice = ""
    if is_dead and not history.is_owner_notified:
        notice = _(
            "The feed has been failing for %(duration)s: %(error)s. It is now "
            "checked once a month.",
            duration=duration_short(now - since),
            error=error.message,
        )
    return FetchDecision(action, failed, earliest, wait_reason, notice)


def _backoff_s(errors: int, is_client_error: bool) -> float:
    """Return the exponential backoff in seconds, from an hour to a day.

    The factor per error is 2, or 4 for client errors (4xx), because a missing document is rarely
    restored within the hour.
    """
    factor = 4.0 if is_client_error else 2.0
    return min(BACKOFF_BASE_S * factor ** min(errors - 1, 10), BACKOFF_MAX_S)


def _jitter(key: str, errors: int) -> float:
    digest = blake2b(f"{key} {errors}".encode(), digest_size=4).digest()
    return 1.0 + JITTER * int.from_bytes(digest, "big") / 2**32


class Move(Struct, frozen=True):
    """Consecutive permanent redirects (301, 308) of a feed to one target."""

    target: str
    count: int  #: number of consecutive redirects
    since: float

    @property
    def is_settled(self) -> bool:
        """Whether the URL of the feed is to be changed to the target."""
        return self.count >= MIN_MOVE_REDIRECTS


def update_move(move: Move | None, result: FetchResult, now: float) -> Move | None:
    """Return the permanent redirects of a feed after another fetch, or None if there are none.

    A failed fetch does not change the count, and a different target resets it.
    """
    if result.error is not None:
        return move
    if result.moved_to is None:
        return None
    if move is None or move.target != result.moved_to:
        return Move(result.moved_to, 1, now)
    return Move(move.target, move.count + 1, move.since)
