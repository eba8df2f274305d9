"""The demo world: a miniature blogosphere on loopback, and all of tidings in it, at up to a thousand times the speed of life.

`world` says who publishes what and when, `voices` how it reads, `publishers` serves it over real HTTP, `clock` is the time that
all of them keep, `demo` puts two services on it, one under `price` and one under `uniform`, and `screen` shows how they do.
"""

from importlib.util import find_spec

from tidings.errors import MissingExtra

if find_spec("aiohttp") is None:
    raise MissingExtra("aiohttp", "demo", "the demo world")
