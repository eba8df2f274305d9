"""FeedEx between nodes: what neighbours tell each other about feeds, so that one fetch serves many.

The core has no I/O: messages and time in, messages and decisions out. The same core runs over XML-RPC and on a virtual clock.
"""
