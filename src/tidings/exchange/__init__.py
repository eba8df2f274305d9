"""Exchange of entries between nodes (FeedEx protocol), so that one fetch serves many nodes.

The core (`node`) has no I/O: its methods take messages and times and return effects. The same core
runs over XML-RPC (`transport`) and on a virtual clock in the lab.
"""
