"""Peers announced by a feed's document (FeedEx 3.1): who reads a feed finds others who do.

``<exchange:peers xmlns:exchange="urn:tidings:exchange"><exchange:peer>203.0.113.5:8035</exchange:peer></exchange:peers>``
"""

import re
from collections.abc import Iterable

from tidings.errors import TidingsError
from tidings.exchange.messages import read_nid
from tidings.exchange.values import Nid

NAMESPACE = "urn:tidings:exchange"
MOST_PEERS = 30

_PREFIX = re.compile(rb"xmlns:([A-Za-z_][\w.-]{0,30})\s*=\s*[\"']urn:tidings:exchange[\"']")


def peers_element(nids: Iterable[Nid]) -> str:
    """The element that an output feed carries; nothing where there are no peers."""
    peers = "".join(f"<exchange:peer>{nid}</exchange:peer>" for nid in list(nids)[:MOST_PEERS])
    return f'<exchange:peers xmlns:exchange="{NAMESPACE}">{peers}</exchange:peers>' if peers else ""


def read_peers(body: bytes) -> list[Nid]:
    """The peers that a feed's document names. Looked for in its bytes: hardly any document has them, and most are large."""
    prefix = _PREFIX.search(body)
    if prefix is None:
        return []
    name = re.escape(prefix[1])
    found = []
    for told in re.findall(rb"<" + name + rb":peer>\s*([0-9A-Fa-f.:\[\]]{3,60})\s*</" + name + rb":peer>", body)[:MOST_PEERS]:
        try:
            found.append(read_nid(told.decode()))
        except TidingsError:
            continue
    return found
