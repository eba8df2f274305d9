"""Peer exchange of entries between nodes (FeedEx protocol): one fetch serves many nodes.

The core (`node`) has no I/O: messages and times go in, effects come out. The same core runs over
XML-RPC (`transport`) and on a virtual clock in the lab.
"""
