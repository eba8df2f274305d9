"""One policy, two clocks: a trace served over real HTTP, polled by the living loop, comes out as in the simulator."""

import asyncio
from contextlib import asynccontextmanager

import numpy as np
import pytest
from aiohttp import web

from tests.live.village import Clock, Village
from tests.worlds import poisson_trace
from tidings.config import Budget
from tidings.lab.score import judge, metrics
from tidings.lab.simulate import Polls, simulate
from tidings.model import DAY_S
from tidings.policy import make_policy
from tidings.store import Store
from tidings.store.rows import EntryText, FeedState, PollOutcome, Wanted

TRAINING_D = 10


class Publishers(Village):
    """Every feed of a trace, each showing its last posts as of the clock."""

    def __init__(self, trace, path):
        super().__init__(Clock(), path)
        self.trace = trace
        self.polls = []

    async def answer(self, request):
        feed, now, trace = int(request.path[1:]), self.clock(), self.trace
        self.polls.append((feed, now))
        first, end = trace.offsets[feed], trace.offsets[feed + 1]
        shown = trace.times[first : first + np.searchsorted(trace.times[first:end], now, side="right")]
        base = max(len(shown) - trace.window[feed], 0)
        posts = [(base + i, float(at), "") for i, at in enumerate(shown[base:])]
        self.feeds.setdefault("", self.feed(""))
        return web.Response(text=self.feeds[""].document(posts), content_type="application/rss+xml")

    async def train(self, start):
        """The store as if every feed had been watched from the trace's beginning until ``start``."""
        trace = self.trace
        self.clock.now = trace.start
        async with Store.open(self.path, clock=self.clock) as store:
            added = await store.add([Wanted(self.url(f"/{i}"), start + 1000 * DAY_S) for i in range(trace.n_feeds)])
            self.clock.now = start
            outcomes = []
            for i, feed in enumerate(added):
                times = trace.times[trace.offsets[i] : trace.offsets[i + 1]]
                known = tuple(
                    EntryText(identity=str(n), digest=b"", published_at=float(at)) for n, at in enumerate(times[times < start])
                )
                state = FeedState(
                    window=int(trace.window[i]), next_poll_at=start + 1000 * DAY_S, last_ok_at=start, last_poll_at=start
                )
                outcomes.append(PollOutcome(feed_id=feed.feed_id, at=start - 1, new=known, state=state))
            await store.record(outcomes)

    def poll_list(self):
        feed, times = np.array(self.polls).T
        return Polls.build(feed.astype(np.int64), times, self.trace.n_feeds)


@asynccontextmanager
async def publishers(trace, path):
    here = Publishers(trace, path / "store.db")
    runner = web.ServerRunner(web.Server(here.answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    here.port = runner.addresses[0][1]
    try:
        yield here
    finally:
        await runner.cleanup()


def live_and_simulated(path, feeds, policy, *, window=12, per_feed_day=6.0, days=1.0, median=1.0):
    rates = np.random.default_rng(5).lognormal(median, 1.2, feeds)
    trace = poisson_trace(rates, TRAINING_D + days + 0.5, seed=6, window=window)
    start = trace.cut(TRAINING_D)
    end = start + days * DAY_S

    async def live():
        async with publishers(trace, path) as here:
            await here.train(start)
            async with here.awake(budget=Budget(per_feed_day, True), policy=policy, least_gap_s=0.0, longest_s=np.inf):
                await here.live(hours=days * 24)
                status = await here.store.status()
            return here.poll_list(), status

    polls, status = asyncio.run(live())
    expected = simulate(trace, make_policy(policy), per_feed_day, start, end)
    ours, theirs = (metrics(judge(trace, p, start, end)) for p in (polls, expected))
    return ours, theirs, status


def agree(ours, theirs):
    for key in ("mean_delay_s", "missed_share", "polls"):
        assert ours[key] == pytest.approx(theirs[key], rel=0.02, abs=1e-3), key


@pytest.mark.parametrize("policy", ["price", "min-delay"])
def test_live_delays_and_losses_are_the_simulators(tmp_path, policy):
    ours, theirs, status = live_and_simulated(tmp_path, 80, policy, window=10, per_feed_day=1.5, median=2.5)
    agree(ours, theirs)
    assert theirs["missed_share"] > 0.01  # else there would be nothing to agree about
    assert status.day.polls == ours["polls"]
    assert 0.5 * ours["missed"] < status.day.lost < 2 * ours["missed"]  # as the monitor has it, who cannot know


def test_a_policy_that_looks_at_whole_documents_gets_them_also_when_they_are_the_known_ones(tmp_path):
    ours, theirs, _ = live_and_simulated(tmp_path, 40, "moving-average", per_feed_day=60.0)  # it has no budget of its own
    agree(ours, theirs)


@pytest.mark.slow
def test_a_day_of_a_thousand_feeds(tmp_path):
    ours, theirs, _ = live_and_simulated(tmp_path, 1000, "price")
    agree(ours, theirs)
