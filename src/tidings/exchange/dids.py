"""Bundles by what is in them (their dids): those seen of late, and those that somebody has announced and not yet sent."""

from tidings.exchange.values import Nid

#: A bundle that was announced is there after so long.
PROMISE_S = 60.0


class Dids:
    """Dids, each as long as it matters."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.seen: dict[bytes, None] = {}
        self._promised: dict[bytes, tuple[float, Nid]] = {}  # until when somebody is to bring it, in that order

    def see(self, did: bytes) -> None:
        self.seen[did] = None
        if len(self.seen) > self._most:
            del self.seen[next(iter(self.seen))]

    def is_expected(self, did: bytes, asker: Nid, now: float, *, believe: bool) -> bool:
        """Whether somebody else will bring it; if not, the asker will, if it is to be believed."""
        until, who = self._promised.get(did, (now, ""))
        if until > now and who != asker:
            return True
        if believe:
            self._promised[did] = (now + PROMISE_S, asker)
        return False

    def arrived(self, did: bytes) -> None:
        self._promised.pop(did, None)

    def broken(self, now: float) -> list[Nid]:
        """Who should have brought something by now, and did not."""
        late = []
        while self._promised:
            did, (until, who) = next(iter(self._promised.items()))
            if until > now:
                break
            del self._promised[did]
            late.append(who)
        return late
