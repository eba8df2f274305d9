"""HTTP fetching of feeds: conditional requests, rate limits, backoff and SSRF protection.

`Fetcher.fetch` sends a request and returns a value. The rules around it are pure and need no
network: `validators` (ETag, Last-Modified), `freshness` (Cache-Control, Retry-After) and
`error_policy` (backoff). `discovery` finds the feeds of a site.
"""

from tidings.fetch.fetcher import Fetcher
from tidings.fetch.models import FetchProblem, FetchRequest, FetchResult, FetchSettings, Problem

__all__ = ["FetchProblem", "FetchRequest", "FetchResult", "FetchSettings", "Fetcher", "Problem"]
