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
ASIDE_BYTES = 16_384
#: Status and headers together. Real servers send policies of 20 KB in one header.
HEAD_BYTES = 262_144
#: How long a document that does not look finished is held back, in case bytes beyond its Content-Length follow.
LINGER_S = 0.5
_ROOT = re.compile(rb"<([A-Za-z_][\w:.-]*)")
_BLANK = b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n"
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class BrokenAnswer(Exception):
    """The answer broke off, or is no HTTP."""


class WrongLength(BrokenAnswer):
    """A document is longer than its Content-Length, so that it is unknown where it ends."""

    def __init__(self) -> None:
        super().__init__("the server sent more bytes than its Content-Length declares")


class Stale(BrokenAnswer):
    """A connection that was kept has been closed by the server meanwhile: nothing came, so that nothing was answered."""


class Answer(Struct, frozen=True):
    """What a server said."""

    status: int
    headers: CIMultiDict[str]  #: as UTF-8; bytes that are none, escaped (surrogateescape)
    body: bytes
    whole: bool  #: False: there is more than was wanted, or it did not come in time


def as_received(value: str | None) -> str | None:
    """A header as one character per byte, in which form it can be sent back byte by byte; None if it cannot be sent."""
    if value is None or (value.isascii() and value.isprintable()):
        return value
    value = value.encode("utf-8", "surrogateescape").decode("latin-1")
    return None if _UNSENDABLE.search(value) else value


def looks_cut(answer: Answer) -> bool:
    """Return whether a plain XML or JSON document does not end as it should; compressed ones are checked by unpacking."""
    body = answer.body
    start, end = body[:64].lstrip(_BLANK)[:1], body[-64:].rstrip(_BLANK).lower()
    if answer.headers.get("Content-Encoding") or start not in (b"<", b"{"):
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
        self._answers = self._most = self._fed = 0
        self._reusable = self._surplus = False
        self._ended = asyncio.Event()
        self._begin()
        self._finished: asyncio.Future[Answer] | None = None
        self._parser = HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    async def ask(self, request: bytes, most: int, deadline: float) -> Answer:
        """Send ``request`` and read its answer, by ``deadline`` (of the loop's clock), else `TimeoutError`.

        Of a document (2xx) ``most`` bytes are read or, if it says itself that it has more, none. Other answers, and all if
        ``most`` is 0, are read as far as `ASIDE_BYTES`, and if they do not end in time, as far as they came. A document
        with bytes behind its Content-Length is a `WrongLength`.
        """
        loop = asyncio.get_running_loop()
        self._most = most
        self._fed = 0
        self._surplus = False
        self._begin()
        finished: asyncio.Future[Answer] = loop.create_future()
        self._finished = finished
        late = loop.call_at(deadline, self._late)
        if self.closed:
            self.connection_lost(None)
        else:
            self._transport.write(request)
        try:
            answer = await finished
            if answer.whole and self._counted and not self._aside:
                await self._check_length(answer, deadline)
        except BaseException:
            self.close()
            raise
        finally:
            late.cancel()
        if not self._reusable:
            self.close()
        return answer

    async def _check_length(self, answer: Answer, deadline: float) -> None:
        """Raise `WrongLength` if more bytes have arrived, or follow a document that looks cut.

        We do not pipeline requests, so nothing may follow a document (RFC 9112, 6.3). A server that counts characters
        instead of bytes declares too little, and its first bytes would pass for the whole document.
        """
        await asyncio.sleep(0)  # lets the loop hand over what the socket holds already; waits for nothing
        if not self._surplus and not self.closed and looks_cut(answer):
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(deadline, asyncio.get_running_loop().time() + LINGER_S)):
                    await self._ended.wait()
        if self._surplus:
            raise WrongLength

    def close(self) -> None:
        self.closed = True
        self._finished = None
        self._ended.set()
        self._transport.abort()

    # --- what the loop tells -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has its methods, and is none

    def data_received(self, data: bytes) -> None:
        if self._finished is None:  # no request is waiting for an answer
            self._surplus = True
            self.close()
            return
        self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._surplus = self._finished is None  # the answer has ended already
            self._fail(BrokenAnswer(str(error)))
        if self._status == 0 and self._fed > HEAD_BYTES:
            self._fail(BrokenAnswer(f"its headers are longer than {HEAD_BYTES:,} bytes"))

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._ended.set()
        if self._fed == 0 and self._answers:
            self._fail(Stale("the connection was closed"))
        elif self._status and not self._framed and error is None:
            self._finish(whole=True)  # it ends with the connection
        else:
            self._fail(BrokenAnswer(str(error) if error is not None else "the server closed the connection"))

    def _late(self) -> None:
        if self._status and self._aside:
            self._finish(whole=False)
        else:
            self._fail(TimeoutError())

    # --- what the parser tells -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._finished is None:  # a second answer to one request: the parser stops here
            raise WrongLength

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.add(name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        self._aside = not self._most or not 200 <= self._status < 300
        length = self._headers.get("Content-Length")
        chunked = "chunked" in self._headers.get("Transfer-Encoding", "").lower()
        self._counted = length is not None and not chunked
        self._framed = self._counted or chunked
        if not self._aside and length is not None and int(length) > self._most:
            self._finish(whole=False)

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > (ASIDE_BYTES if self._aside else self._most):
            self._finish(whole=False)

    def on_message_complete(self) -> None:
        if self._status < 200:  # 103 and its like come before the answer
            self._begin()
        else:
            self._finish(whole=True)

    # --- the end -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._status = self._size = 0
        self._aside = self._framed = self._counted = False
        self._headers: CIMultiDict[str] = CIMultiDict()
        self._pieces: list[bytes] = []

    def _finish(self, *, whole: bool) -> None:
        finished = self._finished
        if finished is None or finished.done():  # whoever waited for it was cancelled, or has enough
            return
        answer = Answer(self._status, self._headers, b"".join(self._pieces), whole)
        self._answers += 1
        self._finished = None
        self._pieces = []
        self._reusable = whole and self._parser.should_keep_alive()
        if not whole:
            self.close()
        finished.set_result(answer)

    def _fail(self, error: Exception) -> None:
        finished = self._finished
        self.close()
        if finished is not None and not finished.done():
            finished.set_exception(error)
