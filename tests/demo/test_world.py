"""Who publishes what and when: the same for a seed, true to each kind, and readable."""

import numpy as np
import pytest

from tidings.demo.voices import VOICES, write
from tidings.demo.world import BURST, CRON, DYING, KINDS, NIGHT, WEEKEND, World
from tidings.model import DAY_S


@pytest.fixture(scope="module")
def world():
    return World(300, 7, 1)


def of_kind(world, kind):
    return np.concatenate([world.times(i) for i, other in enumerate(world.kinds) if other is kind])


def test_a_seed_is_a_world(world):
    again, other = World(300, 7, 1), World(300, 7, 2)
    assert np.array_equal(world.trace.times, again.trace.times)
    assert (world.names, world.post(5, 3)) == (again.names, again.post(5, 3))
    assert not np.array_equal(world.trace.times[:100], other.trace.times[:100])
    assert world.names != other.names


@pytest.mark.parametrize("publishers", [11, 40, 300])
def test_every_kind_is_there_in_its_share(publishers):
    kinds = World(publishers, 1, 1).kinds
    assert all(abs(kinds.count(kind) - kind.share * publishers) < 1.5 for kind in KINDS)


def test_habits_are_kept(world):
    assert set(of_kind(world, CRON) % 3600) <= set(range(2, 40))
    weekend = (
        of_kind(world, WEEKEND) // DAY_S + 3
    ) % 7 >= 5  # the epoch's first day was a Thursday
    assert weekend.mean() > 0.9
    hour = of_kind(world, NIGHT) % DAY_S / 3600
    assert ((hour > 20) | (hour < 4)).mean() > 0.9
    dying = of_kind(world, DYING) - world.trace.start
    assert (dying > 14 * DAY_S).sum() < 0.7 * (dying < 14 * DAY_S).sum()
    feed = next(i for i, kind in enumerate(world.kinds) if kind is BURST)
    assert np.median(np.diff(world.times(feed))) < 1800 < world.times(feed).std()


def test_posts_can_be_read(world):
    assert len(set(world.names)) == len(set(world.slugs)) == 300
    posts = [world.post(feed, number) for feed in range(300) for number in range(3)]
    words = [text for post in posts for text in (post.title, *post.paragraphs)]
    assert all(text[0].isupper() or not text[0].isalpha() for text in words)
    assert not any(mark in text for text in words for mark in "{}|")
    assert len({post.title for post in posts}) > 300


def test_a_text_sticks_to_what_its_title_says():
    for voice in VOICES:
        known = {}
        write(voice, "title", "a", known)
        before = dict(known)
        write(voice, "text", "b", known)
        assert {key: known[key] for key in before} == before
