"""Measure the delays of posts at an exchange node of the demo.

They are computed from the node's database and the simulated publication times. The requests seen by
the publisher server are not enough here, because a node also gets entries from peers.
"""

from typing import Any

import numpy as np

from tidings.demo.simulated_publishers import SimulatedPublishers
from tidings.store import Store
from tidings.store.connection import Connection


async def arrival_delays(
    store: Store, publishers: SimulatedPublishers, now: float
) -> dict[str, Any]:
    """Return statistics of the delays of posts that no hub pushes, in seconds.

    A post that is still in the feed document does not count as missed.
    """
    seen = dict(await store.read(_first_seen_times, publishers.start))
    trace, delays, missed = publishers.trace, list[float](), 0
    for post in np.flatnonzero((trace.times >= publishers.start) & (trace.times <= now)).tolist():
        feed = int(np.searchsorted(trace.offsets, post, side="right")) - 1
        if publishers.pushed[feed]:
            continue
        number = post - int(trace.offsets[feed])
        at = seen.get(f"{publishers.slugs[feed]}/{number}")
        if at is not None:
            delays.append(at - float(trace.times[post]))
        else:
            missed += int(publishers.published(feed, now) - number > trace.window[feed])
    delay_array = np.array(delays or [np.nan])
    post_count = len(delays) + missed
    return {
        "told": await store.read(_count_peer_entries, publishers.start),
        "p50_s": float(np.percentile(delay_array, 50)),
        "p90_s": float(np.percentile(delay_array, 90)),
        "mean_s": float(delay_array.mean()),
        "missed": missed,
        "missed_share": missed / post_count if post_count else float("nan"),
    }


def _first_seen_times(db: Connection, since: float) -> list[tuple[str, float]]:
    """Return the guid of each post and the time at which the node first saw it."""
    return db.execute(
        "SELECT identity, first_seen_at FROM entries WHERE first_seen_at > ?", (since,)
    ).fetchall()


def _count_peer_entries(db: Connection, since: float) -> int:
    """Return the number of posts that arrived from a peer before an own poll found them."""
    query = (
        "SELECT count(*) FROM entries "
        "WHERE first_seen_at > ? AND source IN ('neighbour', 'confirmed')"
    )
    return int(db.execute(query, (since,)).fetchone()[0])
