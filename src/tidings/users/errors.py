"""Errors of user operations: not found, conflict, permission, authentication, rate limit."""

from tidings.errors import TidingsError, UsageError
from tidings.i18n import n_


class NotFound(UsageError):
    """An object that does not exist or belongs to another user; callers cannot distinguish."""


class AlreadyExists(UsageError):
    """A conflict: an object of this name already exists."""


class Forbidden(TidingsError):
    """An operation that requires the role `admin`."""


class ArticleUnavailable(TidingsError):
    """The full text of an entry that cannot be loaded; the message has the reason."""


class WrongPassword(TidingsError):
    """Failed authentication: wrong user name or password."""


class TooManyAttempts(TidingsError):
    """Login rate limit exceeded; even the correct password is refused during the backoff."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(
            n_(
                "too many failed logins; try again in %(num)s second",
                "too many failed logins; try again in %(num)s seconds",
                round(retry_after_s),
            )
        )
        self.retry_after_s = retry_after_s
