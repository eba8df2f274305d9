"""Bytes of a document in, entries, links and hints out. Pure: no I/O, no clock."""
