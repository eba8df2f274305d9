"""Feed parser: RSS, Atom and JSON Feed to documents with entries, links and hints.

Pure functions, without I/O and clock. `parse` parses a feed. Other modules: `autodiscovery` finds
the feeds of a web page, `opml` reads and writes lists of feeds, `sanitize` makes HTML safe.
"""

from tidings.parse.entry_identity import unique_entries
from tidings.parse.parser import MAX_BYTES, ParseError, parse

__all__ = ["MAX_BYTES", "ParseError", "parse", "unique_entries"]
