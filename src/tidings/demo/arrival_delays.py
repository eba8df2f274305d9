"""Delays of posts in the database of an exchange node, by the simulated publication times.

The requests seen by the publisher server are not enough here: a node also gets entries from peers.
"""

from typing import Any

import numpy as np

from tidings.demo.simulated_publishers import SimulatedPublishers
from tidings.store import Store
from tidings.store.connection import Connection


async def arrival_delays(
    store: Store, publishers: SimulatedPublishers, now: float
) -> dict[str, Any]:
    """Return delay statistics of the posts that are not pushed by a hub.

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
    found = np.array(delays or [np.nan])
    judged = len(delays) + missed
    return {
        "told": await store.read(_count_peer_entries, publishers.start),
        "p50_s": float(np.percentile(found, 50)),
        "p90_s": float(np.percentile(found, 90)),
        "mean_s": float(found.mean()),
        "missed": missed,
        "missed_share": missed / judged if judged else float("nan"),
    }


def _first_seen_times(db: Connection, since: float) -> list[tuple[str, float]]:
    """Return the time at which each post was first seen, by its guid."""
    return db.execute(
        "SELECT identity, first_seen_at FROM entries WHERE first_seen_at > ?", (since,)
    ).fetchall()


def _count_peer_entries(db: Connection, since: float) -> int:
    """Count the posts that arrived from a peer first."""
    query = (
        "SELECT count(*) FROM entries "
        "WHERE first_seen_at > ? AND source IN ('neighbour', 'confirmed')"
    )
    return int(db.execute(query, (since,)).fetchone()[0])
