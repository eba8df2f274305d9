"""Those who read: how they prove who they are, what each is subscribed to, has read, starred, tagged, and wants to be told.

One core of operations; the pages and the three APIs are dialects of it. `People` says who somebody is; `Reading` is everything
that one user can do, and reaches nothing that is not theirs; `Events` tells live pages what has changed.
"""

from tidings.people.errors import Forbidden, NoArticle, NotFound, Taken, TooManyAttempts, WrongPassword
from tidings.people.events import Event, Events
from tidings.people.people import NewToken, People, Proxy
from tidings.people.reading import Reading

__all__ = [
    "Event",
    "Events",
    "Forbidden",
    "NewToken",
    "NoArticle",
    "NotFound",
    "People",
    "Proxy",
    "Reading",
    "Taken",
    "TooManyAttempts",
    "WrongPassword",
]
