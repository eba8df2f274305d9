"""Simulated publishers: reproducible by seed, posting patterns by kind, readable texts."""

import numpy as np
import pytest

from tidings.demo.simulated_publishers import (
    BURST,
    CRON,
    DYING,
    KINDS,
    NIGHT,
    WEEKEND,
    SimulatedPublishers,
)
from tidings.demo.text_generator import STYLES, generate_text
from tidings.model import DAY_S


@pytest.fixture(scope="module")
def publishers():
    return SimulatedPublishers(300, 7, 1)


def of_kind(publishers, kind):
    return np.concatenate(
        [publishers.times(i) for i, other in enumerate(publishers.kinds) if other is kind]
    )


def test_same_seed_gives_the_same_publishers(publishers):
    again, other = SimulatedPublishers(300, 7, 1), SimulatedPublishers(300, 7, 2)
    assert np.array_equal(publishers.trace.times, again.trace.times)
    assert (publishers.names, publishers.post(5, 3)) == (again.names, again.post(5, 3))
    assert not np.array_equal(publishers.trace.times[:100], other.trace.times[:100])
    assert publishers.names != other.names


@pytest.mark.parametrize("publishers", [11, 40, 300])
def test_kinds_are_assigned_by_their_shares(publishers):
    kinds = SimulatedPublishers(publishers, 1, 1).kinds
    assert all(abs(kinds.count(kind) - kind.share * publishers) < 1.5 for kind in KINDS)


def test_posting_times_match_the_kind(publishers):
    assert set(of_kind(publishers, CRON) % 3600) <= set(range(2, 40))
    weekend = (of_kind(publishers, WEEKEND) // DAY_S + 3) % 7 >= 5  # 1 January 1970 was a Thursday
    assert weekend.mean() > 0.9
    hour = of_kind(publishers, NIGHT) % DAY_S / 3600
    assert ((hour > 20) | (hour < 4)).mean() > 0.9
    dying = of_kind(publishers, DYING) - publishers.trace.start
    assert (dying > 14 * DAY_S).sum() < 0.7 * (dying < 14 * DAY_S).sum()
    feed = next(i for i, kind in enumerate(publishers.kinds) if kind is BURST)
    assert np.median(np.diff(publishers.times(feed))) < 1800 < publishers.times(feed).std()


def test_posts_have_readable_texts(publishers):
    assert len(set(publishers.names)) == len(set(publishers.slugs)) == 300
    posts = [publishers.post(feed, number) for feed in range(300) for number in range(3)]
    texts = [text for post in posts for text in (post.title, *post.paragraphs)]
    assert all(text[0].isupper() or not text[0].isalpha() for text in texts)
    assert not any(mark in text for text in texts for mark in "{}|")
    assert len({post.title for post in posts}) > 300


def test_text_repeats_the_phrases_of_its_title():
    for style in STYLES:
        phrases = {}
        generate_text(style, "title", "a", phrases)
        before = dict(phrases)
        generate_text(style, "text", "b", phrases)
        assert {key: phrases[key] for key in before} == before
