"""Agreement of service and simulator: a trace served over HTTP gives the same delays."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest
from aiohttp import web

from tests.live.feed_server import Clock, FeedServer
from tests.trace_helpers import poisson_trace
from tidings.config import Budget
from tidings.document import Hints
from tidings.lab.score import metrics, score_polls
from tidings.lab.simulate import Conditions, Polls, simulate
from tidings.model import DAY_S, HOUR_S
from tidings.policy import make_policy
from tidings.policy.constraints import (
    ASSUMED_CONDITIONAL_SHARE,
    Limits,
    skip_hours,
    stated_interval,
)
from tidings.store import Store, folders
from tidings.store.feed_models import (
    DEFAULT_USER_ID,
    EntryText,
    FeedState,
    NewSubscription,
    PollOutcome,
)

TRAINING_D = 10
#: Words in the text of a post, so that a document is several times as large as a 304.
WORDS = 100


class TraceServer(FeedServer):
    """Serves every feed of a trace with its latest posts at the clock's time."""

    def __init__(self, trace, path, conditions):
        super().__init__(Clock(), path)
        self.trace, self.conditions = trace, conditions
        self.polls = []
        self.not_modified = 0

    def shown(self, feed, now):
        """Return the number of the first post and the times of the posts in a feed's document."""
        first, end = self.trace.offsets[feed], self.trace.offsets[feed + 1]
        posted = self.trace.times[
            first : first + np.searchsorted(self.trace.times[first:end], now, side="right")
        ]
        base = max(len(posted) - self.trace.window[feed], 0)
        return base, posted[base:]

    def document(self, feed, now):
        base, shown = self.shown(feed, now)
        posts = [(base + i, float(at), "words " * WORDS) for i, at in enumerate(shown)]
        self.feeds.setdefault("", self.feed(""))
        return self.feeds[""].document(posts, extra_of(self.conditions, feed)).encode()

    async def answer(self, request):
        feed, now, conditions = int(request.path[1:]), self.clock(), self.conditions
        self.polls.append((feed, now))
        headers = {}
        if conditions is not None and conditions.max_age_s[feed]:
            headers["Cache-Control"] = f"max-age={conditions.max_age_s[feed]:.0f}"
        if conditions is not None and conditions.conditional[feed]:
            headers["ETag"] = self.etag(feed, now)
            if request.headers.get("If-None-Match") == headers["ETag"]:
                self.not_modified += 1
                return web.Response(status=304, headers=headers)
        return web.Response(
            body=self.document(feed, now), content_type="application/rss+xml", headers=headers
        )

    def etag(self, feed, now):
        base, shown = self.shown(feed, now)
        return f'"{base + len(shown)}"'

    def state(self, feed, start):
        """Return the state of a feed that was polled at ``start``."""
        _, shown = self.shown(feed, start)
        conditions, size = self.conditions, len(self.document(feed, start))
        ttl_s, max_age_s = (
            (conditions.ttl_s[feed], conditions.max_age_s[feed])
            if conditions is not None
            else (0, 0)
        )
        conditional = conditions is not None and bool(conditions.conditional[feed])
        (stated_s,), (stated_by,) = stated_interval(
            np.array([ttl_s]), np.zeros(1), np.array([max_age_s])
        )
        return FeedState(
            window=int(self.trace.window[feed]),
            shown=len(shown),
            oldest_at=float(shown[0]) if len(shown) else None,
            usual_gap_s=float(shown[-1] - shown[0]) / (len(shown) - 1) if len(shown) > 1 else None,
            next_poll_at=start + 1000 * DAY_S,
            last_ok_at=start,
            last_poll_at=start,
            etag=self.etag(feed, start) if conditional else "",
            validators_url=self.url(f"/{feed}") if conditional else "",
            validators_since=start if conditional else None,
            stated_s=float(stated_s),
            stated_by=int(stated_by),
            not_modified=ASSUMED_CONDITIONAL_SHARE if conditional else 0.0,
            document_bytes=float(size),
            poll_bytes=size * (0.5 if conditional else 1.0),
            forbidden=b""
            if conditions is None or not conditions.skip[feed].any()
            else conditions.skip[feed].tobytes(),
            hints=Hints(ttl_s=float(ttl_s) or None),
        )

    async def train(self, start):
        """Fill the store as if every feed had been polled until ``start``."""
        trace = self.trace
        self.clock.now = trace.start
        async with Store.open(self.path, clock=self.clock) as store:
            added = await store.add_subscriptions(
                [
                    NewSubscription(self.url(f"/{i}"), start + 1000 * DAY_S)
                    for i in range(trace.n_feeds)
                ]
            )
            self.clock.now = start
            outcomes = []
            for i, feed in enumerate(added):
                times = trace.times[trace.offsets[i] : trace.offsets[i + 1]]
                known = tuple(
                    EntryText(identity=str(n), digest=b"", published_at=float(at))
                    for n, at in enumerate(times[times < start])
                )
                outcomes.append(
                    PollOutcome(
                        feed_id=feed.feed_id, at=start - 1, new=known, state=self.state(i, start)
                    )
                )
            await store.record(outcomes)
            if self.conditions is not None:
                for feed, override_s in zip(
                    added, self.conditions.override_s.tolist(), strict=True
                ):
                    await store.write(
                        folders.update_subscription,
                        DEFAULT_USER_ID,
                        feed.feed_id,
                        {"min_interval_s": override_s},
                    )

    def poll_list(self):
        feed, times = np.array(self.polls).T
        return Polls.build(feed.astype(np.int64), times, self.trace.n_feeds)


@asynccontextmanager
async def trace_server(trace, path, conditions):
    server = TraceServer(trace, path / "store.db", conditions)
    runner = web.ServerRunner(web.Server(server.answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()


def extra_of(conditions, feed):
    """Return ttl and skipHours elements of a feed."""
    if conditions is None:
        return ""
    hours = np.unpackbits(conditions.skip[feed])[:24]
    skipped = "".join(f"<hour>{hour}</hour>" for hour in np.flatnonzero(hours))
    ttl = f"<ttl>{conditions.ttl_s[feed] / 60:.0f}</ttl>" if conditions.ttl_s[feed] else ""
    return f"{ttl}<skipHours>{skipped}</skipHours>" if skipped else ttl


def all_conditions(feeds):
    """Return conditions of publishers with ttl, max-age, skipHours, no validators, overrides."""
    kind = np.arange(feeds) % 10
    nights = np.frombuffer(skip_hours(Hints(skip_hours=frozenset(range(6)))), dtype=np.uint8)
    return Conditions(
        ttl_s=np.select([kind == 0, kind == 1], [2 * HOUR_S, 600.0], 0.0),
        max_age_s=np.select([kind == 1, kind == 2, kind == 3], [300.0, 1800.0, 4 * HOUR_S], 0.0),
        skip=np.where((kind == 4)[:, None], nights, np.uint8(0)),
        conditional=~np.isin(kind, (5, 6)),
        override_s=np.where(kind == 7, 3 * HOUR_S, 0.0),
    )


def live_and_simulated(
    path, feeds, policy, *, window=12, per_feed_day=6.0, days=1.0, median=1.0, conditions=None
):
    rates = np.random.default_rng(5).lognormal(median, 1.2, feeds)
    trace = poisson_trace(rates, TRAINING_D + days + 0.5, seed=6, window=window)
    start = trace.training_end(TRAINING_D)
    end = start + days * DAY_S

    async def live():
        async with trace_server(trace, path, conditions) as server:
            await server.train(start)
            sizes = np.array(
                [len(server.document(feed, start)) for feed in range(feeds)], dtype=np.float64
            )
            limits = Limits(0.0, np.inf) if conditions is None else conditions.limits
            async with server.run_aggregator(
                budget=Budget(per_feed_day, True), policy=policy, limits=limits
            ):
                await server.run_for(hours=days * 24)
                status = await server.store.status()
            assert (server.not_modified > 0) == (conditions is not None)
            return server.poll_list(), status, sizes

    polls, status, sizes = asyncio.run(live())
    if conditions is None:
        conditions = Conditions(Limits(0.0, np.inf), conditional=np.zeros(feeds, dtype=np.bool_))
    conditions = replace(conditions, document_bytes=sizes)
    expected = simulate(trace, make_policy(policy), per_feed_day, start, end, conditions=conditions)
    live_metrics, simulated = (
        metrics(score_polls(trace, p, start, end)) for p in (polls, expected)
    )
    return live_metrics, simulated, status


def assert_agreement(live, simulated):
    """Assert that delays, missed share and polls differ by at most 2 %."""
    for key in ("mean_delay_s", "missed_share", "polls"):
        assert live[key] == pytest.approx(simulated[key], rel=0.02, abs=1e-3), key


@pytest.mark.parametrize("policy", ["price", "min-delay"])
def test_live_delays_and_missed_posts_match_simulator(tmp_path, policy):
    live, simulated, status = live_and_simulated(
        tmp_path, 80, policy, window=10, per_feed_day=1.5, median=2.5
    )
    assert_agreement(live, simulated)
    assert simulated["missed_share"] > 0.01  # otherwise there would be nothing to compare
    assert status.day.polls == live["polls"]
    # The service can only estimate the missed posts.
    assert 0.5 * live["missed"] < status.day.missed < 2 * live["missed"]


def test_policy_gets_known_documents_on_304(
    tmp_path,
):
    # This policy does not use the budget.
    live, simulated, _ = live_and_simulated(tmp_path, 40, "moving-average", per_feed_day=60.0)
    assert_agreement(live, simulated)


def test_constraints_match_simulator(tmp_path):
    conditions = all_conditions(150)
    live, simulated, _ = live_and_simulated(
        tmp_path, 150, "price", window=10, per_feed_day=12.0, median=3.0, conditions=conditions
    )
    assert_agreement(live, simulated)
    assert simulated["missed_share"] > 0.01


@pytest.mark.slow
def test_thousand_feeds_with_constraints_match_simulator(tmp_path):
    live, simulated, _ = live_and_simulated(
        tmp_path, 1000, "price", per_feed_day=12.0, median=1.5, conditions=all_conditions(1000)
    )
    for key in ("mean_delay_s", "missed", "polls"):
        ratio = live[key] / simulated[key]
        print(f"{key}: live {live[key]:.6g}, simulated {simulated[key]:.6g}, ratio {ratio:.4f}")
    assert_agreement(live, simulated)
