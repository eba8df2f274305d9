"""Answers in all the forms that servers give them, on the loop that the service runs on and on Python's own."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.fetch.origin import RSS, Answer, Clock, Origin, World, story
from tidings.fetch import Fetcher, FetchRequest, FetchSettings, Problem

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(RSS)


def spoken(*answers: bytes, close: bool = False) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
    """A server that says exactly this to one request after another, on each connection from the beginning."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            try:
                await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            writer.write(answer)
        if not close:
            await reader.read()
        writer.close()

    return serve


async def polls(w: World, server: Callable[[Any, Any], Any], count: int) -> list[Any]:
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    async with listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
        return [await w.fetcher.fetch(FetchRequest(url)) for _ in range(count)]


@pytest.mark.parametrize(
    "answer",
    [
        OK + LENGTH + b"\r\n" + RSS,
        OK.replace(b"\r\n", b"\n") + LENGTH.replace(b"\r\n", b"\n") + b"\n" + RSS,  # bare line feeds
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=hub\r\n\r\n" + OK + LENGTH + b"\r\n" + RSS,
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + LENGTH + b"\r\n" + RSS,
        OK + b"Upgrade: h2,h2c\r\nConnection: Upgrade, Keep-Alive\r\n" + LENGTH + b"\r\n" + RSS,  # Apache offers HTTP/2
        OK + b"Transfer-Encoding: chunked\r\n\r\n%x  \r\n%s\r\n0\r\nTrailer: x\r\n\r\n" % (len(RSS), RSS),  # padded
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + LENGTH + b"\r\n" + RSS,
        b"HTTP/1.1 200\r\n" + LENGTH + b"\r\n" + RSS,  # no reason
    ],
)
def test_forms_of_an_answer(answer: bytes) -> None:
    @story()
    async def tell(w: World) -> None:
        first, second = await polls(w, spoken(answer, answer), 2)
        assert (first.body, second.body, first.hubs) == (RSS, RSS, ())

    tell()


@pytest.mark.parametrize("head", [OK, b"HTTP/1.0 200 OK\r\n"])
def test_a_body_may_end_with_the_connection(head: bytes) -> None:
    @story()
    async def tell(w: World) -> None:
        (result,) = await polls(w, spoken(head + b"\r\n" + RSS, close=True), 1)
        assert result.body == RSS

    tell()


@story()
async def test_what_comes_after_an_answer_is_not_taken_for_the_next(w: World) -> None:
    twice = OK + LENGTH + b"\r\n" + RSS + b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
    results = await polls(w, spoken(twice, twice), 2)
    assert [result.status for result in results] == [200, 200]
    with_a_body = b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n" + b"<html>not here</html>"
    results = await polls(w, spoken(with_a_body, with_a_body), 2)
    assert [result.status for result in results] == [404, 404]


@story()
async def test_headers_without_end_are_refused(w: World) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"X: ")
        try:
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()
        except ConnectionError:
            writer.close()

    (result,) = await polls(w, endless, 1)
    assert result.error.kind is Problem.BROKEN
    assert "headers" in result.error.words


@story()
async def test_a_switch_of_protocols_is_no_answer(w: World) -> None:
    switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    (result,) = await polls(w, spoken(switch), 1)
    assert result.error.kind is Problem.BROKEN


@story()
async def test_a_form_is_never_sent_twice(w: World) -> None:
    """A kept connection may turn out to be closed when it is too late to know whether the form was read."""
    w.serve("/feed")
    w.serve("/hub", status=202)
    await w.poll("/feed")
    result = await w.fetcher.post_form(w.url("/hub"), {"hub.mode": "subscribe", "hub.topic": "https://blog.example/ä"})
    assert (result.status, w.origin.connections) == (202, 2)
    asked = w.asked("/hub")[0]
    assert (asked.method, asked.header("Content-Type")) == ("POST", "application/x-www-form-urlencoded")
    assert asked.header("Content-Length") == str(len("hub.mode=subscribe&hub.topic=https%3A%2F%2Fblog.example%2F%C3%A4"))


@story()
async def test_names_are_looked_up_and_the_address_is_remembered(w: World) -> None:
    w.serve("/feed")
    result = await w.poll(f"http://localhost:{w.origin.port}/feed")
    assert result.body == RSS
    assert w.fetcher.is_local("localhost")


@story()
async def test_a_poll_that_is_given_up_leaves_no_connection_behind(w: World) -> None:
    async def hang(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    w.script("/feed", Answer(body=hang, headers={"Transfer-Encoding": "chunked"}), Answer())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(w.poll("/feed"), 0.2)
    assert (await w.poll("/feed")).body == RSS
    assert w.origin.connections == 2


def test_on_pythons_own_loop_connections_are_kept_and_swept() -> None:
    async def tell() -> None:
        settings = FetchSettings(allow_private=True, host_spacing_s=0.0)
        async with Origin().running() as origin, Fetcher(settings, Clock()) as fetcher:
            origin.scripts["/feed"] = lambda asked: Answer()
            request = FetchRequest(f"http://127.0.0.1:{origin.port}/feed")
            for _ in range(2):
                assert (await fetcher.fetch(request)).body == RSS
            assert origin.connections == 1
            (kept,) = fetcher.connections._idle.values()
            kept.idle_since -= 10
            fetcher.connections._sweep()
            assert kept.closed
            assert not fetcher.connections._idle
            assert (await fetcher.fetch(request)).body == RSS

    asyncio.run(tell())


def test_a_host_with_a_dead_address_is_reached_by_its_other() -> None:
    async def tell() -> None:
        async with Origin().running() as origin, Fetcher(FetchSettings(allow_private=True), Clock()) as fetcher:
            origin.scripts["/feed"] = lambda asked: Answer()

            async def two(host: str, port: int) -> list[Any]:
                return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (f"127.0.0.{last}", port)) for last in (9, 1)]

            fetcher.connections._look_up = two  # type: ignore[method-assign]  # a name that has both
            result = await fetcher.fetch(FetchRequest(f"http://blog.example:{origin.port}/feed"))
        assert result.body == RSS

    asyncio.run(tell())
