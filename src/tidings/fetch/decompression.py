"""Unpacking a body, with a limit on what comes out: some bytes of gzip can hold gigabytes.

What servers do wrong and is mended here: compressed twice, compressed without saying so, said to be compressed and plain.
"""

import sys
import zlib
from collections.abc import Callable
from contextlib import suppress

import brotli  # type: ignore[import-untyped]  # it has no types

with suppress(
    ImportError
):  # the same in less than half the time, where there is one for the processor
    from isal import isal_zlib as zlib  # type: ignore[no-redef]  # mypy shall take it for the other

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

GZIP_MAGIC = b"\x1f\x8b\x08"
#: Nobody has a reason for more than two.
MAX_LAYERS = 3
#: Output is taken in pieces of this size, so that a bomb costs its cap and no more.
CHUNK_BYTES = 1 << 18
#: RFC 9659: a body in HTTP may ask for a window of 8 MB at most; the library alone would give 128 MB to whoever asks.
ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}
#: Names that say nothing: seen as values of Content-Encoding.
IGNORED_ENCODINGS = frozenset({"", "identity", "none", "utf-8", "utf8", "binary", "8bit", "text"})


class BodyTooLarge(Exception):
    """More came out than is allowed."""


class DecompressionError(Exception):
    """Not what the header says, nor anything else that we read."""


def decompress(compressed: bytes, encoding: str, max_bytes: int) -> bytes:
    """The body behind `Content-Encoding: encoding`, at most `max_bytes` long."""
    names = [
        name
        for name in (part.strip().lower() for part in encoding.split(","))
        if name not in IGNORED_ENCODINGS
    ]
    if len(names) > MAX_LAYERS:
        raise DecompressionError(f"packed {len(names)} times")
    body = compressed
    for name in reversed(names):
        try:
            body = _DECODERS[name](body, max_bytes)
        except KeyError:
            if not _is_plain_document(body):
                raise DecompressionError(f"packed as {name!r}, which was not asked for") from None
        except (zlib.error, brotli.error, zstd.ZstdError, EOFError) as error:
            if not _is_plain_document(body):
                raise DecompressionError(
                    f"said to be {name}, but cannot be unpacked: {error}"
                ) from None
    for _ in range(MAX_LAYERS):
        if not body.startswith(GZIP_MAGIC):
            break
        try:
            body = _gunzip(body, max_bytes)
        except (zlib.error, EOFError) as error:
            raise DecompressionError(f"looks like gzip, but cannot be unpacked: {error}") from None
    if len(body) > max_bytes:
        raise BodyTooLarge
    return body


def _is_plain_document(body: bytes) -> bool:
    """Whether this is a document as it stands: XML, HTML or JSON, perhaps behind a byte order mark."""
    return body[:64].lstrip(b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n")[:1] in (b"<", b"{")


def _gunzip(data: bytes, max_bytes: int) -> bytes:
    return _inflate(data, max_bytes, 16 + zlib.MAX_WBITS)


def _deflate(data: bytes, max_bytes: int) -> bytes:
    try:
        return _inflate(data, max_bytes, zlib.MAX_WBITS)
    except zlib.error:
        return _inflate(
            data, max_bytes, -zlib.MAX_WBITS
        )  # without the zlib header, as old servers send it


def _inflate(data: bytes, max_bytes: int, wbits: int) -> bytes:
    out = _CappedBuffer(max_bytes)
    while True:
        member = zlib.decompressobj(wbits)
        rest = data
        while rest and not member.eof:
            out.add(member.decompress(rest, CHUNK_BYTES))
            rest = member.unconsumed_tail
        while not member.eof:
            more = member.decompress(b"", CHUNK_BYTES)
            if not more:
                raise EOFError("it breaks off")
            out.add(more)
        data = member.unused_data
        if not data.startswith(
            GZIP_MAGIC
        ):  # padding and garbage behind the last member are ignored, as gzip itself does
            return out.joined()


def _unbrotli(data: bytes, max_bytes: int) -> bytes:
    out, stream = _CappedBuffer(max_bytes), brotli.Decompressor()
    out.add(stream.process(data, output_buffer_limit=CHUNK_BYTES))
    while not stream.is_finished():
        more = stream.process(b"", output_buffer_limit=CHUNK_BYTES)
        if not more and stream.can_accept_more_data():
            raise EOFError("it breaks off")
        out.add(more)
    return out.joined()


def _unzstd(data: bytes, max_bytes: int) -> bytes:
    out = _CappedBuffer(max_bytes)
    while data:
        frame = zstd.ZstdDecompressor(options=ZSTD_OPTIONS)
        out.add(frame.decompress(data, CHUNK_BYTES))
        while not frame.eof:
            if frame.needs_input:
                raise EOFError("it breaks off")
            out.add(frame.decompress(b"", CHUNK_BYTES))
        data = frame.unused_data
    return out.joined()


class _CappedBuffer:
    def __init__(self, max_bytes: int) -> None:
        self._bytes_left = max_bytes
        self._pieces: list[bytes] = []

    def add(self, piece: bytes) -> None:
        self._bytes_left -= len(piece)
        if self._bytes_left < 0:
            raise BodyTooLarge
        self._pieces.append(piece)

    def joined(self) -> bytes:
        return b"".join(self._pieces)


_DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _deflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
