"""Duplicate suppression for bundles, by content hash (did): those seen and those promised."""

from tidings.exchange.protocol import Nid

#: Time within which a peer must send a bundle that it announced with `check_did`.
PROMISE_TIMEOUT_S = 60.0


class SeenBundles:
    """Recently seen dids (a bounded FIFO) and dids that a peer has announced but not yet sent."""

    def __init__(self, limit: int) -> None:
        """``limit`` is the maximum number of seen dids that are remembered."""
        self._limit = limit
        self.seen: dict[bytes, None] = {}
        self._promised: dict[bytes, tuple[float, Nid]] = {}  # (deadline, peer), oldest first

    def add(self, did: bytes) -> None:
        """Remember a did as seen."""
        self.seen[did] = None
        if len(self.seen) > self._limit:
            del self.seen[next(iter(self.seen))]

    def is_promised(self, did: bytes, requester: Nid, now: float, *, accept_promise: bool) -> bool:
        """Return whether another peer has promised the bundle.

        If not, and with ``accept_promise``, the requester's announcement becomes the promise.
        """
        deadline, peer = self._promised.get(did, (now, ""))
        if deadline > now and peer != requester:
            return True
        if accept_promise:
            self._promised[did] = (now + PROMISE_TIMEOUT_S, requester)
        return False

    def on_received(self, did: bytes) -> None:
        """Mark a promise as kept."""
        self._promised.pop(did, None)

    def pop_broken_promises(self, now: float) -> list[Nid]:
        """Remove expired promises and return the peers that did not keep them."""
        late = []
        while self._promised:
            did, (deadline, peer) = next(iter(self._promised.items()))
            if deadline > now:
                break
            del self._promised[did]
            late.append(peer)
        return late
