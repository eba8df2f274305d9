"""What hubs send, whether it is believed, and how much of the polling it replaces; numbers are those of websub.rocks."""

import hmac
from pathlib import Path

import pytest

from tests.aggregator.websub import MAX_BYTES, World, atom, story
from tidings.aggregator import push as rules
from tidings.parse import parse

# Receiving


@story()
async def test_300_a_delivery_is_answered_before_it_is_read(w: World) -> None:
    feed = await w.subscribed("a", hub=f"{w.secure}/hub")
    w.held.clear()
    assert await w.hub.send(atom("b")) == 202
    assert await w.ids(feed) == [("a", "poll")]
    w.held.set()
    await w.pushes.settle()
    assert await w.ids(feed) == [("a", "poll"), ("b", "push")]


@story()
async def test_301_a_wrong_signature(w: World) -> None:
    feed = await w.subscribed("a", hub=f"{w.secure}/hub")
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
    await w.pushes.settle()
    assert await w.ids(feed) == [("a", "poll")]
    assert (w.pinged, (await w.push(feed)).last_push_at) == ([], None)


@story()
async def test_302_no_signature(w: World) -> None:
    feed = await w.subscribed("a", hub=f"{w.secure}/hub")
    assert await w.hub.send(atom("b"), sign="") == 202
    await w.pushes.settle()
    assert await w.ids(feed) == [("a", "poll")]
    assert w.pinged == []


@story()
async def test_each_way_to_sign(w: World) -> None:
    feed = await w.subscribed(hub=f"{w.secure}/hub")
    secret = w.hub.forms[0]["hub.secret"].encode()
    for method in ("sha1", "sha256", "sha384", "sha512"):
        body = atom(method)
        assert await w.hub.send(body, sign=f"{method}={hmac.new(secret, body, method).hexdigest()}") == 202
    await w.pushes.settle()
    assert [name for name, _ in await w.ids(feed)] == ["sha1", "sha256", "sha384", "sha512"]


@story()
async def test_what_is_absent_from_a_push_is_not_gone(w: World) -> None:
    feed = await w.subscribed("a", "b", hub=f"{w.secure}/hub")
    await w.hub.send(atom("c"))
    await w.hub.send(atom("d", "c", "b", "a"))
    await w.pushes.settle()
    assert await w.ids(feed) == [("a", "poll"), ("b", "poll"), ("c", "push"), ("d", "push")]


@pytest.mark.parametrize("body", [b"", b'{"ping": 1}', b"<html><body>news</body></html>", b"<rss", b"\x1f\x8b\x08 packed"])
def test_what_is_no_feed_is_a_ping(body: bytes, tmp_path: Path) -> None:
    @story()
    async def tell(w: World) -> None:
        feed = await w.subscribed("a", hub=f"{w.secure}/hub")
        assert await w.hub.send(body) == 202
        await w.pushes.settle()
        assert w.pinged == [feed.id]
        assert await w.ids(feed) == [("a", "poll")]

    tell(tmp_path)


@story()
async def test_a_feed_that_breaks_off_is_a_ping(w: World) -> None:
    async def cannot(feed_id: int, body: bytes, content_type: str) -> int:
        parse(b"")
        raise AssertionError

    w.options["on_content"] = cannot
    async with w.restarted():
        feed = await w.subscribed("a")
        await w.hub.send(atom("b"))
    assert w.pinged == [feed.id]


@story()
async def test_an_error_in_one_delivery_does_not_hurt_the_next(w: World) -> None:
    feed = await w.subscribed("a")
    content, calls = w._content, []

    async def fails_first(feed_id: int, body: bytes, content_type: str) -> int:
        calls.append(content_type)
        if len(calls) == 1:
            raise RuntimeError("not expected")
        return await content(feed_id, body, content_type)

    w.options["on_content"] = fails_first
    async with w.restarted():
        await w.hub.send(atom("b"))
        await w.hub.send(atom("c"))
    assert calls == ["application/atom+xml"] * 2
    assert await w.ids(feed) == [("a", "poll"), ("c", "push")]


@story()
async def test_what_nobody_signed_is_a_ping_where_the_feed_itself_is_encrypted(w: World) -> None:
    w.feed("a")
    feed = await w.poll(base=w.secure)
    await w.attend()
    await w.hub.confirm()
    assert await w.hub.send(atom("forged")) == 202
    await w.pushes.settle()
    assert w.pinged == [feed.id]
    assert await w.ids(feed) == [("a", "poll")]


@story()
async def test_links_in_a_delivery_say_nothing_about_whose_it_is(w: World) -> None:
    feed = await w.subscribed("a")
    w.feed("x", path="/other")
    other = await w.poll("/other")
    link = f'<{w.plain}/other>; rel="self", <{w.plain}/hub>; rel="hub"'
    await w.hub.send(atom("b", self_url=f"{w.plain}/other"), Link=link)
    await w.pushes.settle()
    assert await w.ids(feed) == [("a", "poll"), ("b", "push")]
    assert await w.ids(other) == [("x", "poll")]


@story()
async def test_too_much_at_once(w: World) -> None:
    await w.subscribed("a")
    assert await w.hub.send(atom("b") + b" " * MAX_BYTES) == 413
    w.held.clear()
    answers = [await w.hub.send(atom("b")) for _ in range(rules.MOST_WAITING + 2)]
    assert answers[-1] == 503
    assert set(answers[:-1]) <= {202, 503}
    w.held.set()
    await w.pushes.settle()
    assert await w.hub.send(atom("b")) == 202


@story()
async def test_an_address_that_nobody_was_told(w: World) -> None:
    await w.subscribed("a")
    assert await w.hub.send(atom("b"), callback=f"{w.plain}/push/guessed") == 410


# How far a hub is trusted


@story()
async def test_a_hub_earns_its_share_and_loses_it(w: World) -> None:
    feed = await w.subscribed("0")
    for i in range(1, 9):
        await w.hub.send(atom(str(i)))
    await w.pushes.settle()
    earned = w.pushes.share(feed.id)
    assert earned == pytest.approx(9 / 10)
    w.feed("m1", "m2")
    await w.poll()
    assert w.pushes.share(feed.id) == pytest.approx(9 / 12)
    assert await w.attend() == 0
    w.feed(*[f"n{i}" for i in range(7)])
    await w.poll()
    assert w.pushes.share(feed.id) < 0.5
    assert await w.attend() == 1  # it may have forgotten us
    assert await w.hub.confirm() == (200, "riddle")
    w.feed("o")
    await w.poll()
    assert await w.attend() == 0  # and is not asked for every post
    for i in range(20):
        await w.hub.send(atom(f"p{i}"))
    await w.pushes.settle()
    assert w.pushes.share(feed.id) > 0.6


@story()
async def test_a_post_that_may_still_be_on_its_way_is_not_missed(w: World) -> None:
    feed = await w.subscribed("a")
    w.feed("b", ago_s=60)
    await w.poll()
    await w.hub.send(atom("b"))
    await w.pushes.settle()
    push = await w.push(feed)
    assert (push.pushed, push.missed) == (0, 0)


@story()
async def test_what_a_poll_finds_after_a_ping_came_by_push(w: World) -> None:
    feed = await w.subscribed("a")
    w.feed("a", "b", ago_s=1200)
    await w.hub.send(b"")
    await w.pushes.settle()
    await w.poll()
    assert ((await w.push(feed)).pushed, (await w.push(feed)).missed) == (1, 0)
    w.clock.now += 7200
    w.feed("a", "b", "c")
    await w.poll()
    assert ((await w.push(feed)).pushed, (await w.push(feed)).missed) == (1, 1)
