"""Whole articles: fetched from a real site, with its manners, and made safe."""

import asyncio
import sys

import pytest

from tests import PATIENCE_S
from tests.people.conftest import need
from tests.sites import Site
from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.brain import Brain
from tidings.config import Budget
from tidings.fetch import Fetcher, FetchSettings
from tidings.people import NoArticle, NotFound, Reading
from tidings.people.articles import AGAIN_S, LOOK_BACK_S, Articles
from tidings.policy.registry import make_policy

PAGE = """<html><head><title>Herons</title></head><body><nav><a href="/">Home</a></nav><article><h1>Herons</h1><p>{words}</p>
<p onclick="steal()">See <a href="/more">more</a>. <img src="/heron.png" alt="a heron"></p><script>steal()</script>
<p><a href="javascript:steal()">press</a></p></article><footer>Imprint</footer></body></html>"""
WORDS = "The heron stands in the river and waits for what the tide will bring. "


@pytest.fixture
def site():
    need("trafilatura", "fulltext")
    with Site() as site:
        yield site


class Desk:
    """Ann follows a feed whose entries are on the site; ``desk.round()`` is the background work."""

    def __init__(self, town, site):
        self.town, self.site = town, site
        self.feed = town.ann.follows("a")

    def posted(self, number, page=None):
        if page is not None:
            self.site.pages[f"/{number}"] = page
        (entry_id,) = self.town.posted("a", number, url=f"{self.site.address}/", text="The beginning ...")
        return entry_id

    def work(self, task, *, allow_private=True):
        async def work():
            async with Fetcher(FetchSettings(allow_private=allow_private), self.town.clock) as fetcher:
                brain = Brain(make_policy("price"), Budget(1000.0, False))
                aggregator = Aggregator(self.town.store, fetcher, brain, self.town.clock)
                before = brain.bucket.tokens
                result = await task(aggregator)
                self.spent = before - brain.bucket.tokens
                return result

        return self.town.wait(work())

    def round(self, **options):
        return self.work(lambda aggregator: Articles(aggregator, self.town.clock).round(), **options)

    def asked_for(self, entry_id, person=None, **options):
        user, town = (person or self.town.ann).user, self.town
        return self.work(lambda a: Reading(user, town.store, town.clock, aggregator=a).full_text(entry_id), **options)

    def content(self, entry_id):
        return self.town.ann.item(entry_id).entry.content


@pytest.fixture
def desk(town, site):
    return Desk(town, site)


def test_a_feed_whose_reader_wants_it_has_its_articles_fetched_once_and_safe(desk, town, site):
    before = desk.posted(1, PAGE.format(words=WORDS * 20))
    assert desk.round() == 0
    town.ann.change(desk.feed, full_text=True)
    assert desk.round() == 1
    assert desk.round() == 0
    content = desk.content(before)
    assert WORDS.strip() in content
    assert "Imprint" not in content
    assert f'<img src="{site.address}/heron.png"' in content
    assert "steal" not in content
    assert site.asked == ["/1"]


def test_who_did_not_ask_for_it_reads_what_the_feed_says(desk, town):
    town.ann.change(desk.feed, full_text=True)
    town.bob.follows("a")
    one = desk.posted(1, PAGE.format(words=WORDS * 20))
    desk.round()
    assert town.bob.item(one).entry.content == "<p>The beginning ...</p>"


def test_what_cannot_be_had_is_tried_again_now_and_then_and_not_for_ever(desk, town, site, clock):
    town.ann.change(desk.feed, full_text=True)
    one = desk.posted(1)
    rounds = []
    while clock() < town.ann.item(one).entry.first_seen_at + 2 * LOOK_BACK_S:
        rounds.append(desk.round())
        clock.forward(AGAIN_S / 2)
    assert 3 <= sum(rounds) <= LOOK_BACK_S / AGAIN_S + 1
    assert desk.content(one) == "<p>The beginning ...</p>"


def test_an_article_is_had_by_hand_on_the_budget_and_kept(desk, site):
    one = desk.posted(1, PAGE.format(words=WORDS * 20))
    article = desk.asked_for(one)
    assert desk.spent == 1
    assert WORDS.strip() in article
    assert desk.asked_for(one) == article
    assert site.asked == ["/1"]
    assert desk.content(one) == "<p>The beginning ...</p>"


def test_why_there_is_none(desk, town, monkeypatch):
    one, two = desk.posted(1), desk.posted(2, "<html><body></body></html>")
    with pytest.raises(NoArticle, match="answered 404"):
        desk.asked_for(one)
    with pytest.raises(NoArticle, match="no article was found"):
        desk.asked_for(two)
    with pytest.raises(NoArticle, match="not a public address"):
        desk.asked_for(two, allow_private=False)
    with pytest.raises(NotFound):
        desk.asked_for(one, town.bob)
    monkeypatch.setitem(sys.modules, "trafilatura", None)
    with pytest.raises(NoArticle, match=r"pip install 'tidings\[fulltext\]'"):
        desk.asked_for(one)


def test_the_work_goes_on_for_as_long_as_it_is_let(desk, town):
    town.ann.change(desk.feed, full_text=True)
    one = desk.posted(1, PAGE.format(words=WORDS * 20))

    async def until_there(aggregator):
        running = asyncio.create_task(Articles(aggregator, town.clock).run())
        async with asyncio.timeout(PATIENCE_S):
            while "heron" not in (await town.ann.reading.item(one)).entry.content:
                await asyncio.sleep(0.01)
        running.cancel()

    desk.work(until_there)
