"""Parser for RSS, Atom and JSON Feed, which returns documents with entries, links and hints.

All functions are pure: they use no I/O and no clock. `parse` parses a feed, `autodiscovery` finds
the feeds of a web page, `opml` reads and writes lists of feeds, and `sanitize` makes HTML safe.
"""

from tidings.parse.entry_identity import unique_entries
from tidings.parse.parser import MAX_BYTES, ParseError, parse

__all__ = ["MAX_BYTES", "ParseError", "parse", "unique_entries"]
