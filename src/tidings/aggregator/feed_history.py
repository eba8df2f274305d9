"""Posting history of all stored feeds as arrays, for simulations with real data."""

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tidings.aggregator.document_diff import window_sizes
from tidings.aggregator.poll_observation import posting_history, stored_constraint_facts
from tidings.aggregator.websub import reliability
from tidings.model import Floats, Ints
from tidings.store import Store


class FeedHistory(Struct, frozen=True):
    """Posts of the last months of all feeds that have been fetched at least once."""

    feed_ids: Ints
    window: Ints
    weight: Floats
    pushed: Floats  #: fraction of a feed's posts that a hub pushes
    facts: npt.NDArray[np.void]  #: data for the poll constraints (`policy.constraints.FACTS`)
    feed: Ints  #: index of each post's feed in the arrays above
    times: Floats  #: time of each post
    since: Floats  #: time from which the posts of each feed are known


async def load_feed_history(store: Store, now: float) -> FeedHistory:
    """Load the posts that are still stored, which excludes missed and deleted posts."""
    timings = await store.timings()
    members = timings[timings["window"] > 0]
    posts, since = await posting_history(store, members, now)
    feed, times = posts.new_entries()
    full = (members["dropped"] > 0) | (posts.count > members["window"])
    shares = {
        push.feed_id: reliability(push)
        for push in await store.expiring_push_subscriptions(np.inf)
        if push.state == "active"
    }
    return FeedHistory(
        feed_ids=members["feed_id"].copy(),
        window=window_sizes(members["window"], full, members["by_age"]),
        weight=members["weight"].copy(),
        facts=stored_constraint_facts(members, await store.forbidden_hours()),
        pushed=np.array([shares.get(feed_id, 0.0) for feed_id in members["feed_id"].tolist()]),
        feed=feed.astype(np.int64),
        times=times,
        since=since,
    )
