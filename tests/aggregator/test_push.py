"""Finding a hub, subscribing, renewing, letting go; the cases of websub.rocks carry its numbers."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.aggregator.websub import World, atom, story
from tidings.fetch.discovery import discover
from tidings.store.rows import PollOutcome, Wanted

# Discovery


@story()
async def test_100_hub_and_self_in_headers(w: World) -> None:
    link = f'<{w.plain}/hub>; rel="hub", </feed?canonical>; rel=self'
    w.publish("/feed", atom("a"), Link=link)
    await w.poll()
    await w.attend()
    assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed?canonical"


@story()
async def test_101_a_page_is_no_feed_but_the_feed_that_it_names_is_subscribed_to(w: World) -> None:
    page = f'<html><head><link rel="alternate" type="application/atom+xml" href="/feed"><link rel="hub" href="{w.plain}/hub2">'
    w.publish("/", page.encode(), **{"Content-Type": "text/html"})
    w.feed("a", self_url=f"{w.plain}/feed")
    (found,) = (await discover(w.fetcher, f"{w.plain}/")).feeds
    await w.poll(found.url)
    await w.attend()
    assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed"


@story()
async def test_102_hub_and_self_in_atom(w: World) -> None:
    w.feed("a", self_url=f"{w.plain}/feed?self")
    await w.poll()
    await w.attend()
    assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed?self"


@story()
async def test_103_hub_and_self_in_rss(w: World) -> None:
    links = f'<atom:link rel="hub" href="{w.plain}/hub"/><atom:link rel="self" href="{w.plain}/feed?self"/>'
    rss = f'<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><title>t</title>{links}</channel></rss>'
    w.publish("/feed", rss.encode())
    await w.poll()
    await w.attend()
    assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed?self"


@story()
async def test_104_headers_win_over_the_document(w: World) -> None:
    link = f'<{w.plain}/hub>; rel="hub", <{w.plain}/feed?header>; rel="self"'
    w.publish("/feed", atom("a", hub=f"{w.plain}/hub-of-the-document", self_url=f"{w.plain}/feed?document"), Link=link)
    feed = await w.poll()
    assert (feed.state.hubs, feed.state.self_url) == ((f"{w.plain}/hub",), f"{w.plain}/feed?header")


@story()
async def test_an_answer_without_a_document_takes_no_hub_away(w: World) -> None:
    w.feed("a", self_url="https://a.example/")
    first, again = await w.poll(), await w.poll()
    assert (again.state.hubs, again.state.self_url) == (first.state.hubs, "https://a.example/")


@story()
async def test_no_password_goes_to_the_hub(w: World) -> None:
    w.feed("a")
    await w.poll(w.plain.replace("//", "//name:word@") + "/feed")
    await w.attend()
    assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed"


# Subscribing


@story()
async def test_what_a_hub_is_told(w: World) -> None:
    w.feed("a")
    feed = await w.poll()
    await w.attend()
    token = (await w.push(feed)).token
    assert w.hub.forms == [
        {
            "hub.mode": "subscribe",
            "hub.topic": f"{w.plain}/feed",
            "hub.callback": f"{w.plain}/push/{token}",
            "hub.lease_seconds": "864000",
        }
    ]
    assert len(token) >= 43  # 32 bytes


@story()
async def test_a_secret_goes_over_encrypted_ways_only(w: World) -> None:
    w.feed("a", path="/feed1", hub=f"{w.secure}/hub")
    w.feed("a", path="/feed2", hub=f"{w.plain}/hub")
    await w.poll("/feed1")
    await w.poll("/feed2")
    await w.attend()
    secrets = {form["hub.topic"][-1]: form.get("hub.secret", "") for form in w.hub.forms}
    assert 32 <= len(secrets["1"]) < 200
    assert secrets["2"] == ""


@story()
async def test_a_secret_does_not_follow_a_redirect_away_from_encryption(w: World) -> None:
    w.hub.redirects["/hub-old"] = (307, f"{w.plain}/hub")
    w.feed("a", hub=f"{w.secure}/hub-old")
    await w.poll()
    assert await w.attend() == 0


@story()
async def test_200_the_feeds_own_name_is_the_topic_even_if_it_was_fetched_elsewhere(w: World) -> None:
    feed = await w.subscribed("a", self_url="https://elsewhere.example/feed")
    assert (await w.push(feed)).topic == "https://elsewhere.example/feed"


@pytest.mark.parametrize("status", [302, 301])
def test_201_202_a_topic_that_redirects(status: int, tmp_path: Path) -> None:
    @story()
    async def tell(w: World) -> None:
        w.publish("/old", b"", status, Location="/feed")
        w.feed("a", self_url=f"{w.plain}/feed")
        feed = await w.poll("/old")
        await w.attend()
        assert await w.hub.confirm() == (200, "riddle")
        assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed"
        assert await w.hub.send(atom("b")) == 202
        await w.pushes.settle()
        assert await w.ids(feed) == [("a", "poll"), ("b", "push")]

    tell(tmp_path)


@pytest.mark.parametrize("status", [302, 301, 307, 308])
def test_203_204_a_hub_that_redirects(status: int, tmp_path: Path) -> None:
    @story()
    async def tell(w: World) -> None:
        w.hub.redirects["/hub-old"] = (status, "/hub-new")
        feed = await w.subscribed("a", hub=f"{w.plain}/hub-old")
        assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed"
        assert await w.state(feed) == "active"

    tell(tmp_path)


@story()
async def test_a_hub_that_sends_us_to_look_elsewhere_gets_no_form_there(w: World) -> None:
    w.hub.redirects["/hub-old"] = (303, "/hub-new")
    w.feed("a", hub=f"{w.plain}/hub-old")
    await w.poll()
    assert await w.attend() == 0


@story()
async def test_205_what_was_not_asked_for_is_not_confirmed(w: World) -> None:
    w.feed("a")
    feed = await w.poll()
    await w.attend()
    assert await w.hub.confirm(topic=f"{w.plain}/feed?other") == (404, "")
    assert await w.hub.confirm(mode="unsubscribe") == (404, "")
    assert await w.hub.confirm(challenge="") == (404, "")
    assert await w.hub.confirm(f"{w.plain}/push/guessed") == (404, "")
    assert await w.state(feed) == "asked"
    assert await w.hub.confirm() == (200, "riddle")
    assert await w.state(feed) == "active"


@story()
async def test_a_hub_may_ask_back_while_it_is_still_being_asked(w: World) -> None:
    w.hub.asks_back_at_once = True
    w.feed("a")
    feed = await w.poll()
    await w.attend()
    assert await w.state(feed) == "active"


@story()
async def test_a_confirmation_that_was_lost_is_given_again(w: World) -> None:
    await w.subscribed("a")
    assert await w.hub.confirm(challenge="again") == (200, "again")


@story()
async def test_a_hub_may_say_no_and_is_asked_again_after_a_week(w: World) -> None:
    feed = await w.subscribed("a")
    assert await w.hub.confirm(mode="denied", challenge="", reason="not today") == (200, "")
    assert await w.state(feed) == "refused"
    assert w.pushes.share(feed.id) == 0
    assert await w.hub.send(atom("b")) == 410
    await w.poll()
    assert await w.attend(days=6.9) == 0
    assert await w.attend(days=1) == 1
    assert await w.hub.confirm() == (200, "riddle")


@story()
async def test_a_stranger_cannot_say_no_in_the_hubs_name(w: World) -> None:
    feed = await w.subscribed("a")
    assert await w.hub.confirm(f"{w.plain}/push/guessed", mode="denied") == (404, "")
    assert await w.hub.confirm(mode="denied", topic="https://other.example/") == (404, "")
    assert await w.state(feed) == "active"


@story()
async def test_after_a_refusal_the_feeds_next_hub_is_tried(w: World) -> None:
    link = f"<{w.plain}/hub1>; rel=hub, <{w.plain}/hub2>; rel=hub"
    w.publish("/feed", atom("a"), Link=link)
    feed = await w.poll()
    w.hub.status = 403
    await w.attend()
    assert await w.state(feed) == "refused"
    await w.attend(days=8)
    assert (await w.push(feed)).hub == f"{w.plain}/hub2"


@pytest.mark.parametrize("status", [500, 429])
def test_a_hub_in_trouble_is_asked_again_after_a_day(status: int, tmp_path: Path) -> None:
    @story()
    async def tell(w: World) -> None:
        w.hub.status = status
        w.feed("a")
        feed = await w.poll()
        assert await w.attend() == 1
        assert await w.attend(days=0.9) == 0
        assert await w.attend(days=0.3) == 1
        assert await w.state(feed) == "asked"

    tell(tmp_path)


@story()
async def test_a_hub_that_is_down_is_tried_for_one_feed_only(w: World) -> None:
    for path in ("/feed1", "/feed2", "/feed3"):
        w.feed("a", path=path)
        await w.poll(path)
    w.hub.status = 503
    assert await w.attend() == 1
    w.hub.status = 202
    assert await w.attend(days=1.2) == 3


@story(allow_private=False)
async def test_a_feed_cannot_make_us_ask_our_own_network(w: World) -> None:
    await w.store.add([Wanted("https://a.example/feed", w.clock())])
    feed = await w.store.feed("https://a.example/feed")
    assert feed is not None
    feed = replace(feed, state=replace(feed.state, hubs=(f"{w.plain}/hub",)))
    await w.store.record([PollOutcome(feed_id=feed.id, at=w.clock(), state=feed.state)])
    await w.pushes.consider(feed)
    assert await w.attend() == 0
    assert await w.state(feed) == "refused"


@story(public_url="")
async def test_without_an_address_of_our_own_no_hub_is_asked(w: World) -> None:
    w.feed("a")
    feed = await w.poll()
    assert await w.attend(days=1) == 0
    assert await w.store.push(feed.id) is None


@story()
async def test_whoever_takes_the_address_away_polls_as_before(w: World) -> None:
    feed = await w.subscribed("a")
    assert w.pushes.share(feed.id) == 0.5
    w.options["public_url"] = ""
    async with w.restarted():
        assert await w.hub.send(atom("b")) == 202
        await w.pushes.settle()
        assert w.pushes.share(feed.id) == 0


@story()
async def test_a_feed_that_changes_its_hub_gets_a_new_subscription(w: World) -> None:
    feed = await w.subscribed("a")
    old = w.hub.callback
    w.feed("a", hub=f"{w.plain}/hub-new")
    await w.poll()
    await w.attend()
    assert w.hub.callback != old
    assert await w.hub.send(atom("b"), callback=old) == 410
    assert (await w.push(feed)).hub == f"{w.plain}/hub-new"


@story()
async def test_a_feed_that_names_no_hub_any_more_is_let_go(w: World) -> None:
    feed = await w.subscribed("a")
    w.publish("/feed", atom("a", "b"))
    await w.poll()
    assert await w.state(feed) == "ended"
    assert await w.hub.send(atom("c")) == 410
    assert await w.attend() == 1
    assert w.hub.forms[-1] == {**w.hub.forms[0], "hub.mode": "unsubscribe"}
    assert await w.hub.confirm(mode="subscribe") == (404, "")
    assert await w.hub.confirm(mode="unsubscribe") == (200, "riddle")
    assert await w.attend(days=30) == 0
    w.feed("a", "b")
    await w.poll()
    assert await w.attend() == 1


@story()
async def test_a_retired_feed_is_let_go(w: World) -> None:
    feed = await w.subscribed("a")
    await w.store.retire(feed.id, "gone")
    assert await w.hub.send(atom("b")) == 410
    assert await w.attend(days=10) == 1
    assert (await w.state(feed), w.hub.forms[-1]["hub.mode"]) == ("ended", "unsubscribe")
    assert await w.attend(days=10) == 0


# Renewing


@story()
async def test_a_lease_is_renewed_before_it_ends_and_nothing_is_lost_meanwhile(w: World) -> None:
    feed = await w.subscribed("a")
    first = w.hub.callback
    assert await w.attend(days=6.9) == 0
    assert await w.attend(days=1.1) == 1
    assert w.hub.callback == first
    assert await w.hub.send(atom("b")) == 202
    assert await w.hub.confirm() == (200, "riddle")
    await w.pushes.settle()
    assert await w.ids(feed) == [("a", "poll"), ("b", "push")]
    assert await w.attend(days=6.9) == 0


@story()
async def test_a_renewal_that_the_hub_never_confirms_gives_polling_back_its_work(w: World) -> None:
    feed = await w.subscribed("a")
    assert w.pushes.share(feed.id) == 0.5
    await w.attend(days=8)
    assert w.pushes.share(feed.id) == 0
    assert await w.attend(days=1.2) == 1


@story()
async def test_the_lease_is_the_hubs_to_choose(w: World) -> None:
    w.feed("a")
    await w.poll()
    await w.attend()
    await w.hub.confirm(lease_seconds="86400")
    assert await w.attend(days=0.69) == 0
    assert await w.attend(days=0.11) == 1


@story()
async def test_subscriptions_survive_a_restart(w: World) -> None:
    w.feed("a")
    feed = await w.poll()
    async with w.restarted():
        assert await w.attend() == 1
    async with w.restarted():
        assert await w.hub.confirm() == (200, "riddle")
        await w.hub.send(atom("b"))
    async with w.restarted():
        assert w.pushes.share(feed.id) == pytest.approx(2 / 3)
        assert await w.attend(days=8) == 1
    assert await w.ids(feed) == [("a", "poll"), ("b", "push")]


@story()
async def test_rounds_go_on_until_cancelled(w: World) -> None:
    w.feed("a")
    await w.poll()
    running = asyncio.create_task(w.pushes.run())
    while not w.hub.forms:
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
