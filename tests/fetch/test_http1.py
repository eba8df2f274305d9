"""Answers in all the forms that servers give them, on the loop that the service runs on and on Python's own."""

import asyncio
import gzip
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.fetch.origin_server import RSS, Clock, OriginServer, PollHarness, Response, with_harness
from tidings.fetch import Fetcher, FetchRequest, FetchSettings, Problem
from tidings.fetch.validators import NO_VALIDATORS, Validators

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(RSS)


def fixed_responses(
    *answers: bytes, close: bool = False
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
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


async def poll_repeatedly(
    w: PollHarness, server: Callable[[Any, Any], Any], count: int
) -> list[Any]:
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    async with listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
        return [await w.fetcher.fetch(FetchRequest(url)) for _ in range(count)]


@pytest.mark.parametrize(
    "answer",
    [
        OK + LENGTH + b"\r\n" + RSS,
        OK.replace(b"\r\n", b"\n")
        + LENGTH.replace(b"\r\n", b"\n")
        + b"\n"
        + RSS,  # bare line feeds
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=hub\r\n\r\n" + OK + LENGTH + b"\r\n" + RSS,
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + LENGTH + b"\r\n" + RSS,
        OK
        + b"Upgrade: h2,h2c\r\nConnection: Upgrade, Keep-Alive\r\n"
        + LENGTH
        + b"\r\n"
        + RSS,  # Apache offers HTTP/2
        OK
        + b"Transfer-Encoding: chunked\r\n\r\n%x  \r\n%s\r\n0\r\nTrailer: x\r\n\r\n"
        % (len(RSS), RSS),  # padded
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + LENGTH + b"\r\n" + RSS,
        b"HTTP/1.1 200\r\n" + LENGTH + b"\r\n" + RSS,  # no reason
    ],
)
def test_forms_of_an_answer(answer: bytes) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        first, second = await poll_repeatedly(w, fixed_responses(answer, answer), 2)
        assert (first.body, second.body, first.hubs) == (RSS, RSS, ())

    scenario()


@pytest.mark.parametrize("head", [OK, b"HTTP/1.0 200 OK\r\n"])
def test_a_body_may_end_with_the_connection(head: bytes) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        (result,) = await poll_repeatedly(w, fixed_responses(head + b"\r\n" + RSS, close=True), 1)
        assert result.body == RSS

    scenario()


@with_harness()
async def test_what_comes_after_an_answer_is_not_taken_for_the_next(w: PollHarness) -> None:
    with_a_body = b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n" + b"<html>not here</html>"
    results = await poll_repeatedly(w, fixed_responses(with_a_body, with_a_body), 2)
    assert [result.status for result in results] == [404, 404]


def in_parts(*parts: bytes, delay_s: float, close: bool = False) -> Callable[[Any, Any], Any]:
    """A server that answers every request in parts, with a pause before each but the first."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                for number, part in enumerate(parts):
                    await asyncio.sleep(delay_s if number else 0)
                    writer.write(part)
                    await writer.drain()
                if close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    return serve


LARGE = b"<rss>" + b"<item/>" * 100_000 + b"</rss>"
CLOSE = b"Connection: close\r\n"
GZIP = b"Content-Encoding: gzip\r\n"


def with_length(body: bytes, length: int, *headers: bytes) -> bytes:
    return OK + b"".join(headers) + b"Content-Length: %d\r\n\r\n" % length + body


@pytest.mark.parametrize(
    "answer",
    [
        with_length(RSS, len(RSS) - 6),
        with_length(RSS, len(RSS) // 2),
        with_length(RSS, len(RSS) // 2, CLOSE),
        with_length(RSS, 1),
        with_length(RSS + b"<!-- -->", len(RSS)),
        with_length(RSS + b"\r\n<!-- -->", len(RSS)),
        with_length(
            RSS + b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", len(RSS)
        ),  # a second answer
        with_length(RSS + with_length(RSS, len(RSS)), len(RSS)),
        with_length(gzip.compress(RSS), len(gzip.compress(RSS)) - 1, GZIP),
        with_length(gzip.compress(RSS) + b"x", len(gzip.compress(RSS)), GZIP),
        with_length(LARGE, len(LARGE) // 2),  # more than one read from the socket
        with_length(LARGE, len(LARGE) // 2, CLOSE),
    ],
    ids=range(12),
)
@pytest.mark.parametrize("close", [False, True])
def test_a_body_longer_than_its_length_is_no_document(answer: bytes, close: bool) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        (result,) = await poll_repeatedly(w, in_parts(answer, delay_s=0, close=close), 1)
        assert result.error is not None
        assert result.error.kind is Problem.BROKEN
        assert result.error.message == "the server sent more bytes than its Content-Length declares"
        assert (result.body, result.validators) == (None, NO_VALIDATORS)
        assert not w.fetcher.connection_pool._idle

    scenario()


@pytest.mark.parametrize("headers", [b"", CLOSE])
def test_bytes_that_come_later_still_show_that_a_document_was_cut(headers: bytes) -> None:
    """A document that does not look finished is worth waiting for; see `LINGER_S`."""

    @with_harness()
    async def scenario(w: PollHarness) -> None:
        half = len(RSS) // 2
        server = in_parts(with_length(RSS[:half], half, headers), RSS[half:], delay_s=0.1)
        (result,) = await poll_repeatedly(w, server, 1)
        assert result.error is not None
        assert result.error.message == "the server sent more bytes than its Content-Length declares"

    scenario()


@with_harness()
async def test_a_document_that_only_looks_cut_is_taken(w: PollHarness) -> None:
    cut = RSS[: len(RSS) // 2]
    first, second = await poll_repeatedly(w, in_parts(with_length(cut, len(cut)), delay_s=0), 2)
    closed, *_ = await poll_repeatedly(
        w, in_parts(with_length(cut, len(cut)), delay_s=0, close=True), 1
    )
    assert (first.body, second.body, closed.body) == (cut, cut, cut)


@with_harness()
async def test_a_connection_with_bytes_left_over_is_not_used_again(w: PollHarness) -> None:
    connections = 0
    server = in_parts(with_length(RSS, len(RSS)), b"<!-- late -->", delay_s=0.05)

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await server(reader, writer)

    listening = await asyncio.start_server(counted, "127.0.0.1", 0)
    async with listening:
        request = FetchRequest(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/")
        for _ in range(2):
            assert (await w.fetcher.fetch(request)).body == RSS
            await asyncio.sleep(0.2)
    assert connections == 2


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 304 Not Modified\r\n\r\n" + RSS, 304),
        (b"HTTP/1.1 304 Not Modified\r\n" + LENGTH + b"\r\n" + RSS, 304),
        (b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nnot here", 404),
        (
            OK
            + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\nleft over" % (len(RSS), RSS),
            200,
        ),
        (with_length(RSS + b"\r\n", len(RSS)), 200),  # an empty line, which every parser ignores
    ],
    ids=["304", "304 with a length", "404", "chunked", "empty line"],
)
def test_bytes_left_over_do_not_matter_where_no_document_is_counted_by_length(
    answer: bytes, status: int
) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        server = in_parts(answer, delay_s=0)
        listening = await asyncio.start_server(server, "127.0.0.1", 0)
        async with listening:
            url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
            request = FetchRequest(url, Validators('"1"', None, url, 0.0), b"known")
            results = [await w.fetcher.fetch(request) for _ in range(2)]
        assert [result.status for result in results] == [status, status]
        assert [result.unchanged for result in results] == [status == 304] * 2
        assert [result.body for result in results] == [RSS if status == 200 else None] * 2

    scenario()


@with_harness()
async def test_headers_without_end_are_refused(w: PollHarness) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"X: ")
        try:
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()
        except ConnectionError:
            writer.close()

    (result,) = await poll_repeatedly(w, endless, 1)
    assert result.error.kind is Problem.BROKEN
    assert "headers" in result.error.message


@with_harness()
async def test_a_switch_of_protocols_is_no_answer(w: PollHarness) -> None:
    switch = (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    )
    (result,) = await poll_repeatedly(w, fixed_responses(switch), 1)
    assert result.error.kind is Problem.BROKEN


@with_harness()
async def test_a_form_is_never_sent_twice(w: PollHarness) -> None:
    """A kept connection may turn out to be closed when it is too late to know whether the form was read."""
    w.serve("/feed")
    w.serve("/hub", status=202)
    await w.poll("/feed")
    result = await w.fetcher.post_form(
        w.url("/hub"), {"hub.mode": "subscribe", "hub.topic": "https://blog.example/ä"}
    )
    assert (result.status, w.origin.connections) == (202, 2)
    request = w.requests_to("/hub")[0]
    assert (request.method, request.header("Content-Type")) == (
        "POST",
        "application/x-www-form-urlencoded",
    )
    assert request.header("Content-Length") == str(
        len("hub.mode=subscribe&hub.topic=https%3A%2F%2Fblog.example%2F%C3%A4")
    )


@with_harness()
async def test_names_are_looked_up_and_the_address_is_remembered(w: PollHarness) -> None:
    w.serve("/feed")
    result = await w.poll(f"http://localhost:{w.origin.port}/feed")
    assert result.body == RSS
    assert w.fetcher.is_local("localhost")


@with_harness()
async def test_a_poll_that_is_given_up_leaves_no_connection_behind(w: PollHarness) -> None:
    async def hang(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    w.script("/feed", Response(body=hang, headers={"Transfer-Encoding": "chunked"}), Response())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(w.poll("/feed"), 0.2)
    assert (await w.poll("/feed")).body == RSS
    assert w.origin.connections == 2


def test_on_pythons_own_loop_connections_are_kept_and_swept() -> None:
    async def scenario() -> None:
        settings = FetchSettings(allow_private=True, host_spacing_s=0.0)
        async with OriginServer().running() as origin, Fetcher(settings, Clock()) as fetcher:
            origin.scripts["/feed"] = lambda request: Response()
            request = FetchRequest(f"http://127.0.0.1:{origin.port}/feed")
            for _ in range(2):
                assert (await fetcher.fetch(request)).body == RSS
            assert origin.connections == 1
            (kept,) = fetcher.connection_pool._idle.values()
            kept.idle_since -= 10
            fetcher.connection_pool._sweep()
            assert kept.closed
            assert not fetcher.connection_pool._idle
            assert (await fetcher.fetch(request)).body == RSS

    asyncio.run(scenario())


def test_a_host_with_a_dead_address_is_reached_by_its_other() -> None:
    async def scenario() -> None:
        async with (
            OriginServer().running() as origin,
            Fetcher(FetchSettings(allow_private=True), Clock()) as fetcher,
        ):
            origin.scripts["/feed"] = lambda request: Response()

            async def two(host: str, port: int) -> list[Any]:
                return [
                    (socket.AF_INET, socket.SOCK_STREAM, 0, "", (f"127.0.0.{last}", port))
                    for last in (9, 1)
                ]

            fetcher.connection_pool._resolve = two  # type: ignore[method-assign]  # a name that has both
            result = await fetcher.fetch(FetchRequest(f"http://blog.example:{origin.port}/feed"))
        assert result.body == RSS

    asyncio.run(scenario())
