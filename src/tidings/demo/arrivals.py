"""How late posts were in a store that has them from more than its own looks, by the world's own dates."""

from typing import Any

import numpy as np

from tidings.demo.world import World
from tidings.store import Store
from tidings.store.connection import Connection


async def arrived(store: Store, world: World, now: float) -> dict[str, Any]:
    """Of the posts that have to be looked for; what can still be found in its document does not count as missed."""
    seen = dict(await store.read(_arrivals, world.start))
    trace, delays, missed = world.trace, list[float](), 0
    for post in np.flatnonzero((trace.times >= world.start) & (trace.times <= now)).tolist():
        feed = int(np.searchsorted(trace.offsets, post, side="right")) - 1
        if world.pushed[feed]:
            continue
        number = post - int(trace.offsets[feed])
        at = seen.get(f"{world.slugs[feed]}/{number}")
        if at is not None:
            delays.append(at - float(trace.times[post]))
        else:
            missed += int(world.published(feed, now) - number > trace.window[feed])
    found = np.array(delays or [np.nan])
    judged = len(delays) + missed
    return {
        "told": await store.read(_told, world.start),
        "p50_s": float(np.percentile(found, 50)),
        "p90_s": float(np.percentile(found, 90)),
        "mean_s": float(found.mean()),
        "missed": missed,
        "missed_share": missed / judged if judged else float("nan"),
    }


def _arrivals(db: Connection, since: float) -> list[tuple[str, float]]:
    """By the guid that the publisher gave each post."""
    return db.execute(
        "SELECT identity, first_seen_at FROM entries WHERE first_seen_at > ?", (since,)
    ).fetchall()


def _told(db: Connection, since: float) -> int:
    """Posts that neighbours were the first to bring."""
    query = "SELECT count(*) FROM entries WHERE first_seen_at > ? AND source IN ('neighbour', 'confirmed')"
    return int(db.execute(query, (since,)).fetchone()[0])
