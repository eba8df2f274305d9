"""XML element that announces exchange nodes in output feeds (FeedEx sect. 3.1).

`tidings.parse` reads the announcements of other feeds.
"""

from collections.abc import Iterable
from typing import Any

from lxml import etree  # type: ignore[import-untyped]  # has no types

from tidings.exchange.protocol import Nid

NAMESPACE = "urn:tidings:exchange"
MAX_PEERS = 30


def peers_element(nids: Iterable[Nid]) -> Any:
    """Return the `exchange:peers` element for an output feed, or None if there are no peers."""
    peers = etree.Element(f"{{{NAMESPACE}}}peers", nsmap={"exchange": NAMESPACE})
    for nid in list(nids)[:MAX_PEERS]:
        etree.SubElement(peers, f"{{{NAMESPACE}}}peer").text = nid
    return peers if len(peers) else None
