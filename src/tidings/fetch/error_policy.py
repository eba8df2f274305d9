"""Error policy after a fetch: exponential backoff (4xx, 5xx), 410 Gone, permanent redirects.

These are pure rules that return a decision with a reason. No feed is dropped silently: the delay
after errors grows to a day, a feed that failed for a month is still tried once a month, and only
410 (Gone) ends polling.
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

#: First delay after an error; it doubles up to `BACKOFF_MAX_S`.
BACKOFF_BASE_S = HOUR_S
#: Maximum delay after an error.
BACKOFF_MAX_S = DAY_S
#: Time without success after which a feed counts as dead.
DEAD_AFTER_S = 30 * DAY_S
#: Delay between retries of a dead feed: some domains are restored.
DEAD_RETRY_S = 30 * DAY_S
#: Maximum jitter as a share of the delay, derived from the feed's key, so that feeds which failed
#: together are not retried together.
JITTER = 0.1
#: Number of permanent redirects in a row to the same target after which a move is adopted. Captive
#: portals, hijacked domains and configuration errors also respond with 301.
MIN_MOVE_REDIRECTS = 3

#: Hosts that send 403 instead of 429 (compared by the last two labels).
RATE_LIMIT_403_HOSTS = frozenset(
    {"reddit.com", "youtube.com", "medium.com", "substack.com", "vimeo.com", "deviantart.com"}
)
#: Headers of bot protection: a 403 with one of these is about the client, not about the document.
BOT_CHALLENGE_HEADERS = (
    "cf-mitigated",
    "x-amzn-waf-action",
    "x-sucuri-block",
    "x-datadome",
    "x-ddg-challenge",
)


def is_rate_limited(status: int, host: str, headers: Mapping[str, str]) -> bool:
    """Return whether a response is a rate limit of the host.

    That is 429, 403 or 503 with Retry-After, and 403 of hosts that are known to mean a rate limit.
    """
    if status == 429:
        return True
    if status in (403, 503) and "Retry-After" in headers:
        return True
    return status == 403 and ".".join(host.split(".")[-2:]) in RATE_LIMIT_403_HOSTS


def is_bot_challenge(headers: Mapping[str, str]) -> bool:
    """Return whether the response is a bot challenge and not the publisher's."""
    return any(name in headers for name in BOT_CHALLENGE_HEADERS)


def as_unreadable(request: FetchRequest, result: FetchResult, message: str) -> FetchResult:
    """Return the result as a failure with ``message``: the document is no feed.

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
    """What to do with the feed after a fetch."""

    READ = "read"  #: process the new document
    UNCHANGED = "unchanged"
    BACK_OFF = "back off"
    WAIT = "wait"  #: the server limits us, the feed has not failed
    RETIRE = "retire"  #: stop polling


class FailureHistory(Struct, frozen=True):
    """A feed's consecutive failures; stored with the feed."""

    errors: int = 0  #: number in a row
    failing_since: float | None = None
    has_succeeded: bool = False  #: whether it ever returned a document
    is_owner_notified: bool = False  #: whether the owner was notified that it counts as dead


class FetchDecision(Struct, frozen=True):
    """The action after a fetch, its reason, and the state to be stored."""

    action: Action
    history: FailureHistory
    earliest: float  #: no poll before this time; -inf for no constraint
    reason: Reason  #: of `earliest`
    notice: str = ""  #: notification for the feed's owner


def decide(result: FetchResult, history: FailureHistory, now: float, key: str) -> FetchDecision:
    """Decide what a fetch result means for the feed; ``key`` (id or URL) seeds the jitter."""
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
            _("No longer checked: %(reason)s.", reason=message),
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
            "Failing for %(duration)s: %(error)s. Still checked once a month.",
            duration=duration_short(now - since),
            error=error.message,
        )
    return FetchDecision(action, failed, earliest, wait_reason, notice)


def _backoff_s(errors: int, is_client_error: bool) -> float:
    """Return the exponential backoff: from an hour to a day, factor 2 per error, 4 for 4xx.

    A missing document (4xx) is rarely restored within the hour.
    """
    factor = 4.0 if is_client_error else 2.0
    return min(BACKOFF_BASE_S * factor ** min(errors - 1, 10), BACKOFF_MAX_S)


def _jitter(key: str, errors: int) -> float:
    digest = blake2b(f"{key} {errors}".encode(), digest_size=4).digest()
    return 1.0 + JITTER * int.from_bytes(digest, "big") / 2**32


class Move(Struct, frozen=True):
    """Permanent redirects (301, 308) to one target; temporary redirects are not counted."""

    target: str
    count: int  #: number in a row
    since: float

    @property
    def is_settled(self) -> bool:
        """Whether the feed's URL is to be changed to the target."""
        return self.count >= MIN_MOVE_REDIRECTS


def update_move(move: Move | None, result: FetchResult, now: float) -> Move | None:
    """Return the move after a fetch; failures keep the count, a different target resets it."""
    if result.error is not None:
        return move
    if result.moved_to is None:
        return None
    if move is None or move.target != result.moved_to:
        return Move(result.moved_to, 1, now)
    return Move(move.target, move.count + 1, move.since)
