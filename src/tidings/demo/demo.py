"""A demo that runs: one world, one clock, and whole services on it that differ in nothing but their policy, or have friends."""

import asyncio
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import Struct

from tidings.aggregator.aggregator import Aggregator
from tidings.demo.arrivals import arrived
from tidings.demo.clock import Clock
from tidings.demo.publishers import Publishers, Visitor
from tidings.demo.world import World
from tidings.errors import UsageError
from tidings.lab.score import PollScores, metrics, polls_within, score_polls
from tidings.lab.simulate import Conditions, Polls, simulate
from tidings.lab.whatif import exclude_pushed_feeds
from tidings.model import DAY_S, Ints
from tidings.policy import make_policy

POLICIES = ("price", "uniform")
#: Requests for each feed and day: a look every four hours, if they were spent evenly.
BUDGET = 6.0
#: What a hub that never failed is believed to send.
PUSHED = 0.95
#: Posts that are listed with how late each policy had them.
LISTED = 12
SPEEDS = (1.0, 1000.0)
#: Nodes of the exchange: they share one address of the publishers, and each has its part of the budget.
FRIENDS = "friends"
#: Who reads in the demo.
READER, PASSWORD = "demo", "demo-world"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a demo is made from; the same plan makes the same world."""

    publishers: int = 300
    days: float = 7.0
    speed: float = 500.0  #: `inf` for no waiting at all
    seed: int = 1
    budget: float = BUDGET
    policies: tuple[str, ...] = POLICIES
    friends: int = 3  #: nodes of the exchange

    @property
    def members(self) -> tuple["Member", ...]:
        """All services there are."""
        alone = [Member(policy, policy, policy, self.budget) for policy in self.policies]
        each = self.budget / max(self.friends, 1)
        friends = [Member(f"friend {i + 1}", "price", FRIENDS, each) for i in range(self.friends)]
        return (*alone, *friends)

    def __post_init__(self) -> None:
        if self.publishers < 1:
            raise UsageError(f"a world needs at least one publisher, not {self.publishers}")
        if not 0 < self.days <= 366:
            raise UsageError(
                f"the demo lasts for up to 366 days of its own time, not {self.days:g}"
            )


class Member(Struct, frozen=True):
    """A service of the demo."""

    name: str
    policy: str
    visitor: str  #: under which the publishers know it
    budget: float  #: requests for each feed and day


class Demo:
    """A demo that runs."""

    def __init__(self, plan: Plan, world: World, clock: Clock, publishers: Publishers) -> None:
        self.plan, self.world, self.clock, self.publishers = plan, world, clock, publishers
        self.aggregators: dict[str, Aggregator] = {}
        self.addresses: dict[str, str] = {}  #: of the services' pages, by policy
        self.stop = asyncio.Event()

    async def until_the_end(self) -> None:
        """Of the time that was planned, or until somebody stops it."""
        waits: list[asyncio.Future[object]] = [
            asyncio.ensure_future(what)
            for what in (self.clock.sleep(self.world.end - self.clock()), self.stop.wait())
        ]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def score_polls(self, name: str, since: float | None = None) -> PollScores:
        """How a policy has done until now, by the laboratory's rules, with the posts that it had to look for."""
        visitor = next(v for v in self.publishers.visitors if v.name == name)
        since = self.world.start if since is None else since
        return self._score_polls(
            polls_within(visitor.polls(), since, self.clock()), since, self.clock()
        )

    def foretell(self, name: str, until: float | None = None) -> PollScores:
        """How the simulator says that the same policy does in the same world."""
        world, until = self.world, self.clock() if until is None else until
        conditions = Conditions(pushed_share=PUSHED * world.pushed)
        policy = make_policy(name, live=True, seed=0)
        polls = simulate(
            world.trace, policy, self.plan.budget, world.start, until, conditions=conditions
        )
        return self._score_polls(polls, world.start, until)

    def _score_polls(self, polls: Polls, since: float, until: float) -> PollScores:
        scores = score_polls(self.world.trace, polls, since, until)
        return exclude_pushed_feeds(
            scores, Conditions(pushed_share=self.world.pushed.astype(float))
        )

    async def figures(self) -> dict[str, Any]:
        """What the screen shows."""
        now, world = self.clock(), self.world
        recent = np.flatnonzero((world.trace.times <= now) & (world.trace.times >= world.start))
        return {
            "now": now,
            "day": (now - world.start) / DAY_S,
            "days": self.plan.days,
            "speed": self.clock.speed,
            "true_speed": self.clock.true_speed,
            "publishers": self.plan.publishers,
            "posts": len(recent),
            "budget_per_day": self.plan.budget * self.plan.publishers,
            "policies": [self._policy(visitor) for visitor in self._alone],
            "friends": await self._friends(),
            "last": self._last(recent),
        }

    async def _friends(self) -> dict[str, Any] | None:
        """How one of the friends does, who has its news from the others as well."""
        one = next((member for member in self.plan.members if member.visitor == FRIENDS), None)
        if one is None:
            return None
        visitor = next(v for v in self.publishers.visitors if v.name == FRIENDS)
        found = {
            "requests": visitor.requests,
            "nodes": self.plan.friends,
            "pages": self.addresses[one.name],
        }
        return found | await arrived(self.aggregators[one.name].store, self.world, self.clock())

    @property
    def _alone(self) -> list[Visitor]:
        return [visitor for visitor in self.publishers.visitors if visitor.name != FRIENDS]

    def _policy(self, visitor: Visitor) -> dict[str, Any]:
        scores = self.score_polls(visitor.name)
        found = metrics(scores)
        delay = scores.delay_s[~scores.missed]
        return {
            "policy": visitor.name,
            "pages": self.addresses.get(visitor.name, ""),
            "requests": visitor.requests,
            "hits": visitor.counts[200] - visitor.asked_in_vain,
            "unchanged": visitor.counts[304] + visitor.asked_in_vain,
            "refused": visitor.counts[429],
            "pushed": visitor.pushed,
            "p50_s": found["median_delay_s"],
            "p90_s": float(np.percentile(delay, 90)) if len(delay) else None,
            "mean_s": found["mean_delay_s"],
            "missed": found["missed"],
            "missed_share": found["missed_share"],
        }

    def _last(self, recent: Ints) -> list[dict[str, Any]]:
        """The last posts of which it is known how late every policy had them, newest first; none that a hub has sent."""
        trace, out = self.world.trace, list[dict[str, Any]]()
        order = recent[np.argsort(-trace.times[recent], kind="stable")]
        for post in order[: 100 * LISTED].tolist():
            feed = int(np.searchsorted(trace.offsets, post, side="right")) - 1
            if self.world.pushed[feed]:
                continue
            late = {v.name: self._late(v, feed, post) for v in self._alone}
            if None not in late.values():
                number = post - int(trace.offsets[feed])
                out.append(
                    {
                        "at": float(trace.times[post]),
                        "publisher": self.world.names[feed],
                        "kind": self.world.kinds[feed].name,
                        "title": self.world.post(feed, number).title,
                        "url": f"{self.publishers.site(feed)}{number}",
                        "late_s": late,
                    }
                )
            if len(out) == LISTED:
                break
        return out

    def _late(self, visitor: Visitor, feed: int, post: int) -> float | str | None:
        """How late it came; "missed" if it never can; None if it may still come."""
        trace, looks = self.world.trace, visitor.looks[feed]
        look = bisect_left(looks, trace.times[post])
        if look == len(looks):
            return None
        newer = int(trace.offsets[feed]) + self.world.published(feed, looks[look]) - 1 - post
        return "missed" if newer >= trace.window[feed] else looks[look] - float(trace.times[post])
