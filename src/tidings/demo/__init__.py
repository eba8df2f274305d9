"""The demo world: a miniature blogosphere on loopback, and all of tidings in it, at up to a thousand times the speed of life.

`world` says who publishes what and when, `voices` how it reads, `publishers` serves it over real HTTP, `clock` is the time that
all of them keep, `demo` puts services on it, one under `price` and one under `uniform`, and `screen` shows how they do.
"""
