"""tidings: a feed aggregator that knows when to look."""

__version__ = "0.1.0"
