"""Collect the status of the service for pages, the API, readiness checks and Prometheus."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct

from tidings import __version__
from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.explain import Overview, overview
from tidings.aggregator.websub import Subscriber
from tidings.i18n import _, n_
from tidings.reasons import render
from tidings.redaction import redact_password
from tidings.store import Store
from tidings.store.feed_models import Feed
from tidings.web.metrics import Family, PollCounters, Sample

#: Number of recent polls, and of next polls, on the Timing page.
MAX_LISTED_FEEDS = 5
#: Seconds by which a feed must be overdue, without a poll in flight although the budget allows one,
#: for the service to count as not ready.
OVERDUE_AFTER_S = 600.0
#: Duration in seconds from which the result of a status query is cached, and the cache time as a
#: multiple of the duration.
SLOW_QUERY_S, CACHE_TIME_FACTOR = 2.0, 20.0


class PollEvent(Struct, frozen=True):
    """A past or scheduled poll, for display."""

    title: str
    at: float
    description: str


class StatusReporter:
    """Reporter of the service status from the store, the scheduler and the counters."""

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
        """Return the most recent polls and the next scheduled polls."""
        timings = await self._store.timings()
        polled = timings[np.isfinite(timings["last_poll_at"])]
        recent = polled[np.argsort(-polled["last_poll_at"], kind="stable")[:MAX_LISTED_FEEDS]]
        upcoming = timings[np.argsort(timings["next_poll_at"], kind="stable")[:MAX_LISTED_FEEDS]]
        return (
            [await self._last(feed_id) for feed_id in recent["feed_id"].tolist()],
            [await self._next(feed_id) for feed_id in upcoming["feed_id"].tolist()],
        )

    async def status(self) -> Overview:
        """Return the overview of the service.

        The result of a slow query is cached for a while, as monitoring systems poll often.
        """
        if self._cached_overview is None or time.monotonic() >= self._cache_valid_until:
            started_at, scheduler = time.monotonic(), self.aggregator.scheduler
            self._cached_overview = await overview(
                self._store, scheduler.configured, scheduler.limits
            )
            duration_s = time.monotonic() - started_at
            self._cache_valid_until = time.monotonic() + (
                CACHE_TIME_FACTOR * duration_s if duration_s > SLOW_QUERY_S else 0.0
            )
        return self._cached_overview

    async def _last(self, feed_id: int) -> PollEvent:
        feed = await self._feed(feed_id)
        polls = await self._store.polls(feed_id, limit=1)
        if not polls:
            return PollEvent(_title(feed), feed.state.last_poll_at or 0.0, "")
        poll = polls[0]
        result = (
            n_("%(num)s new post", "%(num)s new posts", poll.new) if poll.new else _("no new posts")
        )
        return PollEvent(_title(feed), poll.at, poll.error or result)

    async def _next(self, feed_id: int) -> PollEvent:
        feed = await self._feed(feed_id)
        return PollEvent(_title(feed), feed.state.next_poll_at or 0.0, render(feed.state.reason))

    async def _feed(self, feed_id: int) -> Feed:
        feed = await self._store.feed(feed_id)
        assert feed is not None  # feeds are retired, never deleted
        return feed

    async def readiness_problem(self) -> str:
        """Return why the service is not ready, or "" if it is ready."""
        now = self._clock()
        due = await self._store.next_due()
        allowed = self.aggregator.scheduler.bucket.available(now) > 0
        if (
            due is not None
            and due < now - OVERDUE_AFTER_S
            and allowed
            and not self.aggregator.polls_in_flight
        ):
            return f"a feed is overdue by {now - due:.0f} s and no poll is in flight"
        return ""

    async def families(self) -> list[Family]:
        """Return all metrics of the service for Prometheus."""
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
            "feeds_due": ("Feeds that are due for a poll.", status.due),
            "entries": ("Entries in the store.", status.entries),
            "hosts_paused": (
                "Hosts that are paused after errors or Retry-After.",
                len(status.paused),
            ),
            "polls_in_flight": (
                "Polls started and not yet recorded.",
                self.aggregator.polls_in_flight,
            ),
            "budget_requests_per_day": (
                "Request budget per day.",
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
                "Requests available in the token bucket.",
                scheduler.bucket.available(self._clock()),
            ),
            "posts_lost_week": (
                "Posts of the last week that were probably missed.",
                status.week.missed,
            ),
            "posts_recovered_week": (
                "Posts of the last week that were recovered from archives.",
                status.week.recovered,
            ),
            "start_time_seconds": (
                "Start time of the service as a Unix timestamp.",
                self._started_at,
            ),
            "info": (
                "Version and policy of the service.",
                [Sample(1, {"version": __version__, "policy": scheduler.policy.name})],
            ),
        }
        # Only the policy `price` has a controller, after it has loaded its feeds.
        if (controller := getattr(scheduler.policy, "controller", None)) is not None:
            gauges["price"] = ("Price of a poll in weighted post-days of delay.", controller.price)
        return [
            *self._counts.families(),
            *(
                Family(
                    f"tidings_{name}",
                    "gauge",
                    help_text,
                    value if isinstance(value, list) else [Sample(value)],
                )
                for name, (help_text, value) in gauges.items()
            ),
        ]


def _title(feed: Feed) -> str:
    return feed.state.title or redact_password(feed.url)
