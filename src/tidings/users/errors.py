"""What people are refused, each with the words to tell them."""

from tidings.errors import TidingsError, UsageError


class NotFound(UsageError):
    """It does not exist, or is not this user's: the two are not told apart."""


class AlreadyExists(UsageError):
    """There is one of this name already."""


class Forbidden(TidingsError):
    """Only an administrator may do this."""


class ArticleUnavailable(TidingsError):
    """The whole of an entry cannot be had."""


class WrongPassword(TidingsError):
    """Name and password do not belong together."""


class TooManyAttempts(TidingsError):
    """Somebody is guessing; the right password is not looked at either until the time is over."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"too many failed log-ins; try again in {retry_after_s:.0f} seconds")
        self.retry_after_s = retry_after_s
