"""Peers announced by a feed's document (FeedEx 3.1): who reads a feed finds others who do. `parse` reads them."""

from collections.abc import Iterable
from typing import Any

from lxml import etree  # type: ignore[import-untyped]  # has no types

from tidings.exchange.protocol import Nid

NAMESPACE = "urn:tidings:exchange"
MAX_PEERS = 30


def peers_element(nids: Iterable[Nid]) -> Any:
    """The element that an output feed carries; None where there are no peers."""
    peers = etree.Element(f"{{{NAMESPACE}}}peers", nsmap={"exchange": NAMESPACE})
    for nid in list(nids)[:MAX_PEERS]:
        etree.SubElement(peers, f"{{{NAMESPACE}}}peer").text = nid
    return peers if len(peers) else None
