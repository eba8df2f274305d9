"""Decompression of HTTP bodies (gzip, deflate, br, zstd) with a limit against zip bombs.

Common server errors are handled too: bodies that are compressed twice, compressed without a
Content-Encoding header, or declared as compressed but sent plain.
"""

import sys
import zlib
from collections.abc import Callable
from contextlib import suppress

import brotli  # type: ignore[import-untyped]  # it has no types

with suppress(ImportError):  # isal is more than twice as fast, but not on all processors
    from isal import isal_zlib as zlib  # type: ignore[no-redef]  # same interface as zlib

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

GZIP_MAGIC = b"\x1f\x8b\x08"
#: Maximum number of encodings applied to a body. Real servers use at most two.
MAX_LAYERS = 3
#: Size in bytes of the pieces in which output is produced, so that a zip bomb stops at the limit.
CHUNK_BYTES = 1 << 18
#: Options that limit the window of a zstd body to 8 MB, as RFC 9659 requires for HTTP. The default
#: of the library is 128 MB.
ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}
#: Values of the header Content-Encoding that servers send although they name no encoding.
IGNORED_ENCODINGS = frozenset({"", "identity", "none", "utf-8", "utf8", "binary", "8bit", "text"})


class BodyTooLarge(Exception):
    """Error raised when a decompressed body exceeds the size limit."""


class DecompressionError(Exception):
    """Error raised when a body cannot be decompressed and is no plain document either."""


def decompress(compressed: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return the decompressed body of a response.

    ``encoding`` is the value of the header Content-Encoding. Raises `BodyTooLarge` if the result is
    longer than ``max_bytes``, and `DecompressionError` if the body cannot be decompressed.
    """
    names = [
        name
        for name in (part.strip().lower() for part in encoding.split(","))
        if name not in IGNORED_ENCODINGS
    ]
    if len(names) > MAX_LAYERS:
        raise DecompressionError(f"{len(names)} encodings are too many")
    body = compressed
    for name in reversed(names):
        try:
            body = _DECODERS[name](body, max_bytes)
        except KeyError:
            if not _is_plain_document(body):
                raise DecompressionError(f"unsupported Content-Encoding {name!r}") from None
        except (zlib.error, brotli.error, zstd.ZstdError, EOFError) as error:
            if not _is_plain_document(body):
                raise DecompressionError(f"invalid {name} data: {error}") from None
    for _ in range(MAX_LAYERS):
        if not body.startswith(GZIP_MAGIC):
            break
        try:
            body = _gunzip(body, max_bytes)
        except (zlib.error, EOFError) as error:
            raise DecompressionError(f"invalid gzip data: {error}") from None
    if len(body) > max_bytes:
        raise BodyTooLarge
    return body


def _is_plain_document(body: bytes) -> bool:
    """Return whether a body is uncompressed XML, HTML or JSON, with or without a BOM."""
    return body[:64].lstrip(b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n")[:1] in (b"<", b"{")


def _gunzip(data: bytes, max_bytes: int) -> bytes:
    return _inflate(data, max_bytes, 16 + zlib.MAX_WBITS)


def _deflate(data: bytes, max_bytes: int) -> bytes:
    try:
        return _inflate(data, max_bytes, zlib.MAX_WBITS)
    except zlib.error:
        return _inflate(data, max_bytes, -zlib.MAX_WBITS)  # old servers omit the zlib header


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
                raise EOFError("the data is truncated")
            out.add(more)
        data = member.unused_data
        # Like gzip itself, ignore padding and garbage after the last member.
        if not data.startswith(GZIP_MAGIC):
            return out.joined()


def _unbrotli(data: bytes, max_bytes: int) -> bytes:
    out, stream = _CappedBuffer(max_bytes), brotli.Decompressor()
    out.add(stream.process(data, output_buffer_limit=CHUNK_BYTES))
    while not stream.is_finished():
        more = stream.process(b"", output_buffer_limit=CHUNK_BYTES)
        if not more and stream.can_accept_more_data():
            raise EOFError("the data is truncated")
        out.add(more)
    return out.joined()


def _unzstd(data: bytes, max_bytes: int) -> bytes:
    out = _CappedBuffer(max_bytes)
    while data:
        frame = zstd.ZstdDecompressor(options=ZSTD_OPTIONS)
        out.add(frame.decompress(data, CHUNK_BYTES))
        while not frame.eof:
            if frame.needs_input:
                raise EOFError("the data is truncated")
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
