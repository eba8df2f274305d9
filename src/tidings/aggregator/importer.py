"""From a list of feeds (OPML, plain text) or what a person types to subscriptions; every row that is passed over is reported.

All rows of a list are stored in one transaction. The first polls of a large list are spread over time by each feed's place in
it, so that no herd forms; a small one is polled at once.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from tidings.aggregator.aggregator import FEEDS_CHANNEL, Aggregator
from tidings.errors import TidingsError, UsageError
from tidings.fetch.discovery import discover
from tidings.fetch.models import Problem as FetchError
from tidings.formatting import count
from tidings.parse.autodiscovery import FeedLink
from tidings.parse.opml import Outline, RowError, parse_opml, parse_url_list
from tidings.store import Store, folders
from tidings.store.feed_models import DEFAULT_USER_ID, NewSubscription, SubscribeResult

#: So many feeds of a list are first polled at once, the others this far apart: ten thousand within ten minutes. Their hosts are
#: spaced by the fetcher in any case; this keeps our own machine and line usable meanwhile.
IMMEDIATE_POLLS = 100
FIRST_POLL_SPACING_S = 0.06


class AddError(TidingsError):
    """There is no feed at an address; says why."""


class ImportReport(Struct, frozen=True):
    """What an import did, or would do."""

    new: tuple[Outline, ...] = ()
    known: tuple[Outline, ...] = ()  #: subscribed to already
    problems: tuple[RowError, ...] = ()  #: rows that were passed over, by line

    @property
    def summary(self) -> str:
        return f"{count(len(self.new), 'new feed')}, {len(self.known)} known already, {count(len(self.problems), 'bad row')}"


async def import_feeds(
    store: Store,
    body: bytes,
    clock: Callable[[], float],
    *,
    dry_run: bool = False,
    user_id: int = DEFAULT_USER_ID,
) -> ImportReport:
    """Subscribe to all feeds of a list, or to none of them if it cannot be stored."""
    start = body[:1000].lstrip(b"\xef\xbb\xbf \t\r\n")
    outlines, problems = parse_opml(body) if start.startswith(b"<") else parse_url_list(body)
    now = clock()
    if dry_run:
        new_flags = [await store.feed(outline.url) is None for outline in outlines]
    else:
        wanted = [
            NewSubscription(
                o.url,
                now + max(i - IMMEDIATE_POLLS, 0) * FIRST_POLL_SPACING_S,
                o.title,
                o.folder,
                o.site_url,
            )
            for i, o in enumerate(outlines)
        ]
        new_flags = [added.subscription_new for added in await store.add(wanted, user_id)]
        await store.notify(FEEDS_CHANNEL)
    new = tuple(outline for outline, is_new in zip(outlines, new_flags, strict=True) if is_new)
    known = tuple(
        outline for outline, is_new in zip(outlines, new_flags, strict=True) if not is_new
    )
    return ImportReport(new, known, tuple(problems))


class AddResult(Struct, frozen=True):
    """What became of an address that a person gave: a subscription, or several feeds to choose from."""

    added: SubscribeResult | None = None
    choices: tuple[FeedLink, ...] = ()
    subscribed: dict[
        str, int
    ] = {}  #: the feeds of those choices that are followed already, by address


async def add_feed(
    aggregator: Aggregator,
    url: str,
    clock: Callable[[], float],
    *,
    title: str = "",
    folder: str = "",
    user_id: int = DEFAULT_USER_ID,
) -> AddResult:
    """Subscribe to the feed at an address, or of the site there. Its own address costs one request, whose document is used."""
    store = aggregator.store
    document = None
    if await store.feed(url) is None:
        found = await discover(aggregator.fetcher, url)
        await aggregator.scheduler.consume_budget(found.requests, clock(), outside_polls=True)
        if found.error is not None:
            response_text = f": {found.error.response_text}" if found.error.response_text else ""
            problem = UsageError if found.error.kind == FetchError.URL else AddError
            raise problem(f"{url}: {found.error.message}{response_text}")
        if len(found.feeds) > 1:
            return AddResult(
                choices=found.feeds, subscribed=await _subscribed_feeds(store, found.feeds, user_id)
            )
        url, document = found.feeds[0].url, found.document
    (added,) = await store.add([NewSubscription(url, clock(), title, folder)], user_id)
    if document is not None and added.feed_new:
        await aggregator.handle_fetch_result(added.feed_id, document)
    elif added.feed_new:  # its site was asked, which said where it is
        await aggregator.poll([added.feed_id])
    else:
        aggregator.wake()
        await store.notify(FEEDS_CHANNEL)
    return AddResult(added)


async def _subscribed_feeds(
    store: Store, choices: Iterable[FeedLink], user_id: int
) -> dict[str, int]:
    """Which of these the user has, by the addresses that the site gives them; former ones count."""
    known = {
        choice.url: feed.id
        for choice in choices
        if (feed := await store.feed(choice.url)) is not None
    }
    own = {
        subscription.feed.id
        for subscription in await store.read(
            folders.subscriptions, user_id, list(known.values()), None
        )
    }
    return {url: feed_id for url, feed_id in known.items() if feed_id in own}
