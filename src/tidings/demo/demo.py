"""State of a running demo, with its settings, its services and the delays of each policy."""

import asyncio
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import Struct

from tidings.aggregator.aggregator import Aggregator
from tidings.demo.arrival_delays import arrival_delays
from tidings.demo.clock import Clock
from tidings.demo.publisher_server import ClientRecord, PublisherServer
from tidings.demo.simulated_publishers import SimulatedPublishers
from tidings.errors import UsageError
from tidings.i18n import _
from tidings.lab.score import PollScores, metrics, polls_within, score_polls
from tidings.lab.simulate import Conditions, Polls, simulate
from tidings.lab.whatif import exclude_pushed_feeds
from tidings.model import DAY_S, Ints
from tidings.policy import make_policy

POLICIES = ("price", "uniform")
#: Requests per feed and day. Evenly spread, this is one poll every four hours.
BUDGET_PER_FEED = 6.0
#: Share of posts that the policy expects from a reliable hub.
PUSHED_SHARE = 0.95
#: Number of recent posts that are listed with their delays.
LISTED_POSTS = 12
#: Minimum and maximum speed-up factor.
SPEEDS = (1.0, 1000.0)
#: Client name of all exchange nodes, which share one address of the publisher server and the
#: budget.
PEER_CLIENT = "friends"
#: Login of the demo user.
USER_NAME, PASSWORD = "demo", "demo-world"


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings of a demo. The same settings give the same publishers and posts.

    Raises:
        UsageError: if a value is out of range.
    """

    publishers: int = 300  #: number of simulated publishers
    days: float = 7.0  #: duration in days of virtual time
    speed: float = 500.0  #: speed-up factor; `inf` runs without waiting
    seed: int = 1
    budget: float = BUDGET_PER_FEED  #: requests per feed and day
    policies: tuple[str, ...] = POLICIES
    peer_count: int = 3  #: number of exchange nodes

    @property
    def instances(self) -> tuple["DemoInstance", ...]:
        """Settings of all services, which are one per policy and the exchange nodes."""
        standalone = [DemoInstance(policy, policy, policy, self.budget) for policy in self.policies]
        share = self.budget / max(self.peer_count, 1)
        nodes = [
            DemoInstance(f"peer {i + 1}", "price", PEER_CLIENT, share)
            for i in range(self.peer_count)
        ]
        return (*standalone, *nodes)

    def __post_init__(self) -> None:
        if self.publishers < 1:
            raise UsageError(
                _("the demo needs at least 1 publisher, not %(number)s", number=self.publishers)
            )
        if not 0 < self.days <= 366:
            raise UsageError(
                _(
                    "the demo runs for up to 366 days of simulated time, not %(days)s",
                    days=f"{self.days:g}",
                )
            )


class DemoInstance(Struct, frozen=True):
    """Settings of one tidings service of the demo."""

    name: str
    policy: str
    client_name: str  #: name at the publisher server
    budget: float  #: requests per feed and day


class Demo:
    """Running demo, with the publisher server, the clock and the services."""

    def __init__(
        self, plan: Plan, publishers: SimulatedPublishers, clock: Clock, server: PublisherServer
    ) -> None:
        self.plan, self.publishers, self.clock, self.server = plan, publishers, clock, server
        self.aggregators: dict[str, Aggregator] = {}
        self.addresses: dict[str, str] = {}  #: URLs of the services, by name
        self.stop = asyncio.Event()

    async def wait_until_end(self) -> None:
        """Wait until the planned duration is over or `stop` is set."""
        waits: list[asyncio.Future[object]] = [
            asyncio.ensure_future(event)
            for event in (self.clock.sleep(self.publishers.end - self.clock()), self.stop.wait())
        ]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def score_polls(self, name: str, since: float | None = None) -> PollScores:
        """Return the delay of each post under a policy from ``since`` (default: start) until now.

        Posts of feeds with a hub are left out.
        """
        client = next(v for v in self.server.clients if v.name == name)
        since = self.publishers.start if since is None else since
        return self._score_polls(
            polls_within(client.polls(), since, self.clock()), since, self.clock()
        )

    def simulate_policy(self, name: str, until: float | None = None) -> PollScores:
        """Return the delays of the posts that the lab's simulator computes for the same policy."""
        publishers, until = self.publishers, self.clock() if until is None else until
        conditions = Conditions(pushed_share=PUSHED_SHARE * publishers.pushed)
        policy = make_policy(name, live=True, seed=0)
        polls = simulate(
            publishers.trace,
            policy,
            self.plan.budget,
            publishers.start,
            until,
            conditions=conditions,
        )
        return self._score_polls(polls, publishers.start, until)

    def _score_polls(self, polls: Polls, since: float, until: float) -> PollScores:
        scores = score_polls(self.publishers.trace, polls, since, until)
        return exclude_pushed_feeds(
            scores, Conditions(pushed_share=self.publishers.pushed.astype(float))
        )

    async def figures(self) -> dict[str, Any]:
        """Return the data that the dashboard shows."""
        now, publishers = self.clock(), self.publishers
        recent = np.flatnonzero(
            (publishers.trace.times <= now) & (publishers.trace.times >= publishers.start)
        )
        return {
            "now": now,
            "day": (now - publishers.start) / DAY_S,
            "days": self.plan.days,
            "speed": self.clock.speed,
            "true_speed": self.clock.true_speed,
            "publishers": self.plan.publishers,
            "posts": len(recent),
            "budget_per_day": self.plan.budget * self.plan.publishers,
            "policies": [self._policy_figures(client) for client in self._policy_clients],
            "friends": await self._peer_figures(),
            "last": self._recent_posts(recent),
        }

    async def _peer_figures(self) -> dict[str, Any] | None:
        """Return requests and delays of the first exchange node, or None without nodes."""
        first = next(
            (instance for instance in self.plan.instances if instance.client_name == PEER_CLIENT),
            None,
        )
        if first is None:
            return None
        client = next(v for v in self.server.clients if v.name == PEER_CLIENT)
        request_figures = {
            "requests": client.requests,
            "nodes": self.plan.peer_count,
            "pages": self.addresses[first.name],
        }
        return request_figures | await arrival_delays(
            self.aggregators[first.name].store, self.publishers, self.clock()
        )

    @property
    def _policy_clients(self) -> list[ClientRecord]:
        return [client for client in self.server.clients if client.name != PEER_CLIENT]

    def _policy_figures(self, client: ClientRecord) -> dict[str, Any]:
        scores = self.score_polls(client.name)
        figures = metrics(scores)
        delay = scores.delay_s[~scores.missed]
        return {
            "policy": client.name,
            "pages": self.addresses.get(client.name, ""),
            "requests": client.requests,
            "hits": client.counts[200] - client.unchanged_responses,
            "unchanged": client.counts[304] + client.unchanged_responses,
            "refused": client.counts[429],
            "pushed": client.pushed,
            "p50_s": figures["median_delay_s"],
            "p90_s": float(np.percentile(delay, 90)) if len(delay) else None,
            "mean_s": figures["mean_delay_s"],
            "missed": figures["missed"],
            "missed_share": figures["missed_share"],
        }

    def _recent_posts(self, recent: Ints) -> list[dict[str, Any]]:
        """Return the newest posts whose delay is known for every policy.

        Posts of feeds with a hub are left out.
        """
        trace, out = self.publishers.trace, list[dict[str, Any]]()
        order = recent[np.argsort(-trace.times[recent], kind="stable")]
        for post in order[: 100 * LISTED_POSTS].tolist():
            feed = int(np.searchsorted(trace.offsets, post, side="right")) - 1
            if self.publishers.pushed[feed]:
                continue
            delays = {one.name: self._post_delay(one, feed, post) for one in self._policy_clients}
            if None not in delays.values():
                number = post - int(trace.offsets[feed])
                out.append(
                    {
                        "at": float(trace.times[post]),
                        "publisher": self.publishers.names[feed],
                        "kind": self.publishers.kinds[feed].name,
                        "title": self.publishers.post(feed, number).title,
                        "url": f"{self.server.site(feed)}{number}",
                        "late_s": delays,
                    }
                )
            if len(out) == LISTED_POSTS:
                break
        return out

    def _post_delay(self, client: ClientRecord, feed: int, post: int) -> float | str | None:
        """Return the delay in seconds, "missed", or None if a poll may still find the post."""
        trace, poll_times = self.publishers.trace, client.poll_times[feed]
        index = bisect_left(poll_times, trace.times[post])
        if index == len(poll_times):
            return None
        newer = (
            int(trace.offsets[feed]) + self.publishers.published(feed, poll_times[index]) - 1 - post
        )
        return (
            "missed"
            if newer >= trace.window[feed]
            else poll_times[index] - float(trace.times[post])
        )
