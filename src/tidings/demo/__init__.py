"""Demo in which tidings services poll simulated publishers, up to 1000 times real time.

`simulated_publishers` defines the publishers and their posting times, `text_generator` writes their
posts, `publisher_server` serves them over HTTP, `clock` is the accelerated clock that all parts
share, `services` starts the tidings services (one with the policy `price`, one with `uniform`, and
nodes of the peer exchange), `demo` computes their delays, `dashboard` shows them, and `run` starts
a complete demo.
"""
