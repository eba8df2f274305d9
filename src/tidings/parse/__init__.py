"""Bytes of a document in, entries, links and hints out. Pure: no I/O, no clock.

`parse` reads a feed's document. Beside it: `html` finds the feeds that a page names, `opml` reads and writes lists of feeds,
`sanitise` makes published HTML safe to show.
"""

from .entry_identity import unique_entries
from .parser import MAX_BYTES, ParseError, parse

__all__ = ["MAX_BYTES", "ParseError", "unique_entries", "parse"]
