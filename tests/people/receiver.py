"""Somebody else's server on loopback: pages that can be asked for, and a place that takes what is posted."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Posted(NamedTuple):
    path: str
    headers: dict
    body: bytes


class Receiver:
    """``with Receiver() as there``: what came is in ``there.posted``; what is in ``there.answers`` is said to the next ones."""

    def __init__(self):
        self.posted, self.answers, self.pages, self.asked = [], [], {}, []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.posted.append(Posted(self.path, dict(self.headers), body))
                self._answer(receiver.answers.pop(0) if receiver.answers else 200, b"")

            def do_GET(self):
                receiver.asked.append(self.path)
                page = receiver.pages.get(self.path)
                self._answer(404 if page is None else 200, (page or "").encode())

            def _answer(self, status, body):
                self.send_response(status)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
