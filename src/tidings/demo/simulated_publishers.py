"""Generate simulated publishers with their names, posting times and posts.

A random seed determines all of them. The posting times come from the lab's trace generator and form
one `Trace`, so the simulator can run on the same posts that the demo serves over HTTP.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tidings.demo.text_generator import generate_text
from tidings.i18n import N_
from tidings.lab.generate import EPOCH, Population, blend, sample_posts
from tidings.lab.traces import Trace
from tidings.model import DAY_S, HOUR_S, Floats, Ints

#: Time of the first posts: Monday, 5 January 2026, 00:00 UTC.
HISTORY_START = 1_767_571_200.0
#: Days of history before the start of the demo.
HISTORY_DAYS = 21.0
#: Minimum seconds between two requests to a rate-limited publisher. Earlier requests get 429.
RATE_LIMIT_S = 3 * HOUR_S
#: Seconds by which wrong dates are off, as on servers that take local time for UTC.
DATE_OFFSET_S = 3 * HOUR_S
#: Half-life of the posting rate of a dying blog, in days.
DYING_DAYS = 12.0
BY_DAY = blend(0.1, (0.9, 14.0, 3.5))
EVENLY = blend(1.0)


@dataclass(frozen=True, slots=True)
class PublisherKind:
    """Kind of publisher, with its posting pattern, number of listed entries and writing style."""

    name: str
    style: str
    share: float  #: share of all publishers
    per_day: tuple[float, float]  #: posts per day of the slowest and the fastest publisher
    window: int  #: entries in the feed document
    hours: Floats  #: share of posts in each hour of the day
    weekend: float = 1.0  #: posts on a weekend day per post on a weekday
    burst: float = 1.0  #: posts per burst


NEWS = PublisherKind(
    N_("news site"), "news", 0.06, (8, 24), 30, blend(0.2, (0.4, 9.0, 2.0), (0.4, 17.0, 2.5)), 0.4
)
NIGHT = PublisherKind(
    N_("night blogger"), "night", 0.20, (0.2, 1.2), 10, blend(0.03, (0.97, 23.5, 1.3))
)
DAY = PublisherKind(N_("company blog"), "shop", 0.14, (0.2, 2.5), 15, BY_DAY, 0.1)
WEEKEND = PublisherKind(
    N_("weekend blogger"), "weekend", 0.13, (0.15, 0.8), 10, blend(0.05, (0.95, 15.0, 3.0)), 40.0
)
CRON = PublisherKind(N_("hourly cron job"), "cron", 0.10, (1, 4), 12, EVENLY)
BURST = PublisherKind(
    N_("burst poster"), "burst", 0.10, (0.5, 3), 10, blend(0.1, (0.9, 20.0, 2.5)), 1.0, 6.0
)
DYING = PublisherKind(N_("dying blog"), "dying", 0.09, (0.3, 1.5), 10, blend(0.2, (0.8, 19.0, 3.0)))
WRONG_DATES = PublisherKind(N_("wrong dates"), "night", 0.04, (0.5, 3), 10, BY_DAY)
RATE_LIMITED = PublisherKind(N_("rate-limited feed"), "shop", 0.04, (1, 4), 15, BY_DAY, 0.5)
OVERFLOW = PublisherKind(N_("overflowing feed"), "news", 0.04, (10, 24), 6, BY_DAY, 0.5)
HUB = PublisherKind(N_("WebSub publisher"), "news", 0.06, (1, 6), 15, BY_DAY, 0.7)
KINDS = (NEWS, NIGHT, DAY, WEEKEND, CRON, BURST, DYING, WRONG_DATES, RATE_LIMITED, OVERFLOW, HUB)


@dataclass(frozen=True, slots=True)
class Post:
    """Title and text of a post."""

    title: str
    paragraphs: tuple[str, ...]


class SimulatedPublishers:
    """Simulated publishers and their posts.

    Feeds and posts are identified by their index in ``trace``.

    Args:
        publishers: number of publishers.
        days: length of the demo; `HISTORY_DAYS` of posts come before it.
        seed: random seed.
    """

    def __init__(self, publishers: int, days: float, seed: int) -> None:
        self.seed = seed
        self.start = HISTORY_START + HISTORY_DAYS * DAY_S
        self.end = self.start + days * DAY_S
        rng = np.random.default_rng([seed, publishers])
        self.kinds = _assign_kinds(publishers)
        feeds, times = [], []
        for kind in KINDS:
            rows = np.array(
                [i for i, other in enumerate(self.kinds) if other is kind], dtype=np.int64
            )
            if len(rows):
                feed, time = (_cron_posts if kind is CRON else _pattern_posts)(
                    rng, kind, len(rows), HISTORY_DAYS + days
                )
                feeds.append(rows[feed])
                times.append(time + HISTORY_START - EPOCH)
        self.names, self._phrases = self._choose_names()
        windows = np.array([kind.window for kind in self.kinds])
        self.trace = Trace.build(
            "demo", np.concatenate(feeds), np.concatenate(times), windows, feed_names=self.names
        )
        self.slugs = [re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") for name in self.names]
        self.pushed = np.array([kind is HUB for kind in self.kinds])
        self.post: Callable[[int, int], Post] = lru_cache(maxsize=20_000)(self._post)

    def times(self, feed: int) -> Floats:
        """Return the posting times of a feed, in epoch seconds."""
        return self.trace.times[self.trace.offsets[feed] : self.trace.offsets[feed + 1]]

    def published(self, feed: int, now: float) -> int:
        """Return the number of posts of a feed until ``now``."""
        return int(np.searchsorted(self.times(feed), now, side="right"))

    def _choose_names(self) -> tuple[list[str], list[dict[str, str]]]:
        """Return a unique name for each publisher, and the phrases that its posts must repeat.

        For example, the local newspaper of a place writes about that place.
        """
        names, repeated = list[str](), list[dict[str, str]]()
        taken = set[str]()
        for i, kind in enumerate(self.kinds):
            for attempt in range(100):
                phrases: dict[str, str] = {}
                name = generate_text(kind.style, "feed", f"{self.seed} {i} {attempt}", phrases)
                if name not in taken:
                    break
            else:
                name = f"{name} {i}"
            taken.add(name)
            names.append(name)
            repeated.append({key: phrases[key] for key in ("place", "tool") if key in phrases})
        return names, repeated

    def _post(self, feed: int, number: int) -> Post:
        style, phrases = self.kinds[feed].style, dict(self._phrases[feed])
        title = generate_text(style, "title", f"{self.seed} {feed} {number} title", phrases)
        text = generate_text(style, "text", f"{self.seed} {feed} {number} text", phrases)
        return Post(title, tuple(text.split("\n")))


def _assign_kinds(publishers: int) -> list[PublisherKind]:
    """Return the kind of each publisher, so that also small numbers include all kinds.

    Kinds are assigned in proportion to their shares and evenly spread.
    """
    due = np.zeros(len(KINDS))
    shares = np.array([kind.share for kind in KINDS])
    kinds = []
    for _ in range(publishers):
        due += shares
        chosen = int(due.argmax())
        due[chosen] -= 1
        kinds.append(KINDS[chosen])
    return kinds


def _pattern_posts(
    rng: np.random.Generator, kind: PublisherKind, n: int, days: float
) -> tuple[Ints, Floats]:
    """Sample posts of ``n`` feeds by the daily and weekly pattern of their kind."""
    week = np.array([1.0] * 5 + [kind.weekend] * 2)
    age = np.arange(int(np.ceil(days)))
    drift = 2.0 ** (-age / DYING_DAYS) * 2 if kind is DYING else np.ones(len(age))
    feeds = Population(
        rate_per_day=np.exp(rng.uniform(np.log(kind.per_day[0]), np.log(kind.per_day[1]), size=n)),
        # The patterns of publishers of one kind differ by up to two hours.
        shapes=np.array([np.roll(kind.hours, shift) for shift in (-1, 0, 1)]),
        shape=rng.integers(0, 3, size=n),
        week=np.tile(week / week.mean(), (n, 1)),
        drift=np.tile(drift, (n, 1)),
        window=np.full(n, kind.window),
        burst=kind.burst,
    )
    return sample_posts(rng, feeds, days)


def _cron_posts(
    rng: np.random.Generator, kind: PublisherKind, n: int, days: float
) -> tuple[Ints, Floats]:
    """Sample posts at fixed hours of every day, each some seconds late, without 5 % of them."""
    feed, time = [], []
    least, most = (int(posts) for posts in kind.per_day)
    for i in range(n):
        hours = rng.choice(24, size=int(rng.integers(least, most + 1)), replace=False)
        at = (np.arange(int(np.ceil(days)))[:, None] * 24 + hours).ravel() * HOUR_S + float(
            rng.integers(2, 40)
        )
        at = at[(rng.random(len(at)) < 0.95) & (at < days * DAY_S)]
        feed.append(np.full(len(at), i))
        time.append(EPOCH + at)
    return np.concatenate(feed), np.concatenate(time)
