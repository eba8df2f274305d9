"""Broken and malicious servers: size and time limits hold, and errors are values."""

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

MAX_BYTES = 1_000_000


def compress(body: bytes, encoding: str) -> bytes:
    encoders: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress,
        "br": lambda data: brotli.compress(data, quality=5),
        "zstd": zstd.compress,
    }
    return {**encoders, "deflate": zlib.compress}[encoding](body)


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate"])
def test_compressed_bodies_are_decompressed(encoding: str) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        w.serve("/feed", body=compress(RSS, encoding), Content_Encoding=encoding)
        result = await w.poll("/feed")
        assert result.body == RSS
        assert result.wire_bytes == len(compress(RSS, encoding))

    scenario()


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate", "gzip, gzip", "gzip, br"])
def test_zip_bombs_stop_at_the_size_limit(encoding: str) -> None:
    bomb = b"<" + bytes(60_000_000)
    for name in encoding.split(", "):
        bomb = compress(bomb, name)

    @with_harness(max_bytes=MAX_BYTES)
    async def scenario(w: PollHarness) -> None:
        w.serve("/feed", body=bomb, Content_Encoding=encoding)
        tracemalloc.start()
        result = await w.poll("/feed")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert result.error is not None
        assert result.error.kind is Problem.TOO_LARGE
        assert result.body is None
        assert peak < 4 * MAX_BYTES

    scenario()


def gzip_without_time(data):
    """Return the same bytes in every process: pytest-xdist needs equal parameters."""
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize(
    ("wire", "encoding"),
    [
        (RSS, "gzip"),  # declared as compressed but plain
        (RSS, "br"),
        (b"\xef\xbb\xbf" + RSS, "zstd"),
        (RSS, "utf-8"),  # not an encoding
        (RSS, "compress"),
        (gzip_without_time(RSS), ""),  # compressed but not declared
        (gzip_without_time(gzip_without_time(RSS)), "gzip"),  # compressed twice, declared once
        (gzip_without_time(brotli.compress(RSS)), "br, gzip"),
        (gzip_without_time(RSS[:50]) + gzip_without_time(RSS[50:]), "gzip"),  # several members
        (gzip_without_time(RSS) + b"\0" * 20, "x-gzip"),  # padded
        (zlib.compress(RSS)[2:-4], "deflate"),  # raw deflate
        (zstd.compress(RSS[:50]) + zstd.compress(RSS[50:]), "zstd"),
    ],
)
def test_wrong_content_encoding_is_handled(wire: bytes, encoding: str) -> None:
    assert decompress(wire, encoding, MAX_BYTES).removeprefix(b"\xef\xbb\xbf") == RSS


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate"])
def test_truncated_compressed_body_is_rejected(encoding: str) -> None:
    complete = compress(RSS * 50, encoding)
    with pytest.raises(DecompressionError):
        decompress(complete[: len(complete) // 2], encoding, MAX_BYTES)


def test_zstd_window_of_128_mb_is_rejected() -> None:
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    body = compressor.compress(RSS, zstd.ZstdCompressor.FLUSH_BLOCK) + compressor.flush()
    with pytest.raises(DecompressionError):
        decompress(body, "zstd", MAX_BYTES)


def test_decompression_limits() -> None:
    assert decompress(gzip.compress(bytes(MAX_BYTES)), "gzip", MAX_BYTES) == bytes(MAX_BYTES)
    with pytest.raises(BodyTooLarge):
        decompress(gzip.compress(bytes(MAX_BYTES + 1)), "gzip", MAX_BYTES)
    with pytest.raises(DecompressionError, match="4 encodings"):
        decompress(b"x", "gzip, gzip, gzip, gzip", MAX_BYTES)
    with pytest.raises(DecompressionError, match="unsupported"):
        decompress(b"\x01\x02", "lzma", MAX_BYTES)


@with_harness(max_bytes=MAX_BYTES)
async def test_content_length_over_the_limit_is_rejected_at_once(w: PollHarness) -> None:
    w.script("/feed", Response(body=b"<rss", headers={"Content-Length": str(MAX_BYTES + 1)}))
    result = await w.poll("/feed")
    assert result.error is not None
    assert (result.error.kind, result.wire_bytes) == (Problem.TOO_LARGE, 0)


@with_harness(max_bytes=MAX_BYTES)
async def test_endless_body_stops_at_the_size_limit(w: PollHarness) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"10000\r\n" + bytes(65536) + b"\r\n")
            await writer.drain()

    w.script("/feed", Response(body=endless, headers={"Transfer-Encoding": "chunked"}))
    result = await w.poll("/feed")
    assert result.error is not None
    assert result.error.kind is Problem.TOO_LARGE
    assert result.wire_bytes < 2 * MAX_BYTES


async def hang(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def drip(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"1\r\n<\r\n")
        await writer.drain()
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("body", [hang, drip])
def test_slow_body_ends_at_the_total_timeout(
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
async def test_error_status_with_endless_body_is_reported(w: PollHarness) -> None:
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
def test_truncated_body_is_a_problem_without_validators(
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
async def test_empty_200_is_a_problem(w: PollHarness) -> None:
    w.script("/feed", Response(body=b" \r\n"))
    result = await w.poll("/feed")
    assert result.error is not None
    assert result.error.kind is Problem.BROKEN


@with_harness()
async def test_unrequested_206_is_a_problem(w: PollHarness) -> None:
    w.script("/feed", Response(206, body=RSS[:100], headers={"ETag": '"part"'}))
    result = await w.poll("/feed")
    assert result.error is not None
    assert (result.status, result.body, result.validators.etag) == (206, None, None)


@with_harness()
async def test_304_to_an_unconditional_request_is_a_problem(w: PollHarness) -> None:
    w.script("/feed", Response(304))
    result = await w.poll("/feed")
    assert result.error is not None
    assert result.error.kind is Problem.BROKEN


@with_harness()
async def test_wrong_content_type_is_left_to_the_parser(
    w: PollHarness,
) -> None:
    w.serve("/feed", body=b"\r\n <html>down</html>", Content_Type="text/html")
    result = await w.poll("/feed")
    assert (result.body, result.content_type) == (b"\r\n <html>down</html>", "text/html")


@with_harness()
async def test_response_that_is_not_http_is_a_problem(w: PollHarness) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        result = await w.poll(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    assert result.error is not None
    assert result.error.kind is Problem.BROKEN


@with_harness()
async def test_large_header_is_accepted(w: PollHarness) -> None:
    w.serve("/feed", Content_Security_Policy="x" * 20_000)
    assert (await w.poll("/feed")).body == RSS


@with_harness()
async def test_refused_connection_is_a_problem(w: PollHarness) -> None:
    server = await asyncio.start_server(lambda r, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    result = await w.poll(f"http://127.0.0.1:{port}/")
    assert result.error is not None
    assert (result.error.kind, result.status) == (Problem.CONNECT, 0)


@with_harness()
async def test_unresolvable_name_is_a_problem(w: PollHarness) -> None:
    result = await w.poll(f"http://{'x' * 64}.example/feed")  # too long, so no DNS query is sent
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
def test_invalid_url_is_a_problem(url: str) -> None:
    async def scenario() -> None:
        async with Fetcher(FetchSettings(), Clock()) as fetcher:
            result = await fetcher.fetch(FetchRequest(url))
        assert result.error is not None
        assert (result.error.kind, result.requests) == (Problem.URL, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "location", ["ftp://example.org/", "javascript:alert(1)", "http://", "http://x:99999/"]
)
def test_redirect_to_invalid_url_is_a_problem(location: str) -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        w.script("/feed", Response(301, headers={"Location": location}))
        result = await w.poll("/feed")
        assert result.error is not None
        assert (result.error.kind, result.requests) == (Problem.REDIRECTS, 1)

    scenario()


def test_self_signed_certificate_is_rejected() -> None:
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


def test_redirect_from_https_to_http_is_not_a_move() -> None:
    @with_harness()
    async def scenario(w: PollHarness) -> None:
        w.serve("/plain")
        w.fetcher.connection_pool.tls = ssl._create_unverified_context()
        async with OriginServer().running(ssl=self_signed()) as secure:
            secure.scripts["/feed"] = lambda request: Response(
                301, headers={"Location": w.url("/plain")}
            )
            result = await w.poll(f"https://127.0.0.1:{secure.port}/feed")
        assert (result.body, result.moved_to) == (RSS, None)

    scenario()


@with_harness()
async def test_stale_connection_is_reopened(
    w: PollHarness,
) -> None:
    w.script("/feed", Response(close=True), Response(body=RSS + b" "))
    first, second = await w.poll("/feed"), await w.poll("/feed")
    assert (first.error, second.error) == (None, None)
    assert w.origin.connections == 2
