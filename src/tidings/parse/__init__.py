"""Bytes of a document in, entries, links and hints out. Pure: no I/O, no clock.

`parse` reads a feed's document. Beside it: `html` finds the feeds that a page names, `opml` reads and writes lists of feeds,
`sanitise` makes published HTML safe to show.
"""

from .entries import each_once
from .reader import MAX_BYTES, ParseError, parse

__all__ = ["MAX_BYTES", "ParseError", "each_once", "parse"]
