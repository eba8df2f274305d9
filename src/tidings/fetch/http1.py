"""HTTP/1.1 client connection with keep-alive, and bodies up to a size limit.

A poll answered with 304 takes a fifth of the time of a general HTTP client, and start-up is a
quarter shorter (docs/design/dependencies.md). Responses are parsed by llhttp, as leniently as
browsers do.
"""

import asyncio
import re
from contextlib import suppress
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from msgspec import Struct
from multidict import CIMultiDict

#: Maximum size in bytes of the body of an error or a redirect. It is enough for the error text, and
#: for reading most bodies completely, so that the connection can be reused.
MAX_ERROR_BODY_BYTES = 16_384
#: Maximum size in bytes of status line and headers. Real servers send policies of 20 KB in one
#: header.
MAX_HEADER_BYTES = 262_144
#: Time in seconds to wait for bytes beyond the Content-Length of a document that looks truncated.
LINGER_S = 0.5
_ROOT = re.compile(rb"<([A-Za-z_][\w:.-]*)")
_BLANK = b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n"
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class InvalidResponse(Exception):
    """Error raised when a response is incomplete or not valid HTTP."""


class ContentLengthMismatch(InvalidResponse):
    """Error raised when a document is longer than its Content-Length, so its end is unknown."""

    def __init__(self) -> None:
        super().__init__("the server sent more bytes than its Content-Length declares")


class StaleConnection(InvalidResponse):
    """Error raised when the server closed a reused connection before it sent a response."""


class Response(Struct, frozen=True):
    """HTTP response with status, headers and body."""

    status: int
    headers: CIMultiDict[str]  #: decoded as UTF-8 with surrogateescape
    body: bytes
    is_complete: bool  #: False if the body exceeds the limit or did not arrive in time


def header_as_latin1(value: str | None) -> str | None:
    """Return a header's value with one character per byte, to be sent back unchanged.

    Returns None if the value has control characters and cannot be sent.
    """
    if value is None or (value.isascii() and value.isprintable()):
        return value
    value = value.encode("utf-8", "surrogateescape").decode("latin-1")
    return None if _UNSENDABLE.search(value) else value


def looks_truncated(response: Response) -> bool:
    """Return whether an uncompressed XML or JSON document has no proper end.

    Compressed documents are checked by decompression.
    """
    body = response.body
    start, end = body[:64].lstrip(_BLANK)[:1], body[-64:].rstrip(_BLANK).lower()
    if response.headers.get("Content-Encoding") or start not in (b"<", b"{"):
        return False
    if start == b"{":
        return not end.endswith(b"}")
    root = _ROOT.search(body, 0, 4096)
    return not end.endswith((b"-->", b"</%s>" % root[1].lower() if root else b">"))


class Connection(asyncio.Protocol):
    """Connection to one host, which closes itself when it cannot be reused."""

    def __init__(self) -> None:
        self.closed = False
        self.idle_since = 0.0
        self._response_count = self._max_bytes = self._bytes_received = 0
        self._reusable = self._has_excess = False
        self._closed_event = asyncio.Event()
        self._reset()
        self._response_future: asyncio.Future[Response] | None = None
        self._parser = HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )

    async def send_request(self, request: bytes, max_bytes: int, deadline: float) -> Response:
        """Send a request and return its response.

        ``deadline`` is a time of the loop's clock. A document (2xx) is read up to ``max_bytes``, or
        not at all if its Content-Length is larger. Other responses, and all responses if
        ``max_bytes`` is 0, are read up to `MAX_ERROR_BODY_BYTES`, and returned incomplete at the
        deadline.

        Raises `TimeoutError` at the deadline, `InvalidResponse`, and `ContentLengthMismatch` if a
        document has bytes beyond its Content-Length.
        """
        loop = asyncio.get_running_loop()
        self._max_bytes = max_bytes
        self._bytes_received = 0
        self._has_excess = False
        self._reset()
        future: asyncio.Future[Response] = loop.create_future()
        self._response_future = future
        deadline_timer = loop.call_at(deadline, self._on_deadline)
        if self.closed:
            self.connection_lost(None)
        else:
            self._transport.write(request)
        try:
            response = await future
            if response.is_complete and self._has_length and not self._is_error_body:
                await self._check_length(response, deadline)
        except BaseException:
            self.close()
            raise
        finally:
            deadline_timer.cancel()
        if not self._reusable:
            self.close()
        return response

    async def _check_length(self, response: Response, deadline: float) -> None:
        """Raise `ContentLengthMismatch` if bytes follow the document.

        Requests are not pipelined, so no bytes may follow a document (RFC 9112 sect. 6.3). A server
        that counts characters instead of bytes declares too little, and the document would be
        truncated silently. The function waits up to `LINGER_S` seconds if the document looks
        truncated.
        """
        await asyncio.sleep(0)  # lets the loop deliver the bytes that have already arrived
        if not self._has_excess and not self.closed and looks_truncated(response):
            with suppress(TimeoutError):
                async with asyncio.timeout_at(
                    min(deadline, asyncio.get_running_loop().time() + LINGER_S)
                ):
                    await self._closed_event.wait()
        if self._has_excess:
            raise ContentLengthMismatch

    def close(self) -> None:
        self.closed = True
        self._response_future = None
        self._closed_event.set()
        self._transport.abort()

    # --- asyncio.Protocol callbacks --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has the methods of asyncio.Transport but is no subclass.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._response_future is None:  # no request is in progress
            self._has_excess = True
            self.close()
            return
        self._bytes_received += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._has_excess = self._response_future is None  # the response has ended already
            self._fail(InvalidResponse(str(error)))
        if self._status == 0 and self._bytes_received > MAX_HEADER_BYTES:
            self._fail(InvalidResponse(f"the headers exceed {MAX_HEADER_BYTES:,} bytes"))

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._closed_event.set()
        if self._bytes_received == 0 and self._response_count:
            self._fail(StaleConnection("the connection was closed"))
        elif self._status and not self._framed and error is None:
            self._finish(is_complete=True)  # the body ends with the connection
        else:
            self._fail(
                InvalidResponse(
                    str(error) if error is not None else "the server closed the connection"
                )
            )

    def _on_deadline(self) -> None:
        if self._status and self._is_error_body:
            self._finish(is_complete=False)
        else:
            self._fail(TimeoutError())

    # --- HttpResponseParser callbacks ------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._response_future is None:  # this is a second response to one request
            raise ContentLengthMismatch

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.add(
            name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape")
        )

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        self._is_error_body = not self._max_bytes or not 200 <= self._status < 300
        length = self._headers.get("Content-Length")
        chunked = "chunked" in self._headers.get("Transfer-Encoding", "").lower()
        self._has_length = length is not None and not chunked
        self._framed = self._has_length or chunked
        if not self._is_error_body and length is not None and int(length) > self._max_bytes:
            self._finish(is_complete=False)

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > (MAX_ERROR_BODY_BYTES if self._is_error_body else self._max_bytes):
            self._finish(is_complete=False)

    def on_message_complete(self) -> None:
        if self._status < 200:  # after an informational response such as 103, the final one follows
            self._reset()
        else:
            self._finish(is_complete=True)

    # --- end of a response -----------------------------------------------------------------------

    def _reset(self) -> None:
        self._status = self._size = 0
        self._is_error_body = self._framed = self._has_length = False
        self._headers: CIMultiDict[str] = CIMultiDict()
        self._pieces: list[bytes] = []

    def _finish(self, *, is_complete: bool) -> None:
        future = self._response_future
        if future is None or future.done():  # the caller was canceled, or the response is finished
            return
        response = Response(self._status, self._headers, b"".join(self._pieces), is_complete)
        self._response_count += 1
        self._response_future = None
        self._pieces = []
        self._reusable = is_complete and self._parser.should_keep_alive()
        if not is_complete:
            self.close()
        future.set_result(response)

    def _fail(self, error: Exception) -> None:
        future = self._response_future
        self.close()
        if future is not None and not future.done():
            future.set_exception(error)
