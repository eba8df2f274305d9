"""Full texts: fetched from a real server, within the budget, and sanitized."""

import asyncio
import sys

import pytest

from tests import TEST_TIMEOUT_S
from tests.local_server import LocalServer
from tests.users.conftest import require_extra
from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.scheduler import Scheduler
from tidings.config import Budget
from tidings.fetch import Fetcher, FetchSettings
from tidings.policy.registry import make_policy
from tidings.users import ArticleUnavailable, NotFound, ReaderService
from tidings.users.full_text import MAX_ENTRY_AGE_S, RETRY_AFTER_S, FullTextFetcher

PAGE = """<html><head><title>Herons</title></head><body>
<nav><a href="/">Home</a></nav><article><h1>Herons</h1><p>{text}</p>
<p onclick="steal()">See <a href="/more">more</a>. <img src="/heron.png" alt="a heron"></p>
<script>steal()</script>
<p><a href="javascript:steal()">press</a></p></article><footer>Imprint</footer></body></html>"""
TEXT = "The heron stands in the river and waits for what the tide will bring. "


@pytest.fixture
def site():
    require_extra("trafilatura", "fulltext")
    with LocalServer() as site:
        yield site


class FullTextHarness:
    """Ann has a feed whose entries are on the site; ``run_once`` is the background task."""

    def __init__(self, env, site):
        self.env, self.site = env, site
        self.feed = env.ann.subscribe_to("a")

    def publish(self, number, page=None):
        if page is not None:
            self.site.pages[f"/{number}"] = page
        (entry_id,) = self.env.publish(
            "a", number, url=f"{self.site.address}/", text="The beginning ..."
        )
        return entry_id

    def work(self, task, *, allow_private=True):
        async def work():
            async with Fetcher(
                FetchSettings(allow_private=allow_private), self.env.clock
            ) as fetcher:
                scheduler = Scheduler(make_policy("price"), Budget(1000.0, False))
                aggregator = Aggregator(self.env.store, fetcher, scheduler, self.env.clock)
                before = scheduler.bucket.tokens
                result = await task(aggregator)
                self.spent = before - scheduler.bucket.tokens
                return result

        return self.env.wait(work())

    def run_once(self, **options):
        return self.work(
            lambda aggregator: FullTextFetcher(aggregator, self.env.clock).run_once(), **options
        )

    def request_full_text(self, entry_id, user=None, **options):
        user, env = (user or self.env.ann).user, self.env
        return self.work(
            lambda a: ReaderService(user, env.store, env.clock, aggregator=a).full_text(entry_id),
            **options,
        )

    def content(self, entry_id):
        return self.env.ann.item(entry_id).entry.content


@pytest.fixture
def harness(env, site):
    return FullTextHarness(env, site)


def test_enabled_full_text_is_fetched_once_and_sanitized(harness, env, site):
    before = harness.publish(1, PAGE.format(text=TEXT * 20))
    assert harness.run_once() == 0
    env.ann.change(harness.feed, full_text=True)
    assert harness.run_once() == 1
    assert harness.run_once() == 0
    content = harness.content(before)
    assert TEXT.strip() in content
    assert "Imprint" not in content
    assert f'<img src="{site.address}/heron.png"' in content
    assert "steal" not in content
    assert site.requested_paths == ["/1"]


def test_full_text_is_only_for_users_who_enabled_it(harness, env):
    env.ann.change(harness.feed, full_text=True)
    env.bob.subscribe_to("a")
    one = harness.publish(1, PAGE.format(text=TEXT * 20))
    harness.run_once()
    assert env.bob.item(one).entry.content == "<p>The beginning ...</p>"


def test_failed_full_text_is_retried_until_max_age(harness, env, site, clock):
    env.ann.change(harness.feed, full_text=True)
    one = harness.publish(1)
    counts = []
    while clock() < env.ann.item(one).entry.first_seen_at + 2 * MAX_ENTRY_AGE_S:
        counts.append(harness.run_once())
        clock.forward(RETRY_AFTER_S / 2)
    assert 3 <= sum(counts) <= MAX_ENTRY_AGE_S / RETRY_AFTER_S + 1
    assert harness.content(one) == "<p>The beginning ...</p>"


def test_requested_full_text_uses_budget_and_is_stored(harness, site):
    one = harness.publish(1, PAGE.format(text=TEXT * 20))
    article = harness.request_full_text(one)
    assert harness.spent == 1
    assert TEXT.strip() in article
    assert harness.request_full_text(one) == article
    assert site.requested_paths == ["/1"]
    assert harness.content(one) == "<p>The beginning ...</p>"


def test_unavailable_full_text_raises_with_reason(harness, env, monkeypatch):
    one, two = harness.publish(1), harness.publish(2, "<html><body></body></html>")
    with pytest.raises(ArticleUnavailable, match="status 404"):
        harness.request_full_text(one)
    with pytest.raises(ArticleUnavailable, match="no article found"):
        harness.request_full_text(two)
    with pytest.raises(ArticleUnavailable, match="not a public address"):
        harness.request_full_text(two, allow_private=False)
    with pytest.raises(NotFound):
        harness.request_full_text(one, env.bob)
    monkeypatch.setitem(sys.modules, "trafilatura", None)
    with pytest.raises(ArticleUnavailable, match=r"pip install 'tidings\[fulltext\]'"):
        harness.request_full_text(one)


def test_run_fetches_until_canceled(harness, env):
    env.ann.change(harness.feed, full_text=True)
    one = harness.publish(1, PAGE.format(text=TEXT * 20))

    async def run_until_fetched(aggregator):
        running = asyncio.create_task(FullTextFetcher(aggregator, env.clock).run())
        async with asyncio.timeout(TEST_TIMEOUT_S):
            while "heron" not in (await env.ann.reader_service.item(one)).entry.content:
                await asyncio.sleep(0.01)
        running.cancel()

    harness.work(run_until_fetched)
