"""Reasons of scheduling decisions, each stored as a code with parameters.

A reason is stored as JSON and rendered only for display (`render`), so that it can be translated,
counted and filtered. No other module writes or edits the text of a reason. Parameters have their
unit in their name: ``interval_s`` and ``wait_s`` are in seconds, ``per_day`` is in posts per day.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from tidings.formatting import count, duration, duration_short, figures
from tidings.i18n import _

Params = dict[str, str | float | int | bool]


class Reason(Struct, frozen=True, omit_defaults=True):
    """Reason of a scheduling decision, as a code with parameters.

    ``cause`` is the reason that this reason modifies, or None.
    """

    code: str = ""
    params: Params = {}
    cause: "Reason | None" = None

    def __bool__(self) -> bool:
        return bool(self.code)


NO_REASON = Reason()

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Reason)


def reason(code: str, **params: str | float | int | bool) -> Reason:
    """Return a reason with a code and its parameters."""
    return Reason(code, params)


def with_modifier(cause: Reason, code: str, **params: str | float | int | bool) -> Reason:
    """Return a reason that modifies ``cause`` with another code.

    If ``cause`` has the same code already, that modifier is replaced instead of repeated.
    """
    if cause.code == code:
        cause = cause.cause or NO_REASON
    return Reason(code, params, cause or None)


def encode(reason: Reason) -> str:
    """Return a reason as JSON for the store, or an empty string if there is no reason."""
    return _encoder.encode(reason).decode() if reason else ""


def decode(text: str) -> Reason:
    """Return a reason from its stored text.

    Text that is not JSON, from older versions or from a plug-in, becomes a reason with the code
    "text".
    """
    if not text:
        return NO_REASON
    if text.startswith("{"):
        try:
            return _decoder.decode(text)
        except msgspec.MsgspecError:
            pass
    return reason("text", text=text)


def render(reason: Reason) -> str:
    """Return the text of a reason in the language of the interface.

    A reason with an unknown code is shown as its code and parameters.
    """
    if not reason:
        return ""
    write = _TEXTS.get(reason.code)
    try:
        text = _unknown(reason.code, reason.params) if write is None else write(reason.params)
    except (KeyError, TypeError, ValueError):  # parameters of another version
        text = _unknown(reason.code, reason.params)
    return f"{text}; {render(reason.cause)}" if reason.cause else text


def to_json(reason: Reason) -> dict[str, Any] | None:
    """Return code, parameters and text of a reason for JSON output.

    Returns None if there is no reason.
    """
    if not reason:
        return None
    values: dict[str, Any] = {"code": reason.code, "params": reason.params, "text": render(reason)}
    return {**values, "cause": to_json(reason.cause)} if reason.cause else values


def _unknown(code: str, params: Params) -> str:
    shown = ", ".join(f"{key} {value}" for key, value in params.items())
    return f"{code} ({shown})" if shown else code


# --- texts ----------------------------------------------------------------------------------------

_FIXED = {
    "added": lambda: _("the feed is new and has not been checked before"),
    "added_manually": lambda: _("a user added the feed"),
    "added_again": lambda: _("a user subscribed to the feed again"),
    "manual": lambda: _("a user requested this check"),
    "hub_notified": lambda: _("the WebSub hub announced a new post"),
    "hub_pushed": lambda: _("the WebSub hub sent new posts"),
    "peer_sent": lambda: _("a peer sent new posts"),
    "peer_disputed": lambda: _("a peer reported a forged post in this feed"),
    "gap_repair": lambda: _("posts were missed between two checks"),
    "no_such_feed": lambda: _("this feed does not exist"),
    "host_rate_limit": lambda: _("waiting for the host's rate limit"),
    "new_feed": lambda: _("the feed is new, so its posting rate is not known yet"),
    "budget_spent": lambda: _("the request budget is used up for now"),
    "peer_polled": lambda: _("a peer has just checked this feed"),
    "skip_hours": lambda: _("the publisher excludes this hour (skipHours, skipDays)"),
}


def _interval(text: Callable[[str], str]) -> Callable[[Params], str]:
    """Return a renderer that inserts the parameter ``interval_s`` as a duration into a text."""
    return lambda params: text(duration(float(params["interval_s"])))


def _backoff(params: Params) -> str:
    return _(
        "%(error)s; after %(failures)s in a row, tidings waits %(wait)s",
        error=params["error"],
        failures=count(float(params["failures"]), "failure"),
        wait=duration_short(float(params["wait_s"])),
    )


def _retry_after(params: Params) -> str:
    wait = duration(float(params["wait_s"]))
    if params.get("error"):
        return _(
            "%(error)s; the server asked us to wait %(wait)s", error=params["error"], wait=wait
        )
    return _("the server asked us to wait %(wait)s (Retry-After)", wait=wait)


def _price(params: Params) -> str:
    """Describe when the policy `price` expects posts. Hours of the day are in UTC."""
    days = {"weekdays": _("on weekdays"), "weekends": _("at weekends")}.get(
        str(params["days"]), _("every day")
    )
    if "from_hour" in params:
        hours = f"{int(params['from_hour']):02d}–{int(params['to_hour']):02d} h UTC"
        when = _("new posts usually appear %(days)s, %(hours)s", days=days, hours=hours)
    else:
        when = _("new posts appear %(days)s at any hour", days=days)
    return _(
        "%(when)s; recently about %(per_day)s posts a day",
        when=when,
        per_day=figures(float(params["per_day"]), 2),
    )


def _planned(params: Params) -> str:
    per_day = float(params["polls_per_day"])
    if per_day <= 0:
        return _(
            "the policy %(policy)s plans no checks of this feed at this budget",
            policy=params["policy"],
        )
    if params.get("timed"):
        return _(
            "the policy %(policy)s plans %(polls)s checks a day, at the hours when "
            "the feed usually posts",
            policy=params["policy"],
            polls=figures(per_day),
        )
    return _(
        "the policy %(policy)s plans %(polls)s checks a day, one every %(hours)s h",
        policy=params["policy"],
        polls=figures(per_day),
        hours=figures(24 / per_day),
    )


_RULES = {
    "configured": lambda: _("the configured interval"),
    "first_document": lambda: _("the mean time between posts at the first check"),
    "moving_average": lambda: _("the moving average of the time between posts"),
    "expected_post": lambda: _("the expected time of the next post"),
    "trained_post": lambda: _("the expected time of the next post, learned from older posts"),
    "new_share": lambda: _("the share of new posts at the last check"),
    "newest_age": lambda: _("the age of the newest post"),
    "newest_gap": lambda: _("the time between the two newest posts"),
}


def _adaptive(params: Params) -> str:
    rule = _RULES.get(str(params["rule"]))
    return _(
        "the policy %(policy)s waits %(hours)s h after each check, based on %(rule)s",
        policy=params["policy"],
        hours=figures(float(params["interval_h"])),
        rule=rule() if rule else str(params["rule"]),
    )


def _fixed(text: Callable[[], str]) -> Callable[[Params], str]:
    """Return a renderer for a text without parameters."""
    return lambda params: text()


_TEXTS: dict[str, Callable[[Params], str]] = {
    **{code: _fixed(text) for code, text in _FIXED.items()},
    "text": lambda params: str(params["text"]),
    "policy": lambda params: str(params["text"]),
    "min_interval": _interval(
        lambda s: _("held back: at most one check every %(s)s (minimum interval)", s=s)
    ),
    "min_interval_full": _interval(
        lambda s: _(
            "held back: at most one check every %(s)s, because the server always "
            "sends the full feed",
            s=s,
        )
    ),
    "min_interval_override": _interval(
        lambda s: _("held back: a user allows at most one check every %(s)s", s=s)
    ),
    "min_interval_overflow": _interval(
        lambda s: _(
            "held back: at most one check every %(s)s, although the feed lists posts only briefly",
            s=s,
        )
    ),
    "max_interval": _interval(lambda s: _("every feed is checked at least once every %(s)s", s=s)),
    "ttl": _interval(lambda s: _("the feed requests %(s)s between checks (ttl)", s=s)),
    "update_period": _interval(
        lambda s: _("the feed says that it is updated every %(s)s (sy:updatePeriod)", s=s)
    ),
    "fresh": _interval(
        lambda s: _(
            "the server says that the feed does not change for %(s)s (Cache-Control, Expires)", s=s
        )
    ),
    "publisher_wait": lambda params: _(
        "the server asked us to wait another %(wait)s", wait=duration(float(params["wait_s"]))
    ),
    "retry_after": _retry_after,
    "backoff": _backoff,
    "host_paused": lambda params: _(
        "%(host)s asked us to wait another %(wait)s",
        host=params["host"],
        wait=duration(float(params["wait_s"])),
    ),
    "feed_moved": lambda params: _("the feed has moved to %(url)s", url=params["url"]),
    "retired": lambda params: _("the feed is no longer checked: %(text)s", text=params["text"]),
    "price": _price,
    "planned": _planned,
    "adaptive": _adaptive,
}
