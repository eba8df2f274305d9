"""HTTP/1.1 connection: response formats, wrong lengths, keep-alive, on uvloop and asyncio."""

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
    *responses: bytes, close: bool = False
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
    """Return a server that sends these bytes in turn, from the first one on each connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for response in responses:
            try:
                await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            writer.write(response)
        if not close:
            await reader.read()
        writer.close()

    return serve


async def poll_repeatedly(
    w: PollHarness, serve: Callable[[Any, Any], Any], count: int
) -> list[Any]:
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        return [await w.fetcher.fetch(FetchRequest(url)) for _ in range(count)]


@pytest.mark.parametrize(
    "response",
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
        + RSS,  # Apache's offer of HTTP/2
        OK
        + b"Transfer-Encoding: chunked\r\n\r\n%x  \r\n%s\r\n0\r\nTrailer: x\r\n\r\n"
        % (len(RSS), RSS),  # padded
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + LENGTH + b"\r\n" + RSS,
        b"HTTP/1.1 200\r\n" + LENGTH + b"\r\n" + RSS,  # no reason phrase
    ],
)
def test_response_formats_are_accepted(response: bytes) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        first, second = await poll_repeatedly(w, fixed_responses(response, response), 2)
        assert (first.body, second.body, first.hubs) == (RSS, RSS, ())

    scenario()


@pytest.mark.parametrize("head", [OK, b"HTTP/1.0 200 OK\r\n"])
def test_body_may_end_with_the_connection(head: bytes) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        (result,) = await poll_repeatedly(w, fixed_responses(head + b"\r\n" + RSS, close=True), 1)
        assert result.body == RSS

    scenario()


@with_harness()
async def test_excess_bytes_are_not_read_as_the_next_response(w: PollHarness) -> None:
    too_short = b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n" + b"<html>not found</html>"
    results = await poll_repeatedly(w, fixed_responses(too_short, too_short), 2)
    assert [result.status for result in results] == [404, 404]


def in_parts(*parts: bytes, delay_s: float, close: bool = False) -> Callable[[Any, Any], Any]:
    """Return a server that sends each response in parts, with a delay between them."""

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
    "response",
    [
        with_length(RSS, len(RSS) - 6),
        with_length(RSS, len(RSS) // 2),
        with_length(RSS, len(RSS) // 2, CLOSE),
        with_length(RSS, 1),
        with_length(RSS + b"<!-- -->", len(RSS)),
        with_length(RSS + b"\r\n<!-- -->", len(RSS)),
        with_length(
            RSS + b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", len(RSS)
        ),  # a second response
        with_length(RSS + with_length(RSS, len(RSS)), len(RSS)),
        with_length(gzip.compress(RSS), len(gzip.compress(RSS)) - 1, GZIP),
        with_length(gzip.compress(RSS) + b"x", len(gzip.compress(RSS)), GZIP),
        with_length(LARGE, len(LARGE) // 2),  # more than one read from the socket
        with_length(LARGE, len(LARGE) // 2, CLOSE),
    ],
    ids=range(12),
)
@pytest.mark.parametrize("close", [False, True])
def test_body_longer_than_content_length_is_a_problem(response: bytes, close: bool) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        (result,) = await poll_repeatedly(w, in_parts(response, delay_s=0, close=close), 1)
        assert result.error is not None
        assert result.error.kind is Problem.BROKEN
        assert result.error.message == "the server sent more bytes than its Content-Length declares"
        assert (result.body, result.validators) == (None, NO_VALIDATORS)
        assert not w.fetcher.connection_pool._idle

    scenario()


@pytest.mark.parametrize("headers", [b"", CLOSE])
def test_late_excess_bytes_are_detected(headers: bytes) -> None:
    """The connection waits for more bytes if the document looks truncated; see `LINGER_S`."""

    @with_harness()
    async def scenario(w: PollHarness) -> None:
        half = len(RSS) // 2
        server = in_parts(with_length(RSS[:half], half, headers), RSS[half:], delay_s=0.1)
        (result,) = await poll_repeatedly(w, server, 1)
        assert result.error is not None
        assert result.error.message == "the server sent more bytes than its Content-Length declares"

    scenario()


@with_harness()
async def test_document_that_looks_truncated_is_accepted(w: PollHarness) -> None:
    half = RSS[: len(RSS) // 2]
    response = with_length(half, len(half))
    first, second = await poll_repeatedly(w, in_parts(response, delay_s=0), 2)
    (closed,) = await poll_repeatedly(w, in_parts(response, delay_s=0, close=True), 1)
    assert (first.body, second.body, closed.body) == (half, half, half)


@with_harness()
async def test_connection_with_excess_bytes_is_not_reused(w: PollHarness) -> None:
    connections = 0
    serve = in_parts(with_length(RSS, len(RSS)), b"<!-- late -->", delay_s=0.05)

    async def count_and_serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await serve(reader, writer)

    async with await asyncio.start_server(count_and_serve, "127.0.0.1", 0) as server:
        request = FetchRequest(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        for _ in range(2):
            assert (await w.fetcher.fetch(request)).body == RSS
            await asyncio.sleep(0.2)
    assert connections == 2


@pytest.mark.parametrize(
    ("response", "status"),
    [
        (b"HTTP/1.1 304 Not Modified\r\n\r\n" + RSS, 304),
        (b"HTTP/1.1 304 Not Modified\r\n" + LENGTH + b"\r\n" + RSS, 304),
        (b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nnot found", 404),
        (
            OK
            + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\nleft over" % (len(RSS), RSS),
            200,
        ),
        (with_length(RSS + b"\r\n", len(RSS)), 200),  # an empty line, which parsers ignore
    ],
    ids=["304", "304 with a length", "404", "chunked", "empty line"],
)
def test_excess_bytes_without_content_length_document_are_ignored(
    response: bytes, status: int
) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        serve = in_parts(response, delay_s=0)
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            request = FetchRequest(url, Validators('"1"', None, url, 0.0), b"known")
            results = [await w.fetcher.fetch(request) for _ in range(2)]
        assert [result.status for result in results] == [status, status]
        assert [result.unchanged for result in results] == [status == 304] * 2
        assert [result.body for result in results] == [RSS if status == 200 else None] * 2

    scenario()


@with_harness()
async def test_endless_headers_are_rejected(w: PollHarness) -> None:
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
async def test_101_is_a_problem(w: PollHarness) -> None:
    switch = (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    )
    (result,) = await poll_repeatedly(w, fixed_responses(switch), 1)
    assert result.error.kind is Problem.BROKEN


@with_harness()
async def test_form_is_sent_on_a_new_connection(w: PollHarness) -> None:
    """A form is not sent on an idle connection.

    If the server closed it, it would be unknown whether the form was processed.
    """
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
async def test_name_is_resolved_and_its_address_remembered(w: PollHarness) -> None:
    w.serve("/feed")
    result = await w.poll(f"http://localhost:{w.origin.port}/feed")
    assert result.body == RSS
    assert w.fetcher.is_local("localhost")


@with_harness()
async def test_canceled_poll_closes_its_connection(w: PollHarness) -> None:
    async def hang(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    w.script("/feed", Response(body=hang, headers={"Transfer-Encoding": "chunked"}), Response())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(w.poll("/feed"), 0.2)
    assert (await w.poll("/feed")).body == RSS
    assert w.origin.connections == 2


def test_idle_connections_are_reused_and_swept_on_asyncio_loop() -> None:
    async def scenario() -> None:
        settings = FetchSettings(allow_private=True, host_spacing_s=0.0)
        async with OriginServer().running() as origin, Fetcher(settings, Clock()) as fetcher:
            origin.scripts["/feed"] = lambda request: Response()
            request = FetchRequest(f"http://127.0.0.1:{origin.port}/feed")
            for _ in range(2):
                assert (await fetcher.fetch(request)).body == RSS
            assert origin.connections == 1
            (idle,) = fetcher.connection_pool._idle.values()
            idle.idle_since -= 10
            fetcher.connection_pool._sweep()
            assert idle.closed
            assert not fetcher.connection_pool._idle
            assert (await fetcher.fetch(request)).body == RSS

    asyncio.run(scenario())


def test_second_address_is_tried_if_the_first_fails() -> None:
    async def scenario() -> None:
        async with (
            OriginServer().running() as origin,
            Fetcher(FetchSettings(allow_private=True), Clock()) as fetcher,
        ):
            origin.scripts["/feed"] = lambda request: Response()

            async def resolve(host: str, port: int) -> list[Any]:
                return [
                    (socket.AF_INET, socket.SOCK_STREAM, 0, "", (f"127.0.0.{last}", port))
                    for last in (9, 1)
                ]

            fetcher.connection_pool._resolve = resolve  # type: ignore[method-assign]  # for a test
            result = await fetcher.fetch(FetchRequest(f"http://blog.example:{origin.port}/feed"))
        assert result.body == RSS

    asyncio.run(scenario())
