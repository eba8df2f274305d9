"""Servers that lie, stall, swell and break off; each costs no more than its cap, and none of them raises."""

import asyncio
import gzip
import ssl
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable

import brotli
import pytest

from tests.certificates import self_signed
from tests.fetch.origin_server import RSS, Clock, OriginServer, PollHarness, Response, with_harness
from tidings.fetch import Fetcher, FetchRequest, FetchSettings, Problem
from tidings.fetch.decompression import BodyTooLarge, DecompressionError, decompress, zstd

CAP = 1_000_000


def packed(body: bytes, encoding: str) -> bytes:
    pack: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress,
        "br": lambda data: brotli.compress(data, quality=5),
        "zstd": zstd.compress,
    }
    return {**pack, "deflate": zlib.compress}[encoding](body)


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate"])
def test_compressed_bodies_are_unpacked(encoding: str) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        w.serve("/feed", body=packed(RSS, encoding), Content_Encoding=encoding)
        result = await w.poll("/feed")
        assert result.body == RSS
        assert result.wire_bytes == len(packed(RSS, encoding))

    scenario()


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate", "gzip, gzip", "gzip, br"])
def test_bombs_stop_at_the_cap_and_cost_little_memory(encoding: str) -> None:
    bomb = b"<" + bytes(60_000_000)
    for name in encoding.split(", "):
        bomb = packed(bomb, name)

    @with_harness(max_bytes=CAP)
    async def scenario(w: PollHarness) -> None:
        w.serve("/feed", body=bomb, Content_Encoding=encoding)
        tracemalloc.start()
        result = await w.poll("/feed")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert result.error is not None
        assert result.error.kind is Problem.TOO_LARGE
        assert result.body is None
        assert peak < 4 * CAP

    scenario()


def zipped(data):
    """Without the time of day, so that every process that collects the tests calls them the same."""
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize(
    ("wire", "encoding"),
    [
        (RSS, "gzip"),  # the flag on a plain body
        (RSS, "br"),
        (b"\xef\xbb\xbf" + RSS, "zstd"),
        (RSS, "utf-8"),  # no encoding at all
        (RSS, "compress"),
        (zipped(RSS), ""),  # compressed without saying so
        (zipped(zipped(RSS)), "gzip"),  # twice, said once
        (zipped(brotli.compress(RSS)), "br, gzip"),
        (zipped(RSS[:50]) + zipped(RSS[50:]), "gzip"),  # in members
        (zipped(RSS) + b"\0" * 20, "x-gzip"),  # padded
        (zlib.compress(RSS)[2:-4], "deflate"),  # raw deflate
        (zstd.compress(RSS[:50]) + zstd.compress(RSS[50:]), "zstd"),
    ],
)
def test_what_servers_get_wrong_about_compression_is_mended(wire: bytes, encoding: str) -> None:
    assert decompress(wire, encoding, CAP).removeprefix(b"\xef\xbb\xbf") == RSS


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate"])
def test_a_compressed_body_that_breaks_off_is_no_document(encoding: str) -> None:
    whole = packed(RSS * 50, encoding)
    with pytest.raises(DecompressionError):
        decompress(whole[: len(whole) // 2], encoding, CAP)


def test_a_zstd_body_that_wants_128_mb_of_memory_is_refused() -> None:
    greedy = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    with pytest.raises(DecompressionError):
        decompress(
            greedy.compress(RSS, zstd.ZstdCompressor.FLUSH_BLOCK) + greedy.flush(), "zstd", CAP
        )


def test_limits_of_unpacking() -> None:
    assert decompress(gzip.compress(bytes(CAP)), "gzip", CAP) == bytes(CAP)
    with pytest.raises(BodyTooLarge):
        decompress(gzip.compress(bytes(CAP + 1)), "gzip", CAP)
    with pytest.raises(DecompressionError, match="4 times"):
        decompress(b"x", "gzip, gzip, gzip, gzip", CAP)
    with pytest.raises(DecompressionError, match="not asked for"):
        decompress(b"\x01\x02", "lzma", CAP)


@with_harness(max_bytes=CAP)
async def test_a_length_over_the_cap_is_refused_at_once(w: PollHarness) -> None:
    w.script("/feed", Response(body=b"<rss", headers={"Content-Length": str(CAP + 1)}))
    result = await w.poll("/feed")
    assert result.error is not None
    assert (result.error.kind, result.wire_bytes) == (Problem.TOO_LARGE, 0)


@with_harness(max_bytes=CAP)
async def test_an_endless_body_ends_at_the_cap(w: PollHarness) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"10000\r\n" + bytes(65536) + b"\r\n")
            await writer.drain()

    w.script("/feed", Response(body=endless, headers={"Transfer-Encoding": "chunked"}))
    result = await w.poll("/feed")
    assert result.error is not None
    assert result.error.kind is Problem.TOO_LARGE
    assert result.wire_bytes < 2 * CAP


async def hang(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def drip(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"1\r\n<\r\n")
        await writer.drain()
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("body", [hang, drip])
def test_a_body_that_drips_ends_at_the_total_timeout(
    body: Callable[[asyncio.StreamWriter], Awaitable[None]],
) -> None:
    @with_harness(timeout_s=0.3)
    async def scenario(w: PollHarness) -> None:
        w.script(
            "/feed", Response(body=body, headers={"Transfer-Encoding": "chunked", "ETag": '"half"'})
        )
        result = await w.poll("/feed")
        assert result.error is not None
        assert result.error.kind is Problem.TIMEOUT
        assert result.body is None
        assert result.validators.etag is None

    scenario()


@with_harness(timeout_s=0.3)
async def test_an_error_whose_body_never_ends_is_that_error(w: PollHarness) -> None:
    w.script("/feed", Response(429, drip, {"Transfer-Encoding": "chunked", "Retry-After": "60"}))
    result = await w.poll("/feed")
    assert (result.status, result.rate_limited) == (429, True)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"5\r\n<rss>\r\n", {"Transfer-Encoding": "chunked"}),
        (b"<rss>", {"Content-Length": "500"}),
        (b"zz\r\n<rss>", {"Transfer-Encoding": "chunked"}),
    ],
)
def test_a_truncated_body_is_a_problem_and_nothing_is_kept(
    body: bytes, headers: dict[str, str | bytes]
) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        w.script("/feed", Response(body=body, headers={**headers, "ETag": '"half"'}, close=True))
        result = await w.poll("/feed")
        assert result.error is not None
        assert result.error.kind is Problem.BROKEN
        assert (result.body, result.digest, result.validators.etag) == (None, b"", None)

    scenario()


@with_harness()
async def test_an_empty_200_is_a_problem(w: PollHarness) -> None:
    w.script("/feed", Response(body=b" \r\n"))
    result = await w.poll("/feed")
    assert result.error is not None
    assert result.error.kind is Problem.BROKEN


@with_harness()
async def test_a_part_that_nobody_asked_for_is_no_document(w: PollHarness) -> None:
    w.script("/feed", Response(206, body=RSS[:100], headers={"ETag": '"part"'}))
    result = await w.poll("/feed")
    assert result.error is not None
    assert (result.status, result.body, result.validators.etag) == (206, None, None)


@with_harness()
async def test_a_304_to_a_request_without_conditions_is_a_problem(w: PollHarness) -> None:
    w.script("/feed", Response(304))
    result = await w.poll("/feed")
    assert result.error is not None
    assert result.error.kind is Problem.BROKEN


@with_harness()
async def test_an_html_page_or_a_wrong_content_type_is_handed_on_for_parse_to_judge(
    w: PollHarness,
) -> None:
    w.serve("/feed", body=b"\r\n <html>down</html>", Content_Type="text/html")
    result = await w.poll("/feed")
    assert (result.body, result.content_type) == (b"\r\n <html>down</html>", "text/html")


@with_harness()
async def test_what_is_no_http_is_a_problem(w: PollHarness) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    async with server:
        result = await w.poll(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    assert result.error is not None
    assert result.error.kind is Problem.BROKEN


@with_harness()
async def test_a_huge_header_is_read(w: PollHarness) -> None:
    w.serve("/feed", Content_Security_Policy="x" * 20_000)
    assert (await w.poll("/feed")).body == RSS


@with_harness()
async def test_nobody_listens(w: PollHarness) -> None:
    server = await asyncio.start_server(lambda r, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    result = await w.poll(f"http://127.0.0.1:{port}/")
    assert result.error is not None
    assert (result.error.kind, result.status) == (Problem.CONNECT, 0)


@with_harness()
async def test_a_name_that_cannot_be_resolved(w: PollHarness) -> None:
    result = await w.poll(
        f"http://{'x' * 64}.example/feed"
    )  # too long for a label, so that nobody is asked
    assert result.error is not None
    assert result.error.kind is Problem.DNS


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/",
        "file:///etc/passwd",
        "gopher://x",
        "/feed.xml",
        "http://",
        "http://[::1",
        "http://x:99999/",
    ],
)
def test_what_is_no_address_is_told(url: str) -> None:
    async def scenario() -> None:
        async with Fetcher(FetchSettings(), Clock()) as fetcher:
            result = await fetcher.fetch(FetchRequest(url))
        assert result.error is not None
        assert (result.error.kind, result.requests) == (Problem.URL, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "location", ["ftp://example.org/", "javascript:alert(1)", "http://", "http://x:99999/"]
)
def test_redirect_to_what_cannot_be_asked(location: str) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        w.script("/feed", Response(301, headers={"Location": location}))
        result = await w.poll("/feed")
        assert result.error is not None
        assert (result.error.kind, result.requests) == (Problem.REDIRECTS, 1)

    scenario()


def test_a_certificate_that_nobody_signed() -> None:
    async def scenario() -> None:
        async with (
            OriginServer().running(ssl=self_signed()) as origin,
            Fetcher(FetchSettings(allow_private=True), Clock()) as fetcher,
        ):
            result = await fetcher.fetch(FetchRequest(f"https://127.0.0.1:{origin.port}/feed"))
        assert result.error is not None
        assert result.error.kind is Problem.TLS
        assert origin.requests == []

    asyncio.run(scenario())


def test_a_move_away_from_encryption_is_followed_and_not_adopted() -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        w.serve("/plain")
        w.fetcher.connection_pool.tls = (
            ssl._create_unverified_context()
        )  # this once, any certificate will do
        async with OriginServer().running(ssl=self_signed()) as secure:
            secure.scripts["/feed"] = lambda request: Response(
                301, headers={"Location": w.url("/plain")}
            )
            result = await w.poll(f"https://127.0.0.1:{secure.port}/feed")
        assert (result.body, result.moved_to) == (RSS, None)

    scenario()


@with_harness()
async def test_a_connection_that_the_server_closed_meanwhile_is_opened_again(
    w: PollHarness,
) -> None:
    w.script("/feed", Response(close=True), Response(body=RSS + b" "))
    first, second = await w.poll("/feed"), await w.poll("/feed")
    assert (first.error, second.error) == (None, None)
    assert w.origin.connections == 2
