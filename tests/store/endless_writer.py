"""Process that records polls until it is killed.

Usage: ``python -m tests.store.endless_writer LOCATION NOW``. Poll number k of a feed lists entries
2k to 2k + 4, so that consecutive documents overlap and no entry is missed. The feed's ``window``
counts its polls. A character is printed after each commit.
"""

import asyncio
import sys
from pathlib import Path

from msgspec.structs import replace

from tests.store.conftest import LEASE_S, Clock, entry
from tidings.store import Store
from tidings.store.feed_models import Estimate, PollOutcome

STEP, SHOWN = 2, 5


async def poll(store, feed, clock):
    shown = [
        entry(n, text=f"words of {n} " * 30)
        for n in range(feed.state.window * STEP, feed.state.window * STEP + SHOWN)
    ]
    known_entries = await store.known_entries(feed.id, [e.identity for e in shown])
    state = replace(feed.state, window=feed.state.window + 1, next_poll_at=clock() + 1)
    new = tuple(e for e in shown if e.identity not in known_entries)
    document = tuple(e.identity for e in shown)
    estimate = Estimate("price", b"%d" % state.window)
    return PollOutcome(
        feed_id=feed.id, at=clock(), state=state, new=new, document=document, estimate=estimate
    )


async def main(location, now):
    clock = Clock(now)
    async with Store.open(location, clock=clock, serving=True) as store:
        for _ in range(5000):  # more than any test allows
            leased_feeds = await store.lease_feeds(5, lease_s=LEASE_S)
            if leased_feeds:
                await store.record([await poll(store, feed, clock) for feed in leased_feeds])
            print("c", end="", flush=True)
            clock.forward(1)


if __name__ == "__main__":
    location = sys.argv[1]
    asyncio.run(main(location if "://" in location else Path(location), float(sys.argv[2])))
