"""Who publishes what, and when: three hundred publishers of eleven kinds, drawn from a seed.

Posting times come from the laboratory's generator, kind by kind, and are one `Trace`: what is served over HTTP in the demo can
be replayed by the simulator as it is.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tidings.demo.voices import write
from tidings.lab.generate import EPOCH, Population, blend, sample_posts
from tidings.lab.traces import Trace
from tidings.model import DAY_S, HOUR_S, Floats, Ints

#: Monday, 5 January 2026, 00:00 UTC: the world begins.
BEGIN = 1_767_571_200.0
#: The demo begins when the world has been watched for so long.
HISTORY_DAYS = 21.0
#: A limiter gives one document in this time, and 429 to whoever asks sooner.
LIMIT_S = 3 * HOUR_S
#: Those who lie about dates are so far ahead, as servers are that take local time for UTC.
AHEAD_S = 3 * HOUR_S
#: A dying blog has half as many posts after so many days.
DYING_DAYS = 12.0
BY_DAY = blend(0.1, (0.9, 14.0, 3.5))
EVENLY = blend(1.0)


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to publish."""

    name: str
    voice: str
    share: float  #: of all publishers
    per_day: tuple[float, float]  #: posts, from the slowest of this kind to the fastest
    window: int  #: entries in the document
    hours: Floats  #: shares of a day
    weekend: float = 1.0  #: posts of a weekend's day for each of a weekday's
    burst: float = 1.0  #: posts at one sitting


NEWS = Kind(
    "news desk", "news", 0.06, (8, 24), 30, blend(0.2, (0.4, 9.0, 2.0), (0.4, 17.0, 2.5)), 0.4
)
NIGHT = Kind("blogger at night", "night", 0.20, (0.2, 1.2), 10, blend(0.03, (0.97, 23.5, 1.3)))
DAY = Kind("workshop", "shop", 0.14, (0.2, 2.5), 15, BY_DAY, 0.1)
WEEKEND = Kind(
    "weekend poster", "weekend", 0.13, (0.15, 0.8), 10, blend(0.05, (0.95, 15.0, 3.0)), 40.0
)
CRON = Kind("cron job on the hour", "cron", 0.10, (1, 4), 12, EVENLY)
BURST = Kind("burst-poster", "burst", 0.10, (0.5, 3), 10, blend(0.1, (0.9, 20.0, 2.5)), 1.0, 6.0)
DYING = Kind("dying blog", "dying", 0.09, (0.3, 1.5), 10, blend(0.2, (0.8, 19.0, 3.0)))
LIAR = Kind("liar about dates", "night", 0.04, (0.5, 3), 10, BY_DAY)
LIMITER = Kind("limiter", "shop", 0.04, (1, 4), 15, BY_DAY, 0.5)
OVERFLOW = Kind("overflowing feed", "news", 0.04, (10, 24), 6, BY_DAY, 0.5)
HUB = Kind("WebSub publisher", "news", 0.06, (1, 6), 15, BY_DAY, 0.7)
KINDS = (NEWS, NIGHT, DAY, WEEKEND, CRON, BURST, DYING, LIAR, LIMITER, OVERFLOW, HUB)


@dataclass(frozen=True, slots=True)
class Post:
    """One post as its author wrote it."""

    title: str
    paragraphs: tuple[str, ...]


class World:
    """All publishers; a feed is its number in ``trace``, a post its number among the feed's posts."""

    def __init__(self, publishers: int, days: float, seed: int) -> None:
        self.seed = seed
        self.start = BEGIN + HISTORY_DAYS * DAY_S
        self.end = self.start + days * DAY_S
        rng = np.random.default_rng([seed, publishers])
        self.kinds = _cast(publishers)
        feeds, times = [], []
        for kind in KINDS:
            rows = np.array(
                [i for i, other in enumerate(self.kinds) if other is kind], dtype=np.int64
            )
            if len(rows):
                feed, time = (_on_the_hour if kind is CRON else _by_habit)(
                    rng, kind, len(rows), HISTORY_DAYS + days
                )
                feeds.append(rows[feed])
                times.append(time + BEGIN - EPOCH)
        self.names, self._known = self._christen()
        windows = np.array([kind.window for kind in self.kinds])
        self.trace = Trace.build(
            "demo", np.concatenate(feeds), np.concatenate(times), windows, feed_names=self.names
        )
        self.slugs = [re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") for name in self.names]
        self.pushed = np.array([kind is HUB for kind in self.kinds])
        self.post: Callable[[int, int], Post] = lru_cache(maxsize=20_000)(self._post)

    def times(self, feed: int) -> Floats:
        return self.trace.times[self.trace.offsets[feed] : self.trace.offsets[feed + 1]]

    def published(self, feed: int, now: float) -> int:
        """How many posts the feed has had."""
        return int(np.searchsorted(self.times(feed), now, side="right"))

    def _christen(self) -> tuple[list[str], list[dict[str, str]]]:
        """Names that nobody shares, and what they have settled: a paper of one place writes about that place."""
        names, known = list[str](), list[dict[str, str]]()
        taken = set[str]()
        for i, kind in enumerate(self.kinds):
            for attempt in range(100):
                settled: dict[str, str] = {}
                name = write(kind.voice, "feed", f"{self.seed} {i} {attempt}", settled)
                if name not in taken:
                    break
            else:
                name = f"{name} {i}"
            taken.add(name)
            names.append(name)
            known.append({key: settled[key] for key in ("place", "tool") if key in settled})
        return names, known

    def _post(self, feed: int, number: int) -> Post:
        voice, known = self.kinds[feed].voice, dict(self._known[feed])
        title = write(voice, "title", f"{self.seed} {feed} {number} title", known)
        return Post(
            title,
            tuple(write(voice, "text", f"{self.seed} {feed} {number} text", known).split("\n")),
        )


def _cast(publishers: int) -> list[Kind]:
    """So many of each kind, dealt out evenly, so that a small world has all of them too."""
    due = np.zeros(len(KINDS))
    shares = np.array([kind.share for kind in KINDS])
    cast = []
    for _ in range(publishers):
        due += shares
        chosen = int(due.argmax())
        due[chosen] -= 1
        cast.append(KINDS[chosen])
    return cast


def _by_habit(rng: np.random.Generator, kind: Kind, n: int, days: float) -> tuple[Ints, Floats]:
    week = np.array([1.0] * 5 + [kind.weekend] * 2)
    age = np.arange(int(np.ceil(days)))
    drift = 2.0 ** (-age / DYING_DAYS) * 2 if kind is DYING else np.ones(len(age))
    feeds = Population(
        rate_per_day=np.exp(rng.uniform(np.log(kind.per_day[0]), np.log(kind.per_day[1]), size=n)),
        shapes=np.array(
            [np.roll(kind.hours, shift) for shift in (-1, 0, 1)]
        ),  # habits differ by an hour or two
        shape=rng.integers(0, 3, size=n),
        week=np.tile(week / week.mean(), (n, 1)),
        drift=np.tile(drift, (n, 1)),
        window=np.full(n, kind.window),
        burst=kind.burst,
    )
    return sample_posts(rng, feeds, days)


def _on_the_hour(rng: np.random.Generator, kind: Kind, n: int, days: float) -> tuple[Ints, Floats]:
    """The same hours every day, some seconds late, now and then not at all."""
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
