"""Poll notices, with which a node reports its polls so that peers can poll the feeds later.

Trust in notices is limited. Every node still polls each feed now and then. If that poll finds a
post that was published before the poll that a peer reported, the notice was false.
"""

from collections.abc import Sequence

from tidings.document import Entry
from tidings.exchange.peers import Interests
from tidings.exchange.protocol import Call, Effect, Nid, NodeSettings, PeerNotice, PeerPolled
from tidings.exchange.trust import ClaimLedger

#: Minimum interval in seconds between two notices for one feed.
MIN_NOTICE_INTERVAL_S = 30.0
#: Maximum age in seconds of this node's last poll of a feed. If it is older, notices are ignored.
MAX_OWN_POLL_AGE_S = 14 * 86400.0
#: Maximum time in seconds that a post needs to reach this node after a peer has found it.
PROPAGATION_S = 300.0


class PeerNotices:
    """Time of the last known poll of each feed, and notices that are not sent yet."""

    def __init__(
        self,
        settings: NodeSettings,
        interests: Interests,
        ledger: ClaimLedger,
        effects: list[Effect],
    ) -> None:
        """Create an empty record. Calls to peers and `PeerPolled` are appended to ``effects``."""
        self._settings, self._interests = settings, interests
        self._ledger, self._effects = ledger, effects
        self._last_poll_at: dict[str, float] = {}
        self._notice_senders: dict[str, tuple[Nid, float]] = {}
        self._pending: dict[str, tuple[float, Nid]] = {}

    def record_poll(self, feed: str, at: float, sender: Nid = "", now: float = 0.0) -> None:
        """Record a poll of a feed at the time ``at``.

        An empty ``sender`` means a poll by this node; otherwise the peer ``sender`` has reported
        the poll.
        """
        if not self._settings.notices or not self._interests.is_direct(feed):
            return
        if at < self._last_poll_at.get(feed, float("-inf")) + MIN_NOTICE_INTERVAL_S:
            return
        if sender:
            own_poll_at = self._ledger.last_document_at(feed)
            if (
                own_poll_at is None
                or now - own_poll_at > MAX_OWN_POLL_AGE_S
                or not self._interests.peers[sender].are_notices_trusted
            ):
                return
            self._notice_senders[feed] = (sender, at)
            self._effects.append(PeerPolled(PeerNotice(feed, at), sender))
        self._last_poll_at[feed] = at
        self._pending[feed] = (at, sender)

    def send_pending(self) -> None:
        """Send the pending notices to all peers that read the feeds themselves."""
        if not self._pending:
            return
        pending, self._pending = self._pending, {}
        for peer in self._interests.peers.values():
            notices = [
                PeerNotice(feed, at)
                for feed, (at, sender) in pending.items()
                if sender != peer.nid and peer.hops.get(feed) == 0
            ]
            if notices:
                self._effects.append(Call(peer.nid, "put_looks", notices))

    def check_sender(self, feed: str, new: Sequence[Entry], now: float) -> None:
        """Confirm or refute the last notice for a feed with a poll by this node.

        ``new`` are the new entries of that poll.
        """
        nid, at = self._notice_senders.pop(feed, ("", 0.0))
        sender = self._interests.peers.get(nid)
        if sender is None or now - at < PROPAGATION_S:
            return
        if any(
            entry.published is not None and entry.published < at - PROPAGATION_S for entry in new
        ):
            sender.notices_refuted += 1
        else:
            sender.notices_confirmed += 1
