"""User accounts and the operations that one user can perform.

The web pages and the three APIs (Miniflux, Google Reader, Fever) are built on this package.
`UserService` authenticates users. `ReaderService` has the operations of one user (subscriptions,
entry state, rules and others), limited to that user's data. `EventBus` publishes changes to open
pages.
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
    "AlreadyExists",
    "ArticleUnavailable",
    "Event",
    "EventBus",
    "Forbidden",
    "NewToken",
    "NotFound",
    "ReaderService",
    "TooManyAttempts",
    "TrustedProxy",
    "UserService",
    "WrongPassword",
]
