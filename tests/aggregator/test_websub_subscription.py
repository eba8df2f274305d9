"""WebSub discovery, subscription and renewal; numbers are those of websub.rocks."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.aggregator.websub_harness import WebSubHarness, atom, websub_test
from tidings.fetch.discovery import discover
from tidings.store.feed_models import NewSubscription, PollOutcome

# --- discovery ----------------------------------------------------------------------------------


@websub_test()
async def test_100_hub_and_self_in_headers(w: WebSubHarness) -> None:
    link = f'<{w.plain}/hub>; rel="hub", </feed?canonical>; rel=self'
    w.publish("/feed", atom("a"), Link=link)
    await w.poll()
    await w.renew_due()
    assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed?canonical"


@websub_test()
async def test_101_feed_linked_from_page_is_subscribed(
    w: WebSubHarness,
) -> None:
    page = (
        '<html><head><link rel="alternate" type="application/atom+xml" href="/feed">'
        f'<link rel="hub" href="{w.plain}/hub2">'
    )
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
    rss = (
        '<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><title>t</title>'
        f'<atom:link rel="hub" href="{w.plain}/hub"/>'
        f'<atom:link rel="self" href="{w.plain}/feed?self"/></channel></rss>'
    )
    w.publish("/feed", rss.encode())
    await w.poll()
    await w.renew_due()
    assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed?self"


@websub_test()
async def test_104_link_headers_take_precedence(w: WebSubHarness) -> None:
    link = f'<{w.plain}/hub>; rel="hub", <{w.plain}/feed?header>; rel="self"'
    w.publish(
        "/feed",
        atom("a", hub=f"{w.plain}/hub-of-the-document", self_url=f"{w.plain}/feed?document"),
        Link=link,
    )
    feed = await w.poll()
    assert (feed.state.hubs, feed.state.self_url) == ((f"{w.plain}/hub",), f"{w.plain}/feed?header")


@websub_test()
async def test_304_keeps_hub(w: WebSubHarness) -> None:
    w.feed("a", self_url="https://a.example/")
    first, again = await w.poll(), await w.poll()
    assert (again.state.hubs, again.state.self_url) == (first.state.hubs, "https://a.example/")


@websub_test()
async def test_password_is_not_sent_to_hub(w: WebSubHarness) -> None:
    w.feed("a")
    await w.poll(w.plain.replace("//", "//name:word@") + "/feed")
    await w.renew_due()
    assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed"


# --- subscribing --------------------------------------------------------------------------------


@websub_test()
async def test_subscription_request_fields(w: WebSubHarness) -> None:
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
async def test_secret_is_sent_over_https_only(w: WebSubHarness) -> None:
    w.feed("a", path="/feed1", hub=f"{w.secure}/hub")
    w.feed("a", path="/feed2", hub=f"{w.plain}/hub")
    await w.poll("/feed1")
    await w.poll("/feed2")
    await w.renew_due()
    secrets = {form["hub.topic"][-1]: form.get("hub.secret", "") for form in w.hub.forms}
    assert 32 <= len(secrets["1"]) < 200
    assert secrets["2"] == ""


@websub_test()
async def test_secret_is_not_redirected_to_http(w: WebSubHarness) -> None:
    w.hub.redirects["/hub-old"] = (307, f"{w.plain}/hub")
    w.feed("a", hub=f"{w.secure}/hub-old")
    await w.poll()
    assert await w.renew_due() == 0


@websub_test()
async def test_200_self_link_is_the_topic(
    w: WebSubHarness,
) -> None:
    feed = await w.subscribe_feed("a", self_url="https://elsewhere.example/feed")
    assert (await w.push(feed)).topic == "https://elsewhere.example/feed"


@pytest.mark.parametrize("status", [302, 301])
def test_201_202_redirected_topic(status: int, tmp_path: Path) -> None:
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
def test_203_204_redirected_hub(status: int, tmp_path: Path) -> None:
    @websub_test()
    async def run_test(w: WebSubHarness) -> None:
        w.hub.redirects["/hub-old"] = (status, "/hub-new")
        feed = await w.subscribe_feed("a", hub=f"{w.plain}/hub-old")
        assert w.hub.forms[0]["hub.topic"] == f"{w.plain}/feed"
        assert await w.state(feed) == "active"

    run_test(tmp_path)


@websub_test()
async def test_303_from_hub_is_not_followed(w: WebSubHarness) -> None:
    w.hub.redirects["/hub-old"] = (303, "/hub-new")
    w.feed("a", hub=f"{w.plain}/hub-old")
    await w.poll()
    assert await w.renew_due() == 0


@websub_test()
async def test_205_unrequested_verification_is_refused(w: WebSubHarness) -> None:
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
async def test_hub_may_verify_during_request(w: WebSubHarness) -> None:
    w.hub.verifies_immediately = True
    w.feed("a")
    feed = await w.poll()
    await w.renew_due()
    assert await w.state(feed) == "active"


@websub_test()
async def test_repeated_verification_is_confirmed(w: WebSubHarness) -> None:
    await w.subscribe_feed("a")
    assert await w.hub.confirm(challenge="again") == (200, "again")


@websub_test()
async def test_denied_subscription_is_retried_after_a_week(w: WebSubHarness) -> None:
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
async def test_forged_denial_is_refused(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a")
    assert await w.hub.confirm(f"{w.plain}/push/guessed", mode="denied") == (404, "")
    assert await w.hub.confirm(mode="denied", topic="https://other.example/") == (404, "")
    assert await w.state(feed) == "active"


@websub_test()
async def test_next_hub_is_used_after_denial(w: WebSubHarness) -> None:
    link = f"<{w.plain}/hub1>; rel=hub, <{w.plain}/hub2>; rel=hub"
    w.publish("/feed", atom("a"), Link=link)
    feed = await w.poll()
    w.hub.status = 403
    await w.renew_due()
    assert await w.state(feed) == "refused"
    await w.renew_due(days=8)
    assert (await w.push(feed)).hub == f"{w.plain}/hub2"


@pytest.mark.parametrize("status", [500, 429])
def test_failed_hub_request_is_retried_after_a_day(status: int, tmp_path: Path) -> None:
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
async def test_unavailable_hub_gets_one_request_per_round(w: WebSubHarness) -> None:
    for path in ("/feed1", "/feed2", "/feed3"):
        w.feed("a", path=path)
        await w.poll(path)
    w.hub.status = 503
    assert await w.renew_due() == 1
    w.hub.status = 202
    assert await w.renew_due(days=1.2) == 3


@websub_test(allow_private=False)
async def test_hub_on_private_network_is_refused(w: WebSubHarness) -> None:
    await w.store.add_subscriptions([NewSubscription("https://a.example/feed", w.clock())])
    feed = await w.store.feed("https://a.example/feed")
    assert feed is not None
    feed = replace(feed, state=replace(feed.state, hubs=(f"{w.plain}/hub",)))
    await w.store.record([PollOutcome(feed_id=feed.id, at=w.clock(), state=feed.state)])
    await w.pushes.update_subscription(feed)
    assert await w.renew_due() == 0
    assert await w.state(feed) == "refused"


@websub_test(public_url="")
async def test_no_subscription_without_public_url(w: WebSubHarness) -> None:
    w.feed("a")
    feed = await w.poll()
    assert await w.renew_due(days=1) == 0
    assert await w.store.find_push_subscription(feed.id) is None


@websub_test()
async def test_push_share_is_zero_after_public_url_is_removed(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a")
    assert w.pushes.share(feed.id) == 0.5
    w.options["public_url"] = ""
    async with w.restart():
        assert await w.hub.send(atom("b")) == 202
        await w.pushes.wait_for_deliveries()
        assert w.pushes.share(feed.id) == 0


@websub_test()
async def test_changed_hub_gets_new_subscription(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a")
    old = w.hub.callback
    w.feed("a", hub=f"{w.plain}/hub-new")
    await w.poll()
    await w.renew_due()
    assert w.hub.callback != old
    assert await w.hub.send(atom("b"), callback=old) == 410
    assert (await w.push(feed)).hub == f"{w.plain}/hub-new"


@websub_test()
async def test_removed_hub_is_unsubscribed(w: WebSubHarness) -> None:
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
async def test_retired_feed_is_unsubscribed(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a")
    await w.store.retire(feed.id, "gone")
    assert await w.hub.send(atom("b")) == 410
    assert await w.renew_due(days=10) == 1
    assert (await w.state(feed), w.hub.forms[-1]["hub.mode"]) == ("ended", "unsubscribe")
    assert await w.renew_due(days=10) == 0


# --- renewing -----------------------------------------------------------------------------------


@websub_test()
async def test_lease_is_renewed_before_it_expires(
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
async def test_unconfirmed_renewal_resets_push_share(
    w: WebSubHarness,
) -> None:
    feed = await w.subscribe_feed("a")
    assert w.pushes.share(feed.id) == 0.5
    await w.renew_due(days=8)
    assert w.pushes.share(feed.id) == 0
    assert await w.renew_due(days=1.2) == 1


@websub_test()
async def test_lease_of_hub_is_used(w: WebSubHarness) -> None:
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
async def test_rounds_run_until_canceled(w: WebSubHarness) -> None:
    w.feed("a")
    await w.poll()
    running = asyncio.create_task(w.pushes.run())
    while not w.hub.forms:
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
