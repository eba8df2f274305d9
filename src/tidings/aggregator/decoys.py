"""Decoy feeds that hide from peers which feeds have subscribers here.

Decoys are fetched and announced to peers. They are chosen among the feeds of peers and polled at a
fixed interval, with the same politeness rules as all feeds. Their entries are not stored, only
passed on to peers that subscribe to them.
"""

from collections.abc import Callable

from tidings.exchange import messages
from tidings.exchange.node import Node
from tidings.fetch import Fetcher, FetchRequest, FetchResult
from tidings.model import HOUR_S
from tidings.parse import ParseError, parse

#: Interval in seconds between two polls of a decoy feed.
DECOY_INTERVAL_S = 4 * HOUR_S


class Decoys:
    """Poller of up to ``number`` decoy feeds."""

    def __init__(
        self, number: int, node: Node, fetcher: Fetcher, clock: Callable[[], float]
    ) -> None:
        self._number, self._node, self._fetcher, self._clock = number, node, fetcher, clock
        self._next: dict[str, float] = {}
        self._last: dict[str, FetchResult] = {}

    async def poll_due_decoy(self) -> None:
        """Choose decoys until there are enough, and poll one decoy that is due."""
        if not self._number:
            return
        now = self._clock()
        for index, url in enumerate(self._node.choose_decoys(self._number)):
            self._next.setdefault(url, now + DECOY_INTERVAL_S * (index + 1) / self._number)
        due = min(self._next, key=self._next.__getitem__, default=None)
        if due is None or self._next[due] > now:
            return
        self._next[due] = now + DECOY_INTERVAL_S
        last = self._last.get(due)
        request = (
            FetchRequest(due) if last is None else FetchRequest(due, last.validators, last.digest)
        )
        result = self._last[due] = await self._fetcher.fetch(request)
        if result.unchanged:
            self._node.record_unchanged(due, now)
        elif result.body is not None:
            try:
                document = parse(result.body, content_type=result.content_type, url=result.url)
            except ParseError:
                return
            self._node.record_document(due, messages.keep_sendable(document.entries), now)
