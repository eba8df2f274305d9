"""What the service does now, as values for the page, the API and Prometheus: read from the store and the living parts."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct

from tidings import __version__
from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.explain import Overview, overview
from tidings.aggregator.websub import Subscriber
from tidings.formatting import count
from tidings.reasons import render
from tidings.redaction import redact_password
from tidings.store import Store
from tidings.store.feed_models import Feed
from tidings.web.metrics import Family, PollCounters, Sample

#: Feeds named under "last" and "next".
MAX_LISTED_FEEDS = 5
#: A feed that has been due for so long, while nothing is under way and the budget would allow it, is being forgotten.
OVERDUE_AFTER_S = 600.0
#: Figures that took longer than this to gather are told again for so many times as long.
SLOW_QUERY_S, CACHE_TIME_FACTOR = 2.0, 20.0


class PollEvent(Struct, frozen=True):
    """A poll of a feed that was or will be."""

    title: str
    at: float
    words: str


class StatusReporter:
    """The living parts, for those who look at them."""

    def __init__(
        self,
        aggregator: Aggregator,
        subscriber: Subscriber,
        counts: PollCounters,
        clock: Callable[[], float],
    ) -> None:
        self.aggregator, self.subscriber = aggregator, subscriber
        self._counts, self._clock = counts, clock
        self._started_at = clock()
        self._cached_overview: Overview | None = None
        self._cache_valid_until = 0.0

    @property
    def _store(self) -> Store:
        return self.aggregator.store

    async def recent_and_next_polls(self) -> tuple[list[PollEvent], list[PollEvent]]:
        """The last ones, and the next."""
        timings = await self._store.timings()
        last = timings[np.isfinite(timings["last_poll_at"])]
        last = last[np.argsort(-last["last_poll_at"], kind="stable")[:MAX_LISTED_FEEDS]][
            "feed_id"
        ].tolist()
        next_polls = timings[np.argsort(timings["next_poll_at"], kind="stable")[:MAX_LISTED_FEEDS]][
            "feed_id"
        ].tolist()
        return [await self._last(feed_id) for feed_id in last], [
            await self._next(feed_id) for feed_id in next_polls
        ]

    async def status(self) -> Overview:
        """At a glance. Programs ask again and again: where the store is so large that it takes long, the same for a while."""
        if self._cached_overview is None or time.monotonic() >= self._cache_valid_until:
            began, scheduler = time.monotonic(), self.aggregator.scheduler
            self._cached_overview = await overview(
                self._store, scheduler.configured, scheduler.limits
            )
            took = time.monotonic() - began
            self._cache_valid_until = time.monotonic() + (
                CACHE_TIME_FACTOR * took if took > SLOW_QUERY_S else 0.0
            )
        return self._cached_overview

    async def _last(self, feed_id: int) -> PollEvent:
        feed = await self._feed(feed_id)
        polls = await self._store.polls(feed_id, limit=1)
        if not polls:
            return PollEvent(_title(feed), feed.state.last_poll_at or 0.0, "")
        poll = polls[0]
        words = poll.error or (f"{count(poll.new, 'new post')}" if poll.new else "nothing new")
        return PollEvent(_title(feed), poll.at, words)

    async def _next(self, feed_id: int) -> PollEvent:
        feed = await self._feed(feed_id)
        return PollEvent(_title(feed), feed.state.next_poll_at or 0.0, render(feed.state.reason))

    async def _feed(self, feed_id: int) -> Feed:
        feed = await self._store.feed(feed_id)
        assert feed is not None  # feeds are retired, never removed
        return feed

    async def readiness_problem(self) -> str:
        """Nothing, or what keeps the service from doing its work."""
        now = self._clock()
        due = await self._store.next_due()
        allowed = self.aggregator.scheduler.bucket.available(now) > 0
        if (
            due is not None
            and due < now - OVERDUE_AFTER_S
            and allowed
            and not self.aggregator.polls_in_flight
        ):
            return f"a feed has been due for {now - due:.0f} s and nobody polls it"
        return ""

    async def families(self) -> list[Family]:
        """For Prometheus."""
        snapshot = await self.status()
        status, scheduler = snapshot.status, self.aggregator.scheduler
        states = {
            "followed": status.active_feeds,
            "failing": status.failing,
            "retired": status.retired,
        }
        gauges: dict[str, tuple[str, Any]] = {
            "feeds": (
                "Feeds by state.",
                [Sample(n, {"state": state}) for state, n in states.items()],
            ),
            "feeds_failing": (
                "Feeds that fail, by error.",
                [Sample(n, {"kind": kind}) for kind, n in status.errors.items()],
            ),
            "feeds_due": ("Feeds whose time has come.", status.due),
            "entries": ("Entries in the store.", status.entries),
            "hosts_paused": ("Hosts that are left alone.", len(status.paused)),
            "polls_in_flight": (
                "Polls begun and not yet recorded.",
                self.aggregator.polls_in_flight,
            ),
            "budget_requests_per_day": (
                "Requests that may be spent in a day.",
                snapshot.budget_per_day,
            ),
            "budget_usable_requests_per_day": (
                "Requests of the budget that the minimum intervals of feeds allow.",
                snapshot.usable_per_day,
            ),
            "feeds_at_min_interval": (
                "Feeds that their minimum interval keeps below their share of the budget.",
                snapshot.feeds_at_min_interval,
            ),
            "spent_requests": (
                "Requests spent in the last hour, day and week.",
                [
                    Sample(p.polls, {"period": name})
                    for name, p in (
                        ("hour", status.hour),
                        ("day", status.day),
                        ("week", status.week),
                    )
                ],
            ),
            "requests_available": (
                "Requests that could be made at once.",
                scheduler.bucket.available(self._clock()),
            ),
            "posts_lost_week": (
                "Posts of the last week that are thought to be lost.",
                status.week.missed,
            ),
            "posts_recovered_week": (
                "Posts of the last week that came back from archives.",
                status.week.recovered,
            ),
            "start_time_seconds": ("When the service began.", self._started_at),
            "info": (
                "The version.",
                [Sample(1, {"version": __version__, "policy": scheduler.policy.name})],
            ),
        }
        if (
            control := getattr(scheduler.policy, "controller", None)
        ) is not None:  # `price` has one, once it knows its feeds
            gauges["price"] = ("What a poll costs, in weighted post-days of delay.", control.price)
        return [
            *self._counts.families(),
            *(
                Family(
                    f"tidings_{name}",
                    "gauge",
                    words,
                    value if isinstance(value, list) else [Sample(value)],
                )
                for name, (words, value) in gauges.items()
            ),
        ]


def _title(feed: Feed) -> str:
    return feed.state.title or redact_password(feed.url)
