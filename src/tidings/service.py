"""Where the parts are wired: a socket, the pages, and a clean end.

Until the living aggregator is there, the service answers with the pages of `tidings.web` and keeps nothing on disk.
"""

import errno
import json
import signal
import socket
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tidings import __version__
from tidings.errors import TidingsError, UsageError
from tidings.web import comparison, page
from tidings.web.comparison import Comparisons, MakeTrace, Request
from tidings.web.style import STYLE

#: Nothing from elsewhere, no scripts, nobody may frame the page.
SECURITY = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill="#0f6b6b"/>'
    '<path d="M8 4v4l3 2" fill="none" stroke="#fff" stroke-width="1.6" stroke-linecap="round"/></svg>'
)
#: A query longer than this is no form of ours.
LONGEST_TARGET = 2000
#: A client that says nothing for so long is left.
SILENCE_S = 30


class Server(ThreadingHTTPServer):
    """One thread per request; none of them keeps the process from ending."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, make_trace: MakeTrace | None = None) -> None:
        self.comparisons = Comparisons() if make_trace is None else Comparisons(make_trace)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), Handler)
        except socket.gaierror as error:
            raise UsageError(f"--host {host}: {error.strerror}; name an address of this machine, such as 127.0.0.1") from None
        except OSError as error:
            raise UsageError(_why_not(error, host, port)) from None

    @property
    def address(self) -> str:
        host, port = self.server_address[:2]
        name = host.decode() if isinstance(host, bytes | bytearray) else str(host)
        return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news; anything else is reported by the standard library."""
        import sys

        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def _why_not(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use; stop what listens there, or choose another with --port (0 picks a free one)"
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges; choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host}: is not an address of this machine; try 127.0.0.1"
    return f"cannot listen on {host} port {port}: {error.strerror}"


class Handler(BaseHTTPRequestHandler):
    """GET and HEAD; everything else is refused by the base class."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = SILENCE_S

    def do_GET(self) -> None:
        self._answer(*self._find())

    def do_HEAD(self) -> None:
        self._answer(*self._find())

    def _find(self) -> tuple[HTTPStatus, str, str]:
        """Status, kind and text of the answer."""
        target = urlsplit(self.path)
        html = "text/html; charset=utf-8"
        if len(self.path) > LONGEST_TARGET:
            return (
                HTTPStatus.REQUEST_URI_TOO_LONG,
                html,
                page.problem("Too long", "The address is longer than any form here makes it."),
            )
        if target.path == "/style.css":
            return HTTPStatus.OK, "text/css; charset=utf-8", STYLE
        if target.path == "/icon.svg":
            return HTTPStatus.OK, "image/svg+xml", ICON
        if target.path not in ("/", "/compare.json"):
            return HTTPStatus.NOT_FOUND, html, page.problem("Not found", "There is no such page here.")
        try:
            query = parse_qs(target.query, keep_blank_values=True, max_num_fields=40)
        except ValueError:
            return HTTPStatus.BAD_REQUEST, html, page.problem("That did not work", "The address has too many parameters.")
        as_json = target.path == "/compare.json"
        try:
            kinds = comparison.kinds()
            if not query and not as_json:
                return HTTPStatus.OK, html, page.home(Request(), kinds)
            request = comparison.read_request(query, kinds)
            found = self.server.comparisons.run(request)
        except TidingsError as error:
            sentence = _sentence(str(error))
            if as_json:
                return HTTPStatus.BAD_REQUEST, "application/json", json.dumps({"error": sentence})
            return HTTPStatus.BAD_REQUEST, html, page.problem("That did not work", sentence)
        if as_json:
            return HTTPStatus.OK, "application/json", json.dumps(found, indent=2)
        return HTTPStatus.OK, html, page.home(request, kinds, found)

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", SECURITY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return f"tidings/{__version__}"

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: a page of one's own machine needs no access log."""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def run(host: str, port: int, say: Callable[[str], object]) -> None:
    """Serve until Ctrl-C or SIGTERM, both of which are a clean end."""

    def stop(signal_number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with Server(host, port) as server:
        signal.signal(signal.SIGTERM, stop)
        try:
            say(f"tidings is at {server.address} (Ctrl-C stops it)")
            server.serve_forever()
        except KeyboardInterrupt:
            say("stopped")
