"""WebSub deliveries: authentication, recording, push share (numbers: tests of websub.rocks)."""

import hmac
from pathlib import Path

import pytest

from tests.aggregator.websub_harness import MAX_BYTES, WebSubHarness, atom, websub_test
from tidings.aggregator import websub
from tidings.parse import parse

# --- receiving ----------------------------------------------------------------------------------


@websub_test()
async def test_300_delivery_is_acknowledged_before_processing(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a", hub=f"{w.secure}/hub")
    w.delivery_gate.clear()
    assert await w.hub.send(atom("b")) == 202
    assert await w.ids(feed) == [("a", "poll")]
    w.delivery_gate.set()
    await w.pushes.wait_for_deliveries()
    assert await w.ids(feed) == [("a", "poll"), ("b", "push")]


@websub_test()
async def test_301_invalid_signature_is_dropped(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a", hub=f"{w.secure}/hub")
    secret, body = w.hub.forms[0]["hub.secret"].encode(), atom("b")
    for sign in (
        "sha256=" + hmac.new(b"another", body, "sha256").hexdigest(),
        "sha256=" + hmac.new(secret, body + b" ", "sha256").hexdigest(),
        "sha1=" + hmac.new(secret, body, "sha256").hexdigest(),
        "md5=" + hmac.new(secret, body, "md5").hexdigest(),
        "sha256=",
        "sha256",
        "=",
        "sha256=\u00e4",
    ):
        assert await w.hub.send(body, sign=sign) == 202
    await w.pushes.wait_for_deliveries()
    assert await w.ids(feed) == [("a", "poll")]
    assert (w.pinged_feeds, (await w.push(feed)).last_push_at) == ([], None)


@websub_test()
async def test_302_missing_signature_is_dropped(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a", hub=f"{w.secure}/hub")
    assert await w.hub.send(atom("b"), sign="") == 202
    await w.pushes.wait_for_deliveries()
    assert await w.ids(feed) == [("a", "poll")]
    assert w.pinged_feeds == []


@websub_test()
async def test_all_signature_methods_are_accepted(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed(hub=f"{w.secure}/hub")
    secret = w.hub.forms[0]["hub.secret"].encode()
    for method in ("sha1", "sha256", "sha384", "sha512"):
        body = atom(method)
        assert (
            await w.hub.send(body, sign=f"{method}={hmac.new(secret, body, method).hexdigest()}")
            == 202
        )
    await w.pushes.wait_for_deliveries()
    assert [name for name, _ in await w.ids(feed)] == ["sha1", "sha256", "sha384", "sha512"]


@websub_test()
async def test_entries_missing_from_push_are_kept(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a", "b", hub=f"{w.secure}/hub")
    await w.hub.send(atom("c"))
    await w.hub.send(atom("d", "c", "b", "a"))
    await w.pushes.wait_for_deliveries()
    assert await w.ids(feed) == [("a", "poll"), ("b", "poll"), ("c", "push"), ("d", "push")]


@pytest.mark.parametrize(
    "body",
    [b"", b'{"ping": 1}', b"<html><body>news</body></html>", b"<rss", b"\x1f\x8b\x08 packed"],
)
def test_delivery_without_feed_is_a_ping(body: bytes, tmp_path: Path) -> None:
    @websub_test()
    async def run_test(w: WebSubHarness) -> None:
        feed = await w.subscribe_feed("a", hub=f"{w.secure}/hub")
        assert await w.hub.send(body) == 202
        await w.pushes.wait_for_deliveries()
        assert w.pinged_feeds == [feed.id]
        assert await w.ids(feed) == [("a", "poll")]

    run_test(tmp_path)


@websub_test()
async def test_truncated_feed_is_a_ping(w: WebSubHarness) -> None:
    async def fail_to_parse(feed_id: int, body: bytes, content_type: str) -> int:
        parse(b"")
        raise AssertionError

    w.options["on_content"] = fail_to_parse
    async with w.restart():
        feed = await w.subscribe_feed("a")
        await w.hub.send(atom("b"))
    assert w.pinged_feeds == [feed.id]


@websub_test()
async def test_failed_delivery_does_not_block_next(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a")
    content, calls = w._content, []

    async def fails_first(feed_id: int, body: bytes, content_type: str) -> int:
        calls.append(content_type)
        if len(calls) == 1:
            raise RuntimeError("not expected")
        return await content(feed_id, body, content_type)

    w.options["on_content"] = fails_first
    async with w.restart():
        await w.hub.send(atom("b"))
        await w.hub.send(atom("c"))
    assert calls == ["application/atom+xml"] * 2
    assert await w.ids(feed) == [("a", "poll"), ("c", "push")]


@websub_test()
async def test_unsigned_delivery_of_https_feed_is_a_ping(
    w: WebSubHarness,
) -> None:
    w.feed("a")
    feed = await w.poll(base=w.secure)
    await w.renew_due()
    await w.hub.confirm()
    assert await w.hub.send(atom("forged")) == 202
    await w.pushes.wait_for_deliveries()
    assert w.pinged_feeds == [feed.id]
    assert await w.ids(feed) == [("a", "poll")]


@websub_test()
async def test_links_in_delivery_do_not_change_its_feed(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a")
    w.feed("x", path="/other")
    other = await w.poll("/other")
    link = f'<{w.plain}/other>; rel="self", <{w.plain}/hub>; rel="hub"'
    await w.hub.send(atom("b", self_url=f"{w.plain}/other"), Link=link)
    await w.pushes.wait_for_deliveries()
    assert await w.ids(feed) == [("a", "poll"), ("b", "push")]
    assert await w.ids(other) == [("x", "poll")]


@websub_test()
async def test_oversized_and_excess_deliveries_are_refused(w: WebSubHarness) -> None:
    await w.subscribe_feed("a")
    assert await w.hub.send(atom("b") + b" " * MAX_BYTES) == 413
    w.delivery_gate.clear()
    statuses = [await w.hub.send(atom("b")) for _ in range(websub.MAX_QUEUED_DELIVERIES + 2)]
    assert statuses[-1] == 503
    assert set(statuses[:-1]) <= {202, 503}
    w.delivery_gate.set()
    await w.pushes.wait_for_deliveries()
    assert await w.hub.send(atom("b")) == 202


@websub_test()
async def test_unknown_callback_url_returns_410(w: WebSubHarness) -> None:
    await w.subscribe_feed("a")
    assert await w.hub.send(atom("b"), callback=f"{w.plain}/push/guessed") == 410


# --- push share ---------------------------------------------------------------------------------


@websub_test()
async def test_push_share_follows_reliability_of_hub(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("0")
    for i in range(1, 9):
        await w.hub.send(atom(str(i)))
    await w.pushes.wait_for_deliveries()
    assert w.pushes.share(feed.id) == pytest.approx(9 / 10)
    w.feed("m1", "m2")
    await w.poll()
    assert w.pushes.share(feed.id) == pytest.approx(9 / 12)
    assert await w.renew_due() == 0
    w.feed(*[f"n{i}" for i in range(7)])
    await w.poll()
    assert w.pushes.share(feed.id) < 0.5
    assert await w.renew_due() == 1  # the hub may have lost the subscription
    assert await w.hub.confirm() == (200, "riddle")
    w.feed("o")
    await w.poll()
    assert await w.renew_due() == 0  # once, not for every post
    for i in range(20):
        await w.hub.send(atom(f"p{i}"))
    await w.pushes.wait_for_deliveries()
    assert w.pushes.share(feed.id) > 0.6


@websub_test()
async def test_recent_post_is_not_counted_as_unpushed(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a")
    w.feed("b", ago_s=60)
    await w.poll()
    await w.hub.send(atom("b"))
    await w.pushes.wait_for_deliveries()
    push = await w.push(feed)
    assert (push.pushed_count, push.unpushed_count) == (0, 0)


@websub_test()
async def test_posts_found_after_ping_count_as_pushed(w: WebSubHarness) -> None:
    feed = await w.subscribe_feed("a")
    w.feed("a", "b", ago_s=1200)
    await w.hub.send(b"")
    await w.pushes.wait_for_deliveries()
    await w.poll()
    assert ((await w.push(feed)).pushed_count, (await w.push(feed)).unpushed_count) == (1, 0)
    w.clock.now += 7200
    w.feed("a", "b", "c")
    await w.poll()
    assert ((await w.push(feed)).pushed_count, (await w.push(feed)).unpushed_count) == (1, 1)
