"""A neighbour that was written from docs/exchange-protocol.md alone, with what Python brings along: nothing of tidings is here.

``with Stranger("127.0.0.40") as me: me.connect("127.0.0.2:8035", feeds); me.tell(...)``. What it is given is in ``me.given``.
"""

import http.client
import threading
from hashlib import blake2b, sha1
from xmlrpc.client import Binary, ServerProxy, Transport
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

from tests import TEST_TIMEOUT_S


def entry(identity, title, url="", content="", published=0.0, **more):
    """An entry as it travels."""
    return {
        "id": identity,
        "title": title,
        "url": url,
        "content": content,
        "published": float(int(published)),
        **more,
    }


def did(feed, entries):
    """The name of a bundle: SHA-1 over the feed and what each entry says."""
    digest = sha1(feed.encode())
    for one in entries:
        says = [
            one.get("title", ""),
            one.get("url", ""),
            one.get("content", ""),
            one.get("summary", ""),
        ]
        says += [url for url, _ in one.get("enclosures", [])]
        seen = blake2b("\0".join(says).encode(), digest_size=16).digest()
        at = int(one["published"]) if "published" in one else -1
        digest.update(b"\0" + one["id"].encode() + b"\0" + seen + str(at).encode())
    return digest.digest()


def bundle(feed, entries, fetched, path=()):
    """Entries of one feed on their way."""
    return {
        "feed": feed,
        "fetched": fetched,
        "did": Binary(did(feed, entries)),
        "path": list(path),
        "entries": entries,
    }


class _SourceAddressTransport(Transport):
    """Calls from one address: a node is who calls from where it listens."""

    def __init__(self, address):
        super().__init__(use_builtin_types=True)
        self._address = address

    def make_connection(self, host):
        return http.client.HTTPConnection(
            host, timeout=TEST_TIMEOUT_S, source_address=(self._address, 0)
        )


class _Handler(SimpleXMLRPCRequestHandler):
    def _dispatch(self, method, params):
        return self.server.answer(method, *params)


class ReferencePeer(SimpleXMLRPCServer):
    """A node with no cleverness at all. ``archive`` is what it gives to those who ask for old entries."""

    allow_reuse_address = True

    def __init__(self, address, port=0, archive=()):
        super().__init__((address, port), _Handler, logRequests=False, use_builtin_types=True)
        self.address, self.port = (
            address,
            self.server_port if hasattr(self, "server_port") else self.server_address[1],
        )
        self.nid = f"{address}:{self.port}"
        self.archive = list(archive)
        self.received, self.calls, self.seen = [], [], set()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    # what others call

    def answer(self, function, port, *payload):
        self.calls.append(function)
        return getattr(self, f"on_{function}", lambda *_: "ok")(*payload)

    def on_connect(self, subset, *proof):
        return {"subset": [[feed, 0] for feed, _ in subset], "you": "127.0.0.1:1"}

    def on_get_neighbors(self):
        return []

    def on_check_did(self, name):
        return "seen" if name in self.seen else "unseen"

    def on_put_entries(self, payload):
        assert payload["did"] == did(payload["feed"], payload["entries"])
        self.seen.add(payload["did"])
        self.received += payload["entries"]
        return "ok"

    def on_query_feed(self, query):
        held = [one for one in self.archive if query["since"] <= one["published"] < query["until"]]
        times = [one["published"] for one in held]
        return (
            [{"nid": "", "entries": len(held), "oldest": min(times), "newest": max(times)}]
            if held
            else []
        )

    def on_get_entries(self, query, recent_requesters):
        held = [one for one in self.archive if query["since"] <= one["published"] < query["until"]]
        return sorted(held, key=lambda one: -one["published"])[:100]

    # what it calls

    def call(self, nid, function, *parameters):
        proxy = ServerProxy(f"http://{nid}/RPC2", transport=_SourceAddressTransport(self.address))
        return getattr(proxy, function)(self.port, *parameters)

    def connect(self, nid, feeds):
        """Become a neighbour; says what the other is interested in, nothing if it declines."""
        return dict(self.call(nid, "connect", [[feed, 0] for feed in feeds])["subset"])

    def offer(self, nid, payload):
        """Offer a bundle; says whether it was taken."""
        if self.call(nid, "check_did", payload["did"]) == "seen":
            return False
        return self.call(nid, "put_entries", payload) == "ok"
