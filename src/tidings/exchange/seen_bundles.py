"""Duplicate suppression for bundles of entries, by the hash of their contents.

The protocol calls this hash `did`.
"""

from tidings.exchange.protocol import Nid

#: Time in seconds within which a peer must send a bundle that it announced with `check_did`.
PROMISE_TIMEOUT_S = 60.0


class SeenBundles:
    """Content hashes of bundles that were received recently or that a peer has announced.

    The number of received hashes is limited; the oldest are removed first.
    """

    def __init__(self, limit: int) -> None:
        """Create an empty record of at most ``limit`` received content hashes."""
        self._limit = limit
        self.seen: dict[bytes, None] = {}
        self._promised: dict[bytes, tuple[float, Nid]] = {}  # (deadline, peer), oldest first

    def add(self, did: bytes) -> None:
        """Remember the content hash of a bundle as received."""
        self.seen[did] = None
        if len(self.seen) > self._limit:
            del self.seen[next(iter(self.seen))]

    def is_promised(self, did: bytes, requester: Nid, now: float, *, accept_promise: bool) -> bool:
        """Return whether another peer has promised to send the bundle.

        If not, and with ``accept_promise``, the requester's announcement becomes the promise.
        """
        deadline, peer = self._promised.get(did, (now, ""))
        if deadline > now and peer != requester:
            return True
        if accept_promise:
            self._promised[did] = (now + PROMISE_TIMEOUT_S, requester)
        return False

    def on_received(self, did: bytes) -> None:
        """Remove the promise to send a bundle that has arrived."""
        self._promised.pop(did, None)

    def pop_broken_promises(self, now: float) -> list[Nid]:
        """Remove expired promises, and return the peers that did not send the promised bundle."""
        late = []
        while self._promised:
            did, (deadline, peer) = next(iter(self._promised.items()))
            if deadline > now:
                break
            del self._promised[did]
            late.append(peer)
        return late
