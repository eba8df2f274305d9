"""Import of feed lists (OPML or plain text), and adding a feed by URL with autodiscovery.

All feeds of a list are stored in one transaction; skipped rows are reported with their line
numbers. The first polls of a large list are spread over time; those of a small list are due
immediately.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from tidings.aggregator.aggregator import FEEDS_CHANNEL, Aggregator
from tidings.errors import TidingsError, UsageError
from tidings.fetch.discovery import discover
from tidings.fetch.models import Problem as FetchError
from tidings.i18n import _, n_
from tidings.parse.autodiscovery import FeedLink
from tidings.parse.opml import Outline, RowError, parse_opml, parse_url_list
from tidings.store import Store, folders
from tidings.store.feed_models import DEFAULT_USER_ID, NewSubscription, SubscribeResult

#: Number of feeds of a list whose first poll is due immediately.
IMMEDIATE_POLLS = 100
#: Time in seconds between the first polls of all further feeds, which is ten thousand polls in ten
#: minutes. It limits the load on this machine and its connection. The fetcher spaces requests to
#: one host in any case.
FIRST_POLL_SPACING_S = 0.06


class AddError(TidingsError):
    """Error raised when no feed was found at a URL."""


class ImportReport(Struct, frozen=True):
    """New, known and skipped feeds of an import or of a dry run."""

    new: tuple[Outline, ...] = ()
    known: tuple[Outline, ...] = ()  #: feeds to which the user was already subscribed
    problems: tuple[RowError, ...] = ()  #: skipped rows in the order of their lines

    @property
    def summary(self) -> str:
        return ", ".join(
            (
                n_("%(num)s new feed", "%(num)s new feeds", len(self.new)),
                _("%(count)s already subscribed", count=len(self.known)),
                n_("%(num)s line skipped", "%(num)s lines skipped", len(self.problems)),
            )
        )


async def import_feeds(
    store: Store,
    body: bytes,
    clock: Callable[[], float],
    *,
    dry_run: bool = False,
    user_id: int = DEFAULT_USER_ID,
) -> ImportReport:
    """Subscribe a user to all feeds of a list in one transaction.

    ``body`` is OPML, or text with one URL per line. With ``dry_run``, nothing is stored. Raises a
    `TidingsError` if the list cannot be read or stored.
    """
    start = body[:1000].lstrip(b"\xef\xbb\xbf \t\r\n")
    outlines, problems = parse_opml(body) if start.startswith(b"<") else parse_url_list(body)
    now = clock()
    if dry_run:
        new_flags = [await store.feed(outline.url) is None for outline in outlines]
    else:
        new_subscriptions = [
            NewSubscription(
                o.url,
                now + max(i - IMMEDIATE_POLLS, 0) * FIRST_POLL_SPACING_S,
                o.title,
                o.folder,
                o.site_url,
            )
            for i, o in enumerate(outlines)
        ]
        new_flags = [
            added.subscription_new
            for added in await store.add_subscriptions(new_subscriptions, user_id)
        ]
        await store.notify(FEEDS_CHANNEL)
    new = tuple(outline for outline, is_new in zip(outlines, new_flags, strict=True) if is_new)
    known = tuple(
        outline for outline, is_new in zip(outlines, new_flags, strict=True) if not is_new
    )
    return ImportReport(new, known, tuple(problems))


class AddResult(Struct, frozen=True):
    """Result of adding a URL, which is a subscription or a choice of several feeds.

    ``added`` is None if there are several feeds to choose from.
    """

    added: SubscribeResult | None = None
    choices: tuple[FeedLink, ...] = ()
    subscribed: dict[str, int] = {}  #: feed ids of choices that are already subscribed, by URL


async def add_feed(
    aggregator: Aggregator,
    url: str,
    clock: Callable[[], float],
    *,
    title: str = "",
    folder: str = "",
    user_id: int = DEFAULT_USER_ID,
) -> AddResult:
    """Subscribe a user to the feed at a URL, or to the feed of the website at that URL.

    The feed of a website is found by autodiscovery. The URL of a feed costs one request, whose
    response is used as the first poll. Raises `UsageError` for an invalid URL and `AddError` if no
    feed is found.
    """
    store = aggregator.store
    document = None
    if await store.feed(url) is None:
        discovery = await discover(aggregator.fetcher, url)
        await aggregator.scheduler.consume_budget(discovery.requests, clock(), outside_polls=True)
        if discovery.error is not None:
            response_text = (
                f": {discovery.error.response_text}" if discovery.error.response_text else ""
            )
            problem = UsageError if discovery.error.kind == FetchError.URL else AddError
            raise problem(f"{url}: {discovery.error.message}{response_text}")
        if len(discovery.feeds) > 1:
            return AddResult(
                choices=discovery.feeds,
                subscribed=await _subscribed_feeds(store, discovery.feeds, user_id),
            )
        url, document = discovery.feeds[0].url, discovery.document
    (added,) = await store.add_subscriptions(
        [NewSubscription(url, clock(), title, folder)], user_id
    )
    if document is not None and added.feed_new:
        await aggregator.handle_fetch_result(added.feed_id, document)
    elif added.feed_new:  # found through its website, so it has not been fetched yet
        await aggregator.poll([added.feed_id])
    else:
        aggregator.wake()
        await store.notify(FEEDS_CHANNEL)
    return AddResult(added)


async def _subscribed_feeds(
    store: Store, choices: Iterable[FeedLink], user_id: int
) -> dict[str, int]:
    """Return the ids of the choices to which the user is already subscribed, by URL.

    A choice also matches by the former URL of a feed that has moved.
    """
    known = {
        choice.url: feed.id
        for choice in choices
        if (feed := await store.feed(choice.url)) is not None
    }
    subscribed_ids = {
        subscription.feed.id
        for subscription in await store.read(
            folders.subscriptions, user_id, list(known.values()), None
        )
    }
    return {url: feed_id for url, feed_id in known.items() if feed_id in subscribed_ids}
