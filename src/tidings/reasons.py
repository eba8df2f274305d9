"""Reasons of decisions as data: a code with parameters, rendered to text for display.

A reason is stored as JSON and rendered only for display (`render`), so that it can be translated,
counted and filtered. No other module writes or edits the text of a reason. Parameters have their
unit in their name: ``interval_s`` and ``wait_s`` are seconds, ``per_day`` posts a day.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from tidings.formatting import count, duration, duration_short, figures
from tidings.i18n import _

Params = dict[str, str | float | int | bool]


class Reason(Struct, frozen=True, omit_defaults=True):
    """A code with parameters; ``cause`` is the reason that this one modifies, if any."""

    code: str = ""
    params: Params = {}
    cause: "Reason | None" = None

    def __bool__(self) -> bool:
        return bool(self.code)


NO_REASON = Reason()

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Reason)


def reason(code: str, **params: str | float | int | bool) -> Reason:
    """Create a reason from its code and parameters."""
    return Reason(code, params)


def with_modifier(cause: Reason, code: str, **params: str | float | int | bool) -> Reason:
    """Add a modifier to a reason, replacing an outer modifier with the same code."""
    if cause.code == code:
        cause = cause.cause or NO_REASON
    return Reason(code, params, cause or None)


def encode(reason: Reason) -> str:
    """Encode a reason as JSON for the store; an empty string if there is none."""
    return _encoder.encode(reason).decode() if reason else ""


def decode(text: str) -> Reason:
    """Decode a stored reason; text of older versions or of a plug-in gets the code "text"."""
    if not text:
        return NO_REASON
    if text.startswith("{"):
        try:
            return _decoder.decode(text)
        except msgspec.MsgspecError:
            pass
    return reason("text", text=text)


def render(reason: Reason) -> str:
    """Render a reason in the language of the interface; unknown codes show their parameters."""
    if not reason:
        return ""
    write = _TEXTS.get(reason.code)
    try:
        text = _unknown(reason.code, reason.params) if write is None else write(reason.params)
    except (KeyError, TypeError, ValueError):  # parameters of another version
        text = _unknown(reason.code, reason.params)
    return f"{text}; {render(reason.cause)}" if reason.cause else text


def to_json(reason: Reason) -> dict[str, Any] | None:
    """Return code, parameters and text, for JSON output; None if there is no reason."""
    if not reason:
        return None
    found: dict[str, Any] = {"code": reason.code, "params": reason.params, "text": render(reason)}
    return {**found, "cause": to_json(reason.cause)} if reason.cause else found


def _unknown(code: str, params: Params) -> str:
    shown = ", ".join(f"{key} {value}" for key, value in params.items())
    return f"{code} ({shown})" if shown else code


# --- texts ----------------------------------------------------------------------------------------

_FIXED = {
    "added": lambda: _("new feed, not checked before"),
    "added_manually": lambda: _("added manually"),
    "added_again": lambda: _("subscribed to again"),
    "manual": lambda: _("requested manually"),
    "hub_notified": lambda: _("its WebSub hub announced a new post"),
    "hub_pushed": lambda: _("pushed by its WebSub hub"),
    "peer_sent": lambda: _("sent by a peer"),
    "peer_disputed": lambda: _("a peer reports that one of its posts is forged"),
    "gap_repair": lambda: _("posts were missed between two checks"),
    "no_such_feed": lambda: _("there is no such feed"),
    "host_rate_limit": lambda: _("waiting for the host's rate limit"),
    "new_feed": lambda: _("new: its posting rate is not known yet"),
    "budget_spent": lambda: _("the request budget is used up for now"),
    "peer_polled": lambda: _("a peer has just polled it"),
    "skip_hours": lambda: _("its publisher excludes this hour (skipHours, skipDays)"),
}


def _interval(text: Callable[[str], str]) -> Callable[[Params], str]:
    """Return a renderer that inserts the duration ``interval_s``."""
    return lambda params: text(duration(float(params["interval_s"])))


def _backoff(params: Params) -> str:
    return _(
        "%(error)s; %(failures)s in a row, next attempt %(wait)s after the last",
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
    """Render what `policy.price` expects; hours of the day are in UTC."""
    days = {"weekdays": _("on weekdays"), "weekends": _("at weekends")}.get(
        str(params["days"]), _("on all days")
    )
    if "from_hour" in params:
        hours = f"{int(params['from_hour']):02d}–{int(params['to_hour']):02d} h UTC"
        when = _("posts usually come %(days)s, %(hours)s", days=days, hours=hours)
    else:
        when = _("posts come %(days)s, at any hour", days=days)
    return _(
        "%(when)s; about %(per_day)s a day recently",
        when=when,
        per_day=figures(float(params["per_day"]), 2),
    )


def _planned(params: Params) -> str:
    per_day = float(params["polls_per_day"])
    if per_day <= 0:
        return _("%(policy)s gives this feed no polls at this budget", policy=params["policy"])
    if params.get("timed"):
        return _(
            "%(policy)s gives this feed %(polls)s polls a day, at the best times of its day",
            policy=params["policy"],
            polls=figures(per_day),
        )
    return _(
        "%(policy)s gives this feed %(polls)s polls a day, one every %(hours)s h",
        policy=params["policy"],
        polls=figures(per_day),
        hours=figures(24 / per_day),
    )


_RULES = {
    "configured": lambda: _("the configured interval"),
    "first_document": lambda: _("the mean gap of its first document"),
    "moving_average": lambda: _("the moving average of its gaps"),
    "expected_post": lambda: _("the expected time of its next post"),
    "trained_post": lambda: _("the expected time of its next post, from its training history"),
    "new_share": lambda: _("the share of new posts in its last document"),
    "newest_age": lambda: _("the age of its newest post"),
    "newest_gap": lambda: _("the gap between its two newest posts"),
}


def _adaptive(params: Params) -> str:
    rule = _RULES.get(str(params["rule"]))
    return _(
        "%(policy)s: %(hours)s h after the last poll, by %(rule)s",
        policy=params["policy"],
        hours=figures(float(params["interval_h"])),
        rule=rule() if rule else str(params["rule"]),
    )


def _fixed(text: Callable[[], str]) -> Callable[[Params], str]:
    """Return a renderer that ignores the parameters."""
    return lambda params: text()


_TEXTS: dict[str, Callable[[Params], str]] = {
    **{code: _fixed(text) for code, text in _FIXED.items()},
    "text": lambda params: str(params["text"]),
    "policy": lambda params: str(params["text"]),
    "min_interval": _interval(
        lambda s: _("it would be checked sooner, but %(s)s is its minimum interval", s=s)
    ),
    "min_interval_full": _interval(
        lambda s: _(
            "its server sends the full document every time: checked every %(s)s at most", s=s
        )
    ),
    "min_interval_override": _interval(
        lambda s: _("%(s)s is the minimum interval set by its subscribers", s=s)
    ),
    "min_interval_overflow": _interval(
        lambda s: _("its document is replaced quickly: checked every %(s)s at most", s=s)
    ),
    "max_interval": _interval(lambda s: _("every feed is checked at least every %(s)s", s=s)),
    "ttl": _interval(lambda s: _("its ttl is %(s)s", s=s)),
    "update_period": _interval(lambda s: _("its update period (sy:updatePeriod) is %(s)s", s=s)),
    "fresh": _interval(
        lambda s: _(
            "its server says the document stays fresh for %(s)s (Cache-Control, Expires)", s=s
        )
    ),
    "publisher_wait": lambda params: _(
        "its server asked us to wait another %(wait)s", wait=duration(float(params["wait_s"]))
    ),
    "retry_after": _retry_after,
    "backoff": _backoff,
    "host_paused": lambda params: _(
        "%(host)s asked us to wait another %(wait)s",
        host=params["host"],
        wait=duration(float(params["wait_s"])),
    ),
    "feed_moved": lambda params: _("it has moved to %(url)s", url=params["url"]),
    "retired": lambda params: _("no longer checked: %(text)s", text=params["text"]),
    "price": _price,
    "planned": _planned,
    "adaptive": _adaptive,
}
