"""Bundles by what is in them (their dids): those seen of late, and those that somebody has announced and not yet sent."""

from tidings.exchange.protocol import Nid

#: A bundle that was announced is there after so long.
PROMISE_TIMEOUT_S = 60.0


class SeenBundles:
    """Dids, each as long as it matters."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.seen: dict[bytes, None] = {}
        self._promised: dict[
            bytes, tuple[float, Nid]
        ] = {}  # until when somebody is to bring it, in that order

    def add(self, did: bytes) -> None:
        self.seen[did] = None
        if len(self.seen) > self._limit:
            del self.seen[next(iter(self.seen))]

    def is_promised(self, did: bytes, requester: Nid, now: float, *, accept_promise: bool) -> bool:
        """Whether somebody else will bring it; if not, the asker will, if it is to be believed."""
        until, who = self._promised.get(did, (now, ""))
        if until > now and who != requester:
            return True
        if accept_promise:
            self._promised[did] = (now + PROMISE_TIMEOUT_S, requester)
        return False

    def on_received(self, did: bytes) -> None:
        self._promised.pop(did, None)

    def pop_broken_promises(self, now: float) -> list[Nid]:
        """Who should have brought something by now, and did not."""
        late = []
        while self._promised:
            did, (until, who) = next(iter(self._promised.items()))
            if until > now:
                break
            del self._promised[did]
            late.append(who)
        return late
