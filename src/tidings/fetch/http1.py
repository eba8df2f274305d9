"""HTTP/1.1 as far as a reader of feeds needs it: one request on a connection, one answer taken whole or up to a limit.

A poll that is answered with 304 costs a fifth of what it does with a client for everything, and start-up is shorter by a
quarter (docs/design/dependencies.md). What an answer says is left to llhttp, which reads it as leniently as browsers do.
"""

import asyncio
import re
from contextlib import suppress
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from msgspec import Struct
from multidict import CIMultiDict

#: Of an error's or a redirect's body: enough to tell what the server said, and to keep the connection for the next request.
MAX_ERROR_BODY_BYTES = 16_384
#: Status and headers together. Real servers send policies of 20 KB in one header.
MAX_HEADER_BYTES = 262_144
#: How long a document that does not look finished is held back, in case bytes beyond its Content-Length follow.
LINGER_S = 0.5
_ROOT = re.compile(rb"<([A-Za-z_][\w:.-]*)")
_BLANK = b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n"
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class InvalidResponse(Exception):
    """The answer broke off, or is no HTTP."""


class ContentLengthMismatch(InvalidResponse):
    """A document is longer than its Content-Length, so that it is unknown where it ends."""

    def __init__(self) -> None:
        super().__init__("the server sent more bytes than its Content-Length declares")


class StaleConnection(InvalidResponse):
    """A connection that was kept has been closed by the server meanwhile: nothing came, so that nothing was answered."""


class Response(Struct, frozen=True):
    """What a server said."""

    status: int
    headers: CIMultiDict[str]  #: as UTF-8; bytes that are none, escaped (surrogateescape)
    body: bytes
    is_complete: bool  #: False: there is more than was wanted, or it did not come in time


def header_as_latin1(value: str | None) -> str | None:
    """A header as one character per byte, in which form it can be sent back byte by byte; None if it cannot be sent."""
    if value is None or (value.isascii() and value.isprintable()):
        return value
    value = value.encode("utf-8", "surrogateescape").decode("latin-1")
    return None if _UNSENDABLE.search(value) else value


def looks_truncated(response: Response) -> bool:
    """Return whether a plain XML or JSON document does not end as it should; compressed ones are checked by unpacking."""
    body = response.body
    start, end = body[:64].lstrip(_BLANK)[:1], body[-64:].rstrip(_BLANK).lower()
    if response.headers.get("Content-Encoding") or start not in (b"<", b"{"):
        return False
    if start == b"{":
        return not end.endswith(b"}")
    root = _ROOT.search(body, 0, 4096)
    return not end.endswith((b"-->", b"</%s>" % root[1].lower() if root else b">"))


class Connection(asyncio.Protocol):
    """To one host. Closed by itself when it cannot be used for another request."""

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
        """Send ``request`` and read its answer, by ``deadline`` (of the loop's clock), else `TimeoutError`.

        Of a document (2xx) ``most`` bytes are read or, if it says itself that it has more, none. Other answers, and all if
        ``most`` is 0, are read as far as `ASIDE_BYTES`, and if they do not end in time, as far as they came. A document
        with bytes behind its Content-Length is a `WrongLength`.
        """
        loop = asyncio.get_running_loop()
        self._max_bytes = max_bytes
        self._bytes_received = 0
        self._has_excess = False
        self._reset()
        finished: asyncio.Future[Response] = loop.create_future()
        self._response_future = finished
        deadline_timer = loop.call_at(deadline, self._on_deadline)
        if self.closed:
            self.connection_lost(None)
        else:
            self._transport.write(request)
        try:
            response = await finished
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
        """Raise `WrongLength` if more bytes have arrived, or follow a document that looks cut.

        We do not pipeline requests, so nothing may follow a document (RFC 9112, 6.3). A server that counts characters
        instead of bytes declares too little, and its first bytes would pass for the whole document.
        """
        await asyncio.sleep(
            0
        )  # lets the loop hand over what the socket holds already; waits for nothing
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

    # --- what the loop tells -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(
            asyncio.Transport, transport
        )  # uvloop's has its methods, and is none

    def data_received(self, data: bytes) -> None:
        if self._response_future is None:  # no request is waiting for an answer
            self._has_excess = True
            self.close()
            return
        self._bytes_received += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._has_excess = self._response_future is None  # the answer has ended already
            self._fail(InvalidResponse(str(error)))
        if self._status == 0 and self._bytes_received > MAX_HEADER_BYTES:
            self._fail(InvalidResponse(f"its headers are longer than {MAX_HEADER_BYTES:,} bytes"))

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._closed_event.set()
        if self._bytes_received == 0 and self._response_count:
            self._fail(StaleConnection("the connection was closed"))
        elif self._status and not self._framed and error is None:
            self._finish(is_complete=True)  # it ends with the connection
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

    # --- what the parser tells -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._response_future is None:  # a second answer to one request: the parser stops here
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
        if self._status < 200:  # 103 and its like come before the answer
            self._reset()
        else:
            self._finish(is_complete=True)

    # --- the end -------------------------------------------------------------------------------------------------------

    def _reset(self) -> None:
        self._status = self._size = 0
        self._is_error_body = self._framed = self._has_length = False
        self._headers: CIMultiDict[str] = CIMultiDict()
        self._pieces: list[bytes] = []

    def _finish(self, *, is_complete: bool) -> None:
        finished = self._response_future
        if (
            finished is None or finished.done()
        ):  # whoever waited for it was cancelled, or has enough
            return
        response = Response(self._status, self._headers, b"".join(self._pieces), is_complete)
        self._response_count += 1
        self._response_future = None
        self._pieces = []
        self._reusable = is_complete and self._parser.should_keep_alive()
        if not is_complete:
            self.close()
        finished.set_result(response)

    def _fail(self, error: Exception) -> None:
        finished = self._response_future
        self.close()
        if finished is not None and not finished.done():
            finished.set_exception(error)
