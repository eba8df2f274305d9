"""Independent peer, written from docs/exchange-protocol.md with the standard library.

It uses no code of tidings. ``with ReferencePeer("127.0.0.40") as peer:
peer.connect("127.0.0.2:8035", feeds); peer.offer(...)``. Received entries are in ``peer.received``.
"""

import http.client
import threading
from hashlib import blake2b, sha1
from xmlrpc.client import Binary, ServerProxy, Transport
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

from tests import TEST_TIMEOUT_S


def entry(identity, title, url="", content="", published=0.0, **more):
    """Return an entry as an XML-RPC struct."""
    return {
        "id": identity,
        "title": title,
        "url": url,
        "content": content,
        "published": float(int(published)),
        **more,
    }


def did(feed, entries):
    """Return the identifier of a bundle: SHA-1 over the feed and the statements of its entries."""
    bundle_hash = sha1(feed.encode())
    for item in entries:
        texts = [item.get(name, "") for name in ("title", "url", "content", "summary")]
        texts += [url for url, _ in item.get("enclosures", [])]
        digest = blake2b("\0".join(texts).encode(), digest_size=16).digest()
        at = int(item["published"]) if "published" in item else -1
        bundle_hash.update(b"\0" + item["id"].encode() + b"\0" + digest + str(at).encode())
    return bundle_hash.digest()


def bundle(feed, entries, fetched, path=()):
    """Return a bundle of entries of one feed as an XML-RPC struct."""
    return {
        "feed": feed,
        "fetched": fetched,
        "did": Binary(did(feed, entries)),
        "path": list(path),
        "entries": entries,
    }


class _SourceAddressTransport(Transport):
    """Makes calls from the address that the node listens at: nodes are identified by it."""

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
    """A minimal node. ``archive`` are the entries that it returns for archive queries."""

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

    # --- incoming calls --------------------------------------------------------------------------

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
        times = [item["published"] for item in self._matching(query)]
        if not times:
            return []
        return [{"nid": "", "entries": len(times), "oldest": min(times), "newest": max(times)}]

    def on_get_entries(self, query, recent_requesters):
        return sorted(self._matching(query), key=lambda item: -item["published"])[:100]

    def _matching(self, query):
        return [
            item for item in self.archive if query["since"] <= item["published"] < query["until"]
        ]

    # --- outgoing calls --------------------------------------------------------------------------

    def call(self, nid, function, *parameters):
        proxy = ServerProxy(f"http://{nid}/RPC2", transport=_SourceAddressTransport(self.address))
        return getattr(proxy, function)(self.port, *parameters)

    def connect(self, nid, feeds):
        """Become a peer; return the other node's subscription set, empty if it declines."""
        return dict(self.call(nid, "connect", [[feed, 0] for feed in feeds])["subset"])

    def offer(self, nid, payload):
        """Offer a bundle; return whether it was accepted."""
        if self.call(nid, "check_did", payload["did"]) == "seen":
            return False
        return self.call(nid, "put_entries", payload) == "ok"
