"""Those who read: how they prove who they are, what each is subscribed to, has read, starred, tagged, and wants to be told.

One core of operations; the pages and the three APIs are dialects of it. `People` says who somebody is; `Reading` is everything
that one user can do, and reaches nothing that is not theirs; `Events` tells live pages what has changed.
"""

from tidings.users.errors import (
    AlreadyExists,
    ArticleUnavailable,
    Forbidden,
    NotFound,
    TooManyAttempts,
    WrongPassword,
)
from tidings.users.events import Event, EventBus
from tidings.users.reader_service import ReaderService
from tidings.users.user_service import NewToken, TrustedProxy, UserService

__all__ = [
    "Event",
    "EventBus",
    "Forbidden",
    "NewToken",
    "ArticleUnavailable",
    "NotFound",
    "UserService",
    "TrustedProxy",
    "ReaderService",
    "AlreadyExists",
    "TooManyAttempts",
    "WrongPassword",
]
