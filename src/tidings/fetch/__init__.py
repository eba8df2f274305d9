"""HTTP fetching of feeds with conditional requests, rate limits and SSRF protection.

`Fetcher.fetch` sends a request and returns a value. The rules that it applies are pure functions
without network: `validators` (ETag, Last-Modified), `freshness` (Cache-Control, Retry-After) and
`error_policy` (backoff). `discovery` finds the feeds of a site.
"""

from tidings.fetch.fetcher import Fetcher
from tidings.fetch.models import FetchProblem, FetchRequest, FetchResult, FetchSettings, Problem

__all__ = ["FetchProblem", "FetchRequest", "FetchResult", "FetchSettings", "Fetcher", "Problem"]
