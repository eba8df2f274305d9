"""The demo put together: one world, one clock, and two whole services on it that differ in nothing but their policy."""

import asyncio
import tempfile
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from tidings import service
from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.dating import Dated
from tidings.aggregator.reader import entry_text
from tidings.config import Setting, read
from tidings.demo.clock import Clock
from tidings.demo.publishers import Publishers, Visitor
from tidings.demo.world import World
from tidings.errors import UsageError
from tidings.lab.score import Judgement, judge, metrics, within
from tidings.lab.simulate import Manners, Polls, simulate
from tidings.lab.whatif import looked_for
from tidings.model import DAY_S, Ints
from tidings.parse import parse
from tidings.people import People, Reading
from tidings.policy import make_policy
from tidings.store import Store
from tidings.store.people_rows import Stream
from tidings.store.rows import FeedState, PollOutcome, Wanted

POLICIES = ("price", "uniform")
#: Requests for each feed and day: a look every four hours, if they were spent evenly.
BUDGET = 6.0
#: What a hub that never failed is believed to send.
PUSHED = 0.95
#: Posts that are listed with how late each policy had them.
LISTED = 12
SPEEDS = (1.0, 1000.0)
#: How often it is looked whether all services are there.
READY_S = 0.02
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

    def __post_init__(self) -> None:
        if self.publishers < 1:
            raise UsageError(f"a world needs at least one publisher, not {self.publishers}")
        if not 0 < self.days <= 366:
            raise UsageError(f"the demo lasts for up to 366 days of its own time, not {self.days:g}")


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
            asyncio.ensure_future(what) for what in (self.clock.sleep(self.world.end - self.clock()), self.stop.wait())
        ]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def judge(self, name: str, since: float | None = None) -> Judgement:
        """How a policy has done until now, by the laboratory's rules, with the posts that it had to look for."""
        visitor = next(v for v in self.publishers.visitors if v.name == name)
        since = self.world.start if since is None else since
        return self._judge(within(visitor.polls(), since, self.clock()), since, self.clock())

    def foretell(self, name: str, until: float | None = None) -> Judgement:
        """How the simulator says that the same policy does in the same world."""
        world, until = self.world, self.clock() if until is None else until
        manners = Manners(pushed=PUSHED * world.pushed)
        policy = make_policy(name, seed=0)
        polls = simulate(world.trace, policy, self.plan.budget, world.start, until, manners=manners)
        return self._judge(polls, world.start, until)

    def _judge(self, polls: Polls, since: float, until: float) -> Judgement:
        judged = judge(self.world.trace, polls, since, until)
        return looked_for(judged, Manners(pushed=self.world.pushed.astype(float)))

    def figures(self) -> dict[str, Any]:
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
            "policies": [self._policy(visitor) for visitor in self.publishers.visitors],
            "last": self._last(recent),
        }

    def _policy(self, visitor: Visitor) -> dict[str, Any]:
        judged = self.judge(visitor.name)
        found = metrics(judged)
        delay = judged.delay_s[~judged.missed]
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
            late = {v.name: self._late(v, feed, post) for v in self.publishers.visitors}
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


@asynccontextmanager
async def open_demo(plan: Plan) -> AsyncIterator[Demo]:
    """The demo while it runs, in a folder that goes with it."""
    world = await asyncio.to_thread(World, plan.publishers, plan.days, plan.seed)
    clock = Clock(world.start, plan.speed)
    visitors = [Visitor(name, plan.publishers) for name in plan.policies]
    with tempfile.TemporaryDirectory(prefix="tidings-demo-") as folder:
        async with Publishers(world, clock, visitors).open() as publishers, asyncio.TaskGroup() as tasks:
            demo = Demo(plan, world, clock, publishers)
            past = await asyncio.to_thread(_past, publishers)
            for name in plan.policies:
                tasks.create_task(_serve(demo, name, Path(folder) / name, past))
            clock.watch(lambda: len(demo.aggregators) < len(plan.policies))
            beside = [tasks.create_task(work) for work in (clock.run(), publishers.push())]
            try:
                while len(demo.aggregators) < len(plan.policies):
                    await asyncio.sleep(READY_S)
                yield demo
            finally:
                demo.stop.set()
                for task in beside:
                    task.cancel()


async def _serve(demo: Demo, name: str, folder: Path, past: Sequence[PollOutcome]) -> None:
    """One whole service, by the demo's clock."""
    clock = demo.clock
    folder.mkdir(mode=0o700)
    store = folder / "tidings.db"
    with service.listen("127.0.0.1", 0) as listening:
        address = service.address(listening)
        settings = _settings(folder, name, address, demo.plan.budget)
        await _remember(demo, name, store, past)
        async with service.open_polling(settings, store, serving=True, clock=clock, sleep=clock.sleep) as aggregator:
            demo.aggregators[name], demo.addresses[name] = aggregator, address
            clock.watch(lambda: not aggregator.resting or aggregator.under_way > 0)
            await service.tend(aggregator, settings, listening, demo.stop, clock=clock, sleep=clock.sleep)


def _settings(folder: Path, policy: str, address: str, budget: float) -> dict[str, Setting]:
    flags = {"policy.name": policy, "policy.budget": f"{budget:g}/feed", "fetch.allow_private": "true"}
    return read(folder, {}, {**flags, "serve.public_url": address})


def _past(publishers: Publishers) -> list[PollOutcome]:
    """What polling has brought until the demo begins, for all feeds by number: everything, as if no post had been missed."""
    world, outcomes = publishers.world, []
    for feed, kind in enumerate(world.kinds):
        end = world.published(feed, world.start)
        times = world.times(feed)[:end].tolist()
        document = parse(publishers.document(feed, 0, end), content_type="application/rss+xml", url="http://127.0.0.1/")
        # Documents begin with the newest.
        new = [entry_text(e, Dated(at, None, at)) for e, at in zip(document.entries, reversed(times), strict=True)]
        state = FeedState(
            title=world.names[feed],
            site_url=publishers.site(feed),
            window=kind.window,
            shown=min(end, kind.window),
            next_poll_at=world.end + DAY_S,  # the policy decides anew as soon as it has learned
            last_poll_at=world.start,
            last_ok_at=world.start,
        )
        outcomes.append(PollOutcome(feed_id=feed, at=world.start, new=tuple(reversed(new)), state=state))
    return outcomes


async def _remember(demo: Demo, name: str, path: Path, past: Sequence[PollOutcome]) -> None:
    """Put the past into a service's store, with somebody who has read all but the last day of it."""
    world = demo.world
    async with Store.open(path, clock=lambda: world.trace.start) as store:
        urls = [demo.publishers.url(name, feed) for feed in range(len(past))]
        wanted = [Wanted(url, world.end, folder=kind.name.capitalize()) for url, kind in zip(urls, world.kinds, strict=True)]
        added = await store.add(wanted)
        outcomes = [replace(one, feed_id=feed.feed_id) for one, feed in zip(past, added, strict=True)]
        for first in range(0, len(outcomes), 20):
            await store.record(outcomes[first : first + 20])
        user = await People(store, demo.clock).add_user(READER, PASSWORD, admin=True, by=None)
        await Reading(user, store, demo.clock).mark_all_read(Stream(published_until=world.start - DAY_S))
