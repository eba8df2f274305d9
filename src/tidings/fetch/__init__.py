"""One polite HTTP poll: validators, hints, limits, and a guard against requests to private addresses.

`Fetcher.fetch` asks and answers with a value; the rules around it are pure and need no network:
`validators` (what to send back), `freshness` and `wishes` (when to come back), `outcomes` (what an answer means).
`discovery` finds the feeds of a site.
"""

from tidings.fetch.fetcher import Fetcher
from tidings.fetch.models import FetchProblem, FetchRequest, FetchResult, FetchSettings, Problem

__all__ = ["FetchProblem", "FetchRequest", "FetchResult", "FetchSettings", "Fetcher", "Problem"]
