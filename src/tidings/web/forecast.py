"""What a bigger or smaller budget would buy this installation: its own history replayed at a ladder of budgets.

A replay takes a core for half a minute: it is made when somebody asks, once whoever asks, in a process of its own that lets
others go first, and kept for hours.
"""

import asyncio
import os
import pickle
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from tidings.aggregator.history import own_history
from tidings.errors import TidingsError, UsageError
from tidings.model import DAY_S, HOUR_S
from tidings.store import Store
from tidings.web.processes import end
from tidings.web.texts import _
from tidings.web.visit import Site

if TYPE_CHECKING:
    from tidings.lab.simulate import Manners
    from tidings.lab.traces import Trace

T = TypeVar("T")

#: Around the budget of today; no feed is asked more often than every hour.
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
MOST_PER_FEED = 24.0
#: So much of the past is replayed. Judged is no more than the last quarter of it, since the policy of today has learned from
#: all the rest; and no more than two weeks.
PAST_S = 42 * DAY_S
JUDGED_SHARE, JUDGED_DAYS = 0.25, 14.0
#: Of more feeds than this a sample is replayed.
SAMPLE = 400
#: Less says nothing.
LEAST_POSTS = 50
KEPT_S = 6 * HOUR_S
#: How far a replay stands back (nice).
NICE = 5


class Point(Struct, frozen=True):
    """What so many requests a day would have bought."""

    per_day: float
    mean_s: float
    half_s: float
    missed_share: float


class Forecast(Struct, frozen=True):
    """The curve, and how it was made."""

    at: float
    policy: str
    feeds: int
    posts: int  #: judged
    budget: float  #: requests a day, as it was set then
    points: tuple[Point, ...]

    def mean_s(self, per_day: float) -> float:
        """The mean delay that is promised for a budget: between the points along a power law."""
        return float(
            np.exp(
                np.interp(np.log(per_day), np.log([p.per_day for p in self.points]), np.log([p.mean_s for p in self.points]))
            )
        )


class Forecasts:
    """Makes them one at a time, and keeps the last."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._last: Forecast | None = None
        self._one_at_a_time = asyncio.Lock()

    async def get(self) -> Forecast:
        async with self._one_at_a_time:
            brain, now = self._site.live.aggregator.brain, self._site.clock()
            policy, budget = brain.policy.name, brain.budget_per_day
            last = self._last
            if last is None or (last.policy, last.budget) != (policy, budget) or not 0 <= now - last.at < KEPT_S:
                trace, manners = await own_trace(self._site.store, now)
                self._last = await _in_a_process(trace, manners, policy, budget, now)
            assert self._last is not None
            return self._last


async def own_trace(store: Store, now: float) -> "tuple[Trace, Manners]":
    """The installation's history as the laboratory has traces, and what the living service keeps to."""
    from tidings.lab.simulate import Manners  # brings a compiler along, and few who run the service need it
    from tidings.lab.traces import Trace

    past = await own_history(store, now)
    recent = past.times >= now - PAST_S
    if recent.sum() < LEAST_POSTS:
        raise UsageError(_("there is too little history yet: %(posts)s posts; come back in some days", posts=int(recent.sum())))
    feed, times = past.feed[recent], past.times[recent]
    trace = Trace.build("own history", feed, times, past.window, weight=past.weight, feed_ids=past.feed_ids)
    return trace, Manners(pushed=past.pushed)


def forecast(trace: "Trace", manners: "Manners", policy: str, budget: float, now: float) -> Forecast:
    """Replay the trace at budgets around one (requests a day over all feeds)."""
    from tidings.lab.whatif import whatif

    each = min(max(budget / trace.n_feeds, 0.05), MOST_PER_FEED)
    budgets = sorted({min(each * factor, MOST_PER_FEED) for factor in FACTORS})
    train_days = trace.days - min(trace.days * JUDGED_SHARE, JUDGED_DAYS)
    found = whatif(trace, budgets, policy, train_days, sample_feeds=SAMPLE, manners=manners)
    points = tuple(
        Point(
            point.budget * trace.n_feeds,
            max(point.mean_delay_s or 1.0, 1.0),
            point.median_delay_s or 1.0,
            point.missed_share or 0.0,
        )
        for point in found
    )
    return Forecast(now, policy, trace.n_feeds, found[0].posts, budget, points)


async def _in_a_process(*question: Any) -> Forecast:
    """`forecast`, where it does not slow down whoever serves."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, stdin=PIPE, stdout=PIPE)
    try:
        told, _said = await process.communicate(pickle.dumps(question))
    finally:
        await end(process, 0.0)
    answer = msgspec.json.decode(told, type=Forecast | str) if told else _("the replay was ended by somebody")
    if isinstance(answer, str):
        raise UsageError(answer)
    return answer


def _answer() -> None:
    """What the process does: the question comes from its parent and from nobody else."""
    os.nice(NICE)
    try:
        told: Forecast | str = forecast(*pickle.load(sys.stdin.buffer))
    except TidingsError as error:
        told = str(error)
    sys.stdout.buffer.write(msgspec.json.encode(told))


async def in_thread(work: Callable[[], T]) -> T:
    """Run what takes seconds in a thread that does not keep the process from ending, unlike those of a pool."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(how: Callable[[Any], None], value: Any) -> None:
        if not done.done():  # whoever waited may have gone
            how(value)

    def tell(how: Callable[[Any], None], value: Any) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, how, value)

    def run() -> None:
        try:
            tell(done.set_result, work())
        except Exception as error:  # raised again where it is awaited
            tell(done.set_exception, error)

    threading.Thread(target=run, daemon=True).start()
    return await done


if __name__ == "__main__":
    _answer()
