"""From what a person types to a feed: a feed's own address, a page that names its feeds, or a bare name such as `example.org`.

What a person waits for may cost a few requests, each of them once: the address itself, and if that is a page without any
word of a feed, a handful of customary paths. What was fetched on the way is handed on, so that adding a feed by its own
address is a single request.
"""

from msgspec import Struct
from msgspec.structs import replace

from tidings.fetch.fetcher import Fetcher
from tidings.fetch.models import FetchProblem, FetchRequest, FetchResult, Problem
from tidings.fetch.urls import parse_url, with_userinfo_of
from tidings.parse import ParseError, parse
from tidings.parse.autodiscovery import FeedLink, common_paths, find_feeds, looks_like_feed

#: A name that has no https is asked again without it only after failures of these kinds: an answer is an answer.
HTTPS_UNAVAILABLE = frozenset({Problem.CONNECT, Problem.TLS, Problem.TIMEOUT})


class Discovery(Struct, frozen=True):
    """What was found at an address: one feed, several to choose from, or none and why."""

    feeds: tuple[FeedLink, ...] = ()
    document: FetchResult | None = (
        None  #: the feed's first document, where the address was the feed itself
    )
    error: FetchProblem | None = None
    requests: int = 0


async def discover(fetcher: Fetcher, url: str, *, guess: bool = True) -> Discovery:
    """Find the feeds at `url`. With `guess`, a page that names none has a few customary paths tried."""
    requested_url, result, requests = await _fetch_page(fetcher, url.strip())
    if result.error is not None or result.body is None:
        problem = result.error or FetchProblem(Problem.BROKEN, "the server sent no document")
        return Discovery(error=problem, requests=requests)
    if looks_like_feed(result.body):
        return Discovery((_found_feed(requested_url, result),), result, None, requests)
    found = find_feeds(result.body, result.url)
    if found:
        return Discovery(
            tuple(replace(one, url=_with_credentials(requested_url, one.url)) for one in found),
            None,
            None,
            requests,
        )
    if _is_parsable(result):
        return Discovery((_found_feed(requested_url, result),), result, None, requests)
    for path in (
        _with_credentials(requested_url, one) for one in (common_paths(result.url) if guess else ())
    ):
        guessed = await fetcher.fetch(FetchRequest(path))
        requests += guessed.requests
        if guessed.body is not None and looks_like_feed(guessed.body):
            return Discovery((_found_feed(path, guessed),), guessed, None, requests)
        if guessed.rate_limited or (
            guessed.error is not None and guessed.error.kind is not Problem.STATUS
        ):
            break  # no guess is worth a publisher's patience
    problem = FetchProblem(
        Problem.UNREADABLE,
        "this is not a feed, and names none; give the address of the feed itself",
    )
    return Discovery(error=problem, requests=requests)


async def _fetch_page(fetcher: Fetcher, url: str) -> tuple[str, FetchResult, int]:
    """What was asked in the end, the page behind it, and the requests; a bare name is tried with https, then http.

    `feed:` is an old way to say http.
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


def _with_credentials(requested_url: str, found: str) -> str:
    """What is behind the same door as the page opens with the same name and password."""
    try:
        return (
            str(with_userinfo_of(parse_url(requested_url), parse_url(found)))
            if "@" in requested_url
            else found
        )
    except ValueError:
        return found


def _is_parsable(result: FetchResult) -> bool:
    """Whether it is a feed, though it does not begin like one: warnings stand before it, or it is in an old encoding."""
    try:
        parse(result.body or b"", content_type=result.content_type)
    except ParseError:
        return False
    return True


def _found_feed(requested_url: str, result: FetchResult) -> FeedLink:
    """A feed by its own address: where it has moved for good, else as it was asked; a passing redirect is not adopted."""
    body = (result.body or b"")[:2000]
    kind = (
        "json"
        if body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
        else "atom"
        if b"<feed" in body
        else "rss"
    )
    return FeedLink(result.moved_to or str(parse_url(requested_url)), "", kind)  # type: ignore[arg-type]  # one of its three words
