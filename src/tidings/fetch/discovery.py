"""Discovery of the feeds at a URL that a user enters (autodiscovery, common paths).

The URL can be a feed, a page that links to its feeds, or a bare host name such as `example.org`.
Discovery costs few requests: the URL itself and, if that is a page without feed links, a few common
paths. The fetched document is returned, so that adding a feed by its URL takes a single request.
"""

from msgspec import Struct
from msgspec.structs import replace

from tidings.fetch.fetcher import Fetcher
from tidings.fetch.models import FetchProblem, FetchRequest, FetchResult, Problem
from tidings.fetch.urls import parse_url, with_userinfo_of
from tidings.i18n import _
from tidings.parse import ParseError, parse
from tidings.parse.autodiscovery import FeedLink, common_paths, find_feeds, looks_like_feed

#: Kinds of failure with https after which a bare host name is tried with http.
HTTPS_UNAVAILABLE = frozenset({Problem.CONNECT, Problem.TLS, Problem.TIMEOUT})


class Discovery(Struct, frozen=True):
    """Feeds found at a URL, or the error if there are none."""

    feeds: tuple[FeedLink, ...] = ()
    document: FetchResult | None = None  #: fetched document, if the URL was a feed
    error: FetchProblem | None = None
    requests: int = 0  #: number of HTTP requests sent


async def discover(fetcher: Fetcher, url: str, *, guess: bool = True) -> Discovery:
    """Return the feeds at ``url``. Errors are returned in the result.

    With ``guess``, common paths are tried if the page links to no feed.
    """
    requested_url, result, requests = await _fetch_page(fetcher, url.strip())
    if result.error is not None or result.body is None:
        problem = result.error or FetchProblem(Problem.BROKEN, _("the server sent no document"))
        return Discovery(error=problem, requests=requests)
    if looks_like_feed(result.body):
        return Discovery((_link_of_fetched_feed(requested_url, result),), result, None, requests)
    links = find_feeds(result.body, result.url)
    if links:
        return Discovery(
            tuple(replace(link, url=_with_credentials(requested_url, link.url)) for link in links),
            None,
            None,
            requests,
        )
    if _is_parsable(result):
        return Discovery((_link_of_fetched_feed(requested_url, result),), result, None, requests)
    for candidate in common_paths(result.url) if guess else ():
        guessed_url = _with_credentials(requested_url, candidate)
        guessed = await fetcher.fetch(FetchRequest(guessed_url))
        requests += guessed.requests
        if guessed.body is not None and looks_like_feed(guessed.body):
            return Discovery(
                (_link_of_fetched_feed(guessed_url, guessed),), guessed, None, requests
            )
        if guessed.rate_limited or (
            guessed.error is not None and guessed.error.kind is not Problem.STATUS
        ):
            break  # do not send more guesses to a server that limits requests or fails
    problem = FetchProblem(
        Problem.UNREADABLE,
        _("no feed found at this address; paste the URL of the feed itself"),
    )
    return Discovery(error=problem, requests=requests)


async def _fetch_page(fetcher: Fetcher, url: str) -> tuple[str, FetchResult, int]:
    """Fetch a page and return the requested URL, the result and the number of requests.

    A bare host name is tried with https, then with http. The old scheme `feed:` is removed.
    """
    if url.lower().startswith("feed:"):
        url = url[5:]
    url = url.removeprefix("//")
    if "://" in url.partition("?")[0]:
        result = await fetcher.fetch(FetchRequest(url))
        return url, result, result.requests
    secure = await fetcher.fetch(FetchRequest(f"https://{url}"))
    if secure.error is None or secure.error.kind not in HTTPS_UNAVAILABLE:
        return f"https://{url}", secure, secure.requests
    plain = await fetcher.fetch(FetchRequest(f"http://{url}"))
    return f"http://{url}", plain, secure.requests + plain.requests


def _with_credentials(requested_url: str, url: str) -> str:
    """Add the credentials of the requested URL to another URL of the same origin."""
    try:
        return (
            str(with_userinfo_of(parse_url(requested_url), parse_url(url)))
            if "@" in requested_url
            else url
        )
    except ValueError:
        return url


def _is_parsable(result: FetchResult) -> bool:
    """Return whether a document that does not start like a feed can be parsed as a feed.

    Some feeds have PHP warnings before the XML, or an old encoding.
    """
    try:
        parse(result.body or b"", content_type=result.content_type)
    except ParseError:
        return False
    return True


def _link_of_fetched_feed(requested_url: str, result: FetchResult) -> FeedLink:
    """Return the link to a feed that was fetched by its own URL.

    The URL of the link is the target of a permanent redirect if there is one, otherwise the
    requested URL. Targets of temporary redirects are not used.
    """
    body = (result.body or b"")[:2000]
    kind = (
        "json"
        if body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
        else "atom"
        if b"<feed" in body
        else "rss"
    )
    url = result.moved_to or str(parse_url(requested_url))
    return FeedLink(url, "", kind)  # type: ignore[arg-type]  # one of three literals
