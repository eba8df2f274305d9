"""What polls say, and the arrays that policies are shown of it."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tidings.model import DAY_S, Documents, Floats
from tidings.policy import Feeds
from tidings.policy.base import HOURS_OF_WEEK
from tidings.store import Store
from tidings.store.rows import Estimate

#: Older posts say nothing about a feed's habits of today.
HISTORY_S = 180 * DAY_S
NO_TIMES: Floats = np.empty(0)


class Look(Struct, frozen=True):
    """What one poll (or push) means to the brain."""

    feed_id: int
    at: float
    weight: float = 1.0
    added_at: float = 0.0
    ok: bool = True  #: it was answered with a document, or that there is no new one
    times: Floats | None = None  #: of the document's entries, known ones first; None where there was none to read
    fresh: int = 0  #: so many of these are new
    gap: bool = False
    window: int = 0  #: entries that its document holds
    overflow_s: float = np.inf  #: in which a full document would be replaced
    earliest: float = -np.inf  #: the server's wish, or our patience after a failure
    why: str = ""  #: of `earliest`
    asked_gap_s: float | None = None  #: what the feed itself calls a good time between polls, if it does
    forbidden: bytes = b""  #: hours of the week, as in `FeedState`
    count: bool = True  #: whether it was a request, and to be paid for


class Decision(Struct, frozen=True):
    """The next poll."""

    at: float
    reason: str
    estimate: Estimate | None = None


async def history_of(store: Store, members: np.ndarray, now: float) -> tuple[Documents, Floats]:
    """What these feeds posted, and since when that is complete."""
    posts = await store.posting_times(now - HISTORY_S, members["feed_id"].tolist())
    posts = posts[posts["at"] <= now]
    first = np.searchsorted(posts["feed_id"], members["feed_id"], side="left")
    end = np.searchsorted(posts["feed_id"], members["feed_id"], side="right")
    oldest = np.where(end > first, np.append(posts["at"], np.inf)[first], np.inf)
    since = np.maximum(np.minimum(members["added_at"], oldest), now - HISTORY_S)
    return Documents(posts["at"].copy(), first, first, end, np.zeros(len(first), dtype=np.bool_)), since


def documents_of(times: Sequence[Floats], fresh: Sequence[int], gap: Sequence[bool]) -> Documents:
    """One batch for `Policy.observe`: the last ``fresh`` of each row's times are new."""
    end = np.cumsum([len(t) for t in times])
    first = end - [len(t) for t in times]
    flat = np.concatenate(times) if len(times) else NO_TIMES
    return Documents(flat, first, end - np.array(fresh, dtype=np.int64), end, np.array(gap, dtype=np.bool_))


def forbid(feeds: Feeds, row: int, hours: bytes) -> None:
    if feeds.forbidden is None:
        feeds.forbidden = np.zeros((len(feeds), HOURS_OF_WEEK), dtype=np.bool_)
    packed = np.frombuffer(hours, dtype=np.uint8) if hours else np.zeros(HOURS_OF_WEEK // 8, dtype=np.uint8)
    feeds.forbidden[row] = np.unpackbits(packed).astype(np.bool_)
