"""HTTP test server on loopback: serves pages by path and records POST requests."""

import threading
from functools import partial
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from tests import TEST_TIMEOUT_S


class Request(NamedTuple):
    method: str
    path: str
    headers: dict  #: case-insensitive
    body: bytes


class LocalServer:
    """``with LocalServer() as server``: serves ``server.pages`` by path.

    ``server.requested_paths`` and ``server.posted`` record the requests; the statuses in
    ``server.answers`` are returned to the next POST requests. Subclasses override `page` or
    `answer`.
    """

    protocol = "HTTP/1.0"

    def __init__(self):
        self.pages, self.requested_paths, self.posted, self.answers = {}, [], [], []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.address = f"http://{self.host}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}
        )

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=TEST_TIMEOUT_S)

    def answer(self, request):
        """Return status, content type and body for a request."""
        if request.method == "POST":
            self.posted.append(request)
            return self.answers.pop(0) if self.answers else 200, "text/plain", b""
        self.requested_paths.append(request.path)
        body, kind = self.page(request.path)
        return 200 if body else 404, kind, body

    def headers(self):
        """Return additional headers of every response."""
        return {}

    def page(self, path):
        """Return body and content type of a page; an empty body gives 404."""
        return self.pages.get(path, "").encode(), "text/html; charset=utf-8"


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, site, *connection):
        self._site, self.protocol_version = site, site.protocol
        super().__init__(*connection)

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, kind, body = self._site.answer(Request(self.command, self.path, self.headers, body))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in self._site.headers().items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except OSError:  # the client has disconnected
            self.close_connection = True

    def log_message(self, *_):
        pass


def rss(title, items, link=""):
    """Build an RSS document; ``items`` are XML strings."""
    head = f"<title>{escape(title)}</title><link>{link}</link><description/>"
    return f'<rss version="2.0"><channel>{head}{"".join(items)}</channel></rss>'.encode()
