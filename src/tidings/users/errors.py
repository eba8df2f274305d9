"""Errors that user operations raise, such as a missing object or a failed login."""

from tidings.errors import TidingsError, UsageError
from tidings.i18n import n_


class NotFound(UsageError):
    """Error for an object that does not exist or belongs to another user.

    Callers cannot distinguish the two cases.
    """


class AlreadyExists(UsageError):
    """Error for a name that another object already has."""


class Forbidden(TidingsError):
    """Error for an operation that requires the role `admin`."""


class ArticleUnavailable(TidingsError):
    """Error for an entry whose full text cannot be loaded; the message has the reason."""


class WrongPassword(TidingsError):
    """Error for a wrong user name or password."""


class TooManyAttempts(TidingsError):
    """Error for a login attempt during the backoff after failed logins.

    Even the correct password is refused. ``retry_after_s`` is the time until the next attempt.
    """

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(
            n_(
                "too many failed logins; try again in %(num)s second",
                "too many failed logins; try again in %(num)s seconds",
                round(retry_after_s),
            )
        )
        self.retry_after_s = retry_after_s
