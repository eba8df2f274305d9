"""Notices: who has looked at a feed tells it, so that others need not look so soon.

Nobody is believed for ever: an own look is due now and then, and a post that it finds, although somebody said to have looked
after it was there, shows that nobody did.
"""

from collections.abc import Sequence

from tidings.document import Entry
from tidings.exchange.neighbours import Interests
from tidings.exchange.trust import Ledger
from tidings.exchange.values import Call, Effect, Look, Looked, Nid, Rules

#: Notices go out so often, and only if they tell so much; an own look is due after so long, whatever others say.
LOOK_STEP_S = 30.0
OWN_LOOK_S = 14 * 86400.0
#: A post is on its way to us for no longer than this after who found it has told that it looked.
ON_ITS_WAY_S = 300.0


class Looks:
    """The last look at each feed, whose it was, and what neighbours are to be told of it by ``out``."""

    def __init__(self, rules: Rules, interests: Interests, ledger: Ledger, out: list[Effect]) -> None:
        self._rules, self._interests, self._ledger, self._out = rules, interests, ledger, out
        self._at: dict[str, float] = {}
        self._teller: dict[str, tuple[Nid, float]] = {}
        self._to_tell: dict[str, tuple[float, Nid]] = {}

    def note(self, feed: str, at: float, sender: Nid = "", now: float = 0.0) -> None:
        """Somebody has looked; with no sender we did."""
        if not self._rules.notices or not self._interests.is_direct(feed):
            return
        if at < self._at.get(feed, float("-inf")) + LOOK_STEP_S:
            return
        if sender:
            own = self._ledger.last_document_at(feed)
            if own is None or now - own > OWN_LOOK_S or not self._interests.neighbours[sender].notices_believed:
                return
            self._teller[feed] = (sender, at)
            self._out.append(Looked(Look(feed, at), sender))
        self._at[feed] = at
        self._to_tell[feed] = (at, sender)

    def tell(self) -> None:
        if not self._to_tell:
            return
        told, self._to_tell = self._to_tell, {}
        for neighbour in self._interests.neighbours.values():
            looks = [Look(f, at) for f, (at, who) in told.items() if who != neighbour.nid and neighbour.hops.get(f) == 0]
            if looks:
                self._out.append(Call(neighbour.nid, "put_looks", looks))

    def judge(self, feed: str, new: Sequence[Entry], now: float) -> None:
        """What an own look has found ``new`` says about who told of the last."""
        who, at = self._teller.pop(feed, ("", 0.0))
        teller = self._interests.neighbours.get(who)
        if teller is None or now - at < ON_ITS_WAY_S:
            return
        if any(entry.published is not None and entry.published < at - ON_ITS_WAY_S for entry in new):
            teller.looks_broken += 1
        else:
            teller.looks_kept += 1
