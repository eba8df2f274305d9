"""Finding a hub, subscribing, renewing, letting go; the cases of websub.rocks carry its numbers."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.aggregator.websub_harness import WebSubHarness, atom, websub_test
from tidings.fetch.discovery import discover
from tidings.store.feed_models import NewSubscription, PollOutcome

# Discovery


@websub_test()
async def test_100_hub_and_self_in_headers(w: WebSubHarness) -> None:
    link = f'<{w.plain}/hub>; rel="hub", </feed?canonical>; rel=self'
    w.publish("/feed", atom("a"), Link=link)
    await w.poll()
    await w.renew_due()
    assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed?canonical"


@websub_test()
async def test_101_a_page_is_no_feed_but_the_feed_that_it_names_is_subscribed_to(
    w: WebSubHarness,
) -> None:
    page = f'<html><head><link rel="alternate" type="application/atom+xml" href="/feed"><link rel="hub" href="{w.plain}/hub2">'
    w.publish("/", page.encode(), **{"Content-Type": "text/html"})
    w.feed("a", self_url=f"{w.plain}/feed")
    (found,) = (await discover(w.fetcher, f"{w.plain}/")).feeds
    await w.poll(found.url)
    await w.renew_due()
    assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed"


@websub_test()
async def test_102_hub_and_self_in_atom(w: WebSubHarness) -> None:
    w.feed("a", self_url=f"{w.plain}/feed?self")
    await w.poll()
    await w.renew_due()
    assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed?self"


@websub_test()
async def test_103_hub_and_self_in_rss(w: WebSubHarness) -> None:
    links = f'<atom:link rel="hub" href="{w.plain}/hub"/><atom:link rel="self" href="{w.plain}/feed?self"/>'
    rss = f'<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><title>t</title>{links}</channel></rss>'
    w.publish("/feed", rss.encode())
    await w.poll()
    await w.renew_due()
    assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed?self"


@websub_test()
async def test_104_headers_win_over_the_document(w: WebSubHarness) -> None:
    link = f'<{w.plain}/hub>; rel="hub", <{w.plain}/feed?header>; rel="self"'
    w.publish(
        "/feed",
        atom("a", hub=f"{w.plain}/hub-of-the-document", self_url=f"{w.plain}/feed?document"),
        Link=link,
    )
    feed = await w.poll()
    assert (feed.state.hubs, feed.state.self_url) == ((f"{w.plain}/hub",), f"{w.plain}/feed?header")


@websub_test()
async def test_an_answer_without_a_document_takes_no_hub_away(w: WebSubHarness) -> None:
    w.feed("a", self_url="https://a.example/")
    first, again = await w.poll(), await w.poll()
    assert (again.state.hubs, again.state.self_url) == (first.state.hubs, "https://a.example/")


@websub_test()
async def test_no_password_goes_to_the_hub(w: WebSubHarness) -> None:
    w.feed("a")
    await w.poll(w.plain.replace("//", "//name:word@") + "/feed")
    await w.renew_due()
    assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed"


# Subscribing


@websub_test()
async def test_what_a_hub_is_told(w: WebSubHarness) -> None:
    w.feed("a")
    feed = await w.poll()
    await w.renew_due()
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


@websub_test()
async def test_a_secret_goes_over_encrypted_ways_only(w: WebSubHarness) -> None:
    w.feed("a", path="/feed1", hub=f"{w.secure}/hub")
    w.feed("a", path="/feed2", hub=f"{w.plain}/hub")
    await w.poll("/feed1")
    await w.poll("/feed2")
    await w.renew_due()
    secrets = {form["hub.topic"][-1]: form.get("hub.secret", "") for form in w.hub.forms}
    assert 32 <= len(secrets["1"]) < 200
    assert secrets["2"] == ""


@websub_test()
async def test_a_secret_does_not_follow_a_redirect_away_from_encryption(w: WebSubHarness) -> None:
    w.hub.redirects["/hub-old"] = (307, f"{w.plain}/hub")
    w.feed("a", hub=f"{w.secure}/hub-old")
    await w.poll()
    assert await w.renew_due() == 0


@websub_test()
async def test_200_the_feeds_own_name_is_the_topic_even_if_it_was_fetched_elsewhere(
    w: WebSubHarness,
) -> None:
    feed = await w.subscribe_feed("a", self_url="https://elsewhere.example/feed")
    assert (await w.push(feed)).topic == "https://elsewhere.example/feed"


@pytest.mark.parametrize("status", [302, 301])
def test_201_202_a_topic_that_redirects(status: int, tmp_path: Path) -> None:
    @websub_test()
    async def run_test(w: WebSubHarness) -> None:
        w.publish("/old", b"", status, Location="/feed")
        w.feed("a", self_url=f"{w.plain}/feed")
        feed = await w.poll("/old")
        await w.renew_due()
        assert await w.hub.confirm() == (200, "riddle")
        assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed"
        assert await w.hub.send(atom("b")) == 202
        await w.pushes.wait_for_deliveries()
        assert await w.ids(feed) == [("a", "poll"), ("b", "push")]

    run_test(tmp_path)


@pytest.mark.parametrize("status", [302, 301, 307, 308])
def test_203_204_a_hub_that_redirects(status: int, tmp_path: Path) -> None:
    @websub_test()
    async def run_test(w: WebSubHarness) -> None:
        w.hub.redirects["/hub-old"] = (status, "/hub-new")
        feed = await w.subscribe_feed("a", hub=f"{w.plain}/hub-old")
        assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed"
        assert await w.state(feed) == "active"

    run_test(tmp_path)


@websub_test()
async def test_a_hub_that_sends_us_to_look_elsewhere_gets_no_form_there(w: WebSubHarness) -> None:
    w.hub.redirects["/hub-old"] = (303, "/hub-new")
    w.feed("a", hub=f"{w.plain}/hub-old")
    await w.poll()
    assert await w.renew_due() == 0


@websub_test()
async def test_205_what_was_not_asked_for_is_not_confirmed(w: WebSubHarness) -> None:
    w.feed("a")
    feed = await w.poll()
    await w.renew_due()
    assert await w.hub.confirm(topic=f"{w.plain}/feed?other") == (404, "")
    assert await w.hub.confirm(mode="unsubscribe") == (404, "")
    assert await w.hub.confirm(challenge="") == (404, "")
    assert await w.hub.confirm(f"{w.plain}/push/guessed") == (404, "")
    assert await w.state(feed) == "asked"
    assert await w.hub.confirm() == (200, "riddle")
    assert await w.state(feed) == "active"


@websub_test()
async def test_a_hub_may_ask_back_while_it_is_still_being_asked(w: WebSubHarness) -> None:
    w.hub.verifies_immediately = True
    w.feed("a")
    feed = await w.poll()
    await w.renew_due()
    assert await w.state(feed) == "active"


@websub_test()
async def test_a_confirmation_that_was_lost_is_given_again(w: WebSubHarness) -> None:
    await w.subscribe_feed("a")
    assert await w.hub.confirm(challenge="again") == (200, "again")


@websub_test()
async def test_a_hub_may_say_no_and_is_asked_again_after_a_week(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a")
    assert await w.hub.confirm(mode="denied", challenge="", reason="not today") == (200, "")
    assert await w.state(feed) == "refused"
    assert w.pushes.share(feed.id) == 0
    assert await w.hub.send(atom("b")) == 410
    await w.poll()
    assert await w.renew_due(days=6.9) == 0
    assert await w.renew_due(days=1) == 1
    assert await w.hub.confirm() == (200, "riddle")


@websub_test()
async def test_a_stranger_cannot_say_no_in_the_hubs_name(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a")
    assert await w.hub.confirm(f"{w.plain}/push/guessed", mode="denied") == (404, "")
    assert await w.hub.confirm(mode="denied", topic="https://other.example/") == (404, "")
    assert await w.state(feed) == "active"


@websub_test()
async def test_after_a_refusal_the_feeds_next_hub_is_tried(w: WebSubHarness) -> None:
    link = f"<{w.plain}/hub1>; rel=hub, <{w.plain}/hub2>; rel=hub"
    w.publish("/feed", atom("a"), Link=link)
    feed = await w.poll()
    w.hub.status = 403
    await w.renew_due()
    assert await w.state(feed) == "refused"
    await w.renew_due(days=8)
    assert (await w.push(feed)).hub == f"{w.plain}/hub2"


@pytest.mark.parametrize("status", [500, 429])
def test_a_hub_in_trouble_is_asked_again_after_a_day(status: int, tmp_path: Path) -> None:
    @websub_test()
    async def run_test(w: WebSubHarness) -> None:
        w.hub.status = status
        w.feed("a")
        feed = await w.poll()
        assert await w.renew_due() == 1
        assert await w.renew_due(days=0.9) == 0
        assert await w.renew_due(days=0.3) == 1
        assert await w.state(feed) == "asked"

    run_test(tmp_path)


@websub_test()
async def test_a_hub_that_is_down_is_tried_for_one_feed_only(w: WebSubHarness) -> None:
    for path in ("/feed1", "/feed2", "/feed3"):
        w.feed("a", path=path)
        await w.poll(path)
    w.hub.status = 503
    assert await w.renew_due() == 1
    w.hub.status = 202
    assert await w.renew_due(days=1.2) == 3


@websub_test(allow_private=False)
async def test_a_feed_cannot_make_us_ask_our_own_network(w: WebSubHarness) -> None:
    await w.store.add([NewSubscription("https://a.example/feed", w.clock())])
    feed = await w.store.feed("https://a.example/feed")
    assert feed is not None
    feed = replace(feed, state=replace(feed.state, hubs=(f"{w.plain}/hub",)))
    await w.store.record([PollOutcome(feed_id=feed.id, at=w.clock(), state=feed.state)])
    await w.pushes.update_subscription(feed)
    assert await w.renew_due() == 0
    assert await w.state(feed) == "refused"


@websub_test(public_url="")
async def test_without_an_address_of_our_own_no_hub_is_asked(w: WebSubHarness) -> None:
    w.feed("a")
    feed = await w.poll()
    assert await w.renew_due(days=1) == 0
    assert await w.store.push(feed.id) is None


@websub_test()
async def test_whoever_takes_the_address_away_polls_as_before(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a")
    assert w.pushes.share(feed.id) == 0.5
    w.options["public_url"] = ""
    async with w.restart():
        assert await w.hub.send(atom("b")) == 202
        await w.pushes.wait_for_deliveries()
        assert w.pushes.share(feed.id) == 0


@websub_test()
async def test_a_feed_that_changes_its_hub_gets_a_new_subscription(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a")
    old = w.hub.callback
    w.feed("a", hub=f"{w.plain}/hub-new")
    await w.poll()
    await w.renew_due()
    assert w.hub.callback != old
    assert await w.hub.send(atom("b"), callback=old) == 410
    assert (await w.push(feed)).hub == f"{w.plain}/hub-new"


@websub_test()
async def test_a_feed_that_names_no_hub_any_more_is_let_go(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a")
    w.publish("/feed", atom("a", "b"))
    await w.poll()
    assert await w.state(feed) == "ended"
    assert await w.hub.send(atom("c")) == 410
    assert await w.renew_due() == 1
    assert w.hub.forms[-1] == {**w.hub.forms[0], "hub.mode": "unsubscribe"}
    assert await w.hub.confirm(mode="subscribe") == (404, "")
    assert await w.hub.confirm(mode="unsubscribe") == (200, "riddle")
    assert await w.renew_due(days=30) == 0
    w.feed("a", "b")
    await w.poll()
    assert await w.renew_due() == 1


@websub_test()
async def test_a_retired_feed_is_let_go(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a")
    await w.store.retire(feed.id, "gone")
    assert await w.hub.send(atom("b")) == 410
    assert await w.renew_due(days=10) == 1
    assert (await w.state(feed), w.hub.forms[-1]["hub.mode"]) == ("ended", "unsubscribe")
    assert await w.renew_due(days=10) == 0


# Renewing


@websub_test()
async def test_a_lease_is_renewed_before_it_ends_and_nothing_is_lost_meanwhile(
    w: WebSubHarness,
) -> None:
    feed = await w.subscribe_feed("a")
    first = w.hub.callback
    assert await w.renew_due(days=6.9) == 0
    assert await w.renew_due(days=1.1) == 1
    assert w.hub.callback == first
    assert await w.hub.send(atom("b")) == 202
    assert await w.hub.confirm() == (200, "riddle")
    await w.pushes.wait_for_deliveries()
    assert await w.ids(feed) == [("a", "poll"), ("b", "push")]
    assert await w.renew_due(days=6.9) == 0


@websub_test()
async def test_a_renewal_that_the_hub_never_confirms_gives_polling_back_its_work(
    w: WebSubHarness,
) -> None:
    feed = await w.subscribe_feed("a")
    assert w.pushes.share(feed.id) == 0.5
    await w.renew_due(days=8)
    assert w.pushes.share(feed.id) == 0
    assert await w.renew_due(days=1.2) == 1


@websub_test()
async def test_the_lease_is_the_hubs_to_choose(w: WebSubHarness) -> None:
    w.feed("a")
    await w.poll()
    await w.renew_due()
    await w.hub.confirm(lease_seconds="86400")
    assert await w.renew_due(days=0.69) == 0
    assert await w.renew_due(days=0.11) == 1


@websub_test()
async def test_subscriptions_survive_a_restart(w: WebSubHarness) -> None:
    w.feed("a")
    feed = await w.poll()
    async with w.restart():
        assert await w.renew_due() == 1
    async with w.restart():
        assert await w.hub.confirm() == (200, "riddle")
        await w.hub.send(atom("b"))
    async with w.restart():
        assert w.pushes.share(feed.id) == pytest.approx(2 / 3)
        assert await w.renew_due(days=8) == 1
    assert await w.ids(feed) == [("a", "poll"), ("b", "push")]


@websub_test()
async def test_rounds_go_on_until_cancelled(w: WebSubHarness) -> None:
    w.feed("a")
    await w.poll()
    running = asyncio.create_task(w.pushes.run())
    while not w.hub.forms:
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
