"""Notices: who has looked at a feed tells it, so that others need not look so soon.

Nobody is believed for ever: an own look is due now and then, and a post that it finds, although somebody said to have looked
after it was there, shows that nobody did.
"""

from collections.abc import Sequence

from tidings.document import Entry
from tidings.exchange.peers import Interests
from tidings.exchange.protocol import Call, Effect, Nid, NodeSettings, PeerNotice, PeerPolled
from tidings.exchange.trust import ClaimLedger

#: Notices go out so often, and only if they tell so much; an own look is due after so long, whatever others say.
MIN_NOTICE_INTERVAL_S = 30.0
MAX_OWN_POLL_AGE_S = 14 * 86400.0
#: A post is on its way to us for no longer than this after who found it has told that it looked.
PROPAGATION_S = 300.0


class PeerNotices:
    """The last look at each feed, whose it was, and what neighbours are to be told of it by ``out``."""

    def __init__(
        self,
        settings: NodeSettings,
        interests: Interests,
        ledger: ClaimLedger,
        effects: list[Effect],
    ) -> None:
        self._settings, self._interests, self._ledger, self._effects = (
            settings,
            interests,
            ledger,
            effects,
        )
        self._at: dict[str, float] = {}
        self._notice_senders: dict[str, tuple[Nid, float]] = {}
        self._pending: dict[str, tuple[float, Nid]] = {}

    def record_poll(self, feed: str, at: float, sender: Nid = "", now: float = 0.0) -> None:
        """Somebody has looked; with no sender we did."""
        if not self._settings.notices or not self._interests.is_direct(feed):
            return
        if at < self._at.get(feed, float("-inf")) + MIN_NOTICE_INTERVAL_S:
            return
        if sender:
            own = self._ledger.last_document_at(feed)
            if (
                own is None
                or now - own > MAX_OWN_POLL_AGE_S
                or not self._interests.peers[sender].are_notices_trusted
            ):
                return
            self._notice_senders[feed] = (sender, at)
            self._effects.append(PeerPolled(PeerNotice(feed, at), sender))
        self._at[feed] = at
        self._pending[feed] = (at, sender)

    def send_pending(self) -> None:
        if not self._pending:
            return
        pending, self._pending = self._pending, {}
        for peer in self._interests.peers.values():
            notices = [
                PeerNotice(f, at)
                for f, (at, who) in pending.items()
                if who != peer.nid and peer.hops.get(f) == 0
            ]
            if notices:
                self._effects.append(Call(peer.nid, "put_looks", notices))

    def check_sender(self, feed: str, new: Sequence[Entry], now: float) -> None:
        """What an own look has found ``new`` says about who told of the last."""
        who, at = self._notice_senders.pop(feed, ("", 0.0))
        sender = self._interests.peers.get(who)
        if sender is None or now - at < PROPAGATION_S:
            return
        if any(
            entry.published is not None and entry.published < at - PROPAGATION_S for entry in new
        ):
            sender.notices_refuted += 1
        else:
            sender.notices_confirmed += 1
