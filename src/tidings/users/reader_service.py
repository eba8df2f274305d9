"""Operations of one user on subscriptions, entries, tags, saved searches and rules.

The web pages and the three APIs call this class. It enforces access control: ids of other users'
objects raise `NotFound`, and so do entries of feeds to which the user is not subscribed, unless
the user has starred or tagged them.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from msgspec import json
from msgspec.structs import replace

from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.entry_dates import EntryDates
from tidings.aggregator.importer import AddResult, ImportReport, add_feed, import_feeds
from tidings.aggregator.poller import entry_text
from tidings.document import Entry
from tidings.errors import TidingsError, UsageError
from tidings.formatting import duration
from tidings.i18n import _
from tidings.parse.opml import Outline, write_opml
from tidings.parse.sanitize import sanitize_html
from tidings.policy.constraints import OVERFLOW_MIN_S, Limits
from tidings.redaction import redact_password
from tidings.store import (
    Store,
    entry_queries,
    entry_state,
    folders,
    imported_entries,
    ingest,
    insights,
    notifications,
    rules,
    saved_searches,
    users,
)
from tidings.store.feed_models import NewSubscription
from tidings.store.user_models import (
    Delivery,
    Folder,
    Icon,
    IdPage,
    Item,
    Page,
    Priority,
    Rule,
    SavedSearch,
    Statistics,
    Stream,
    Subscription,
    Suggestion,
    Tag,
    Totals,
    User,
)
from tidings.users.errors import AlreadyExists, ArticleUnavailable, NotFound
from tidings.users.events import Event, EventBus, Kind
from tidings.users.full_text import FullTextFetcher

#: Period of the statistics, in days.
STATISTICS_DAYS = 30
DAY_S = 86400.0
#: Number of entries that `flush_history` changes in one transaction.
BATCH_SIZE = 5000


class ReaderService:
    """Operations of ``user``, created for each request.

    ``events`` receives the changes for open pages. Without an aggregator, `subscribe` and
    `full_text` raise an error.
    """

    def __init__(
        self,
        user: User,
        store: Store,
        clock: Callable[[], float],
        events: EventBus | None = None,
        aggregator: Aggregator | None = None,
    ) -> None:
        self.user, self.store, self.aggregator = user, store, aggregator
        self.events = events or EventBus()
        self._clock = clock

    # --- subscriptions ----------------------------------------------------------------------------

    async def subscriptions(
        self, feed_ids: Collection[int] | None = None, folder_ids: Collection[int] | None = None
    ) -> list[Subscription]:
        """Return the subscriptions with unread counts, sorted by folder and title.

        ``feed_ids`` and ``folder_ids`` select subscriptions; folder 0 stands for subscriptions
        without a folder. ``feed.state`` has only titles, times and errors; `subscription` returns
        it completely.
        """
        return await self.store.read(folders.subscriptions, self.user.id, feed_ids, folder_ids)

    async def totals(self) -> Totals:
        """Return the numbers of feeds and entries over all subscriptions of the user."""
        return await self.store.read(folders.totals, self.user.id)

    async def subscription(self, feed_id: int) -> Subscription:
        """Return the user's subscription to a feed; raise `NotFound` if there is none."""
        subscription = await self.store.read(folders.subscription, self.user.id, feed_id)
        if subscription is None:
            raise NotFound(_("you are not subscribed to feed %(id)s", id=feed_id))
        return subscription

    async def titles(self, feed_ids: Iterable[int]) -> dict[int, str]:
        """Return the titles of feeds by id, including unsubscribed feeds of starred entries."""
        return await self.store.read(folders.titles, self.user.id, set(feed_ids))

    async def subscribe(self, url: str, *, title: str = "", folder: str = "") -> AddResult:
        """Subscribe to the feed at a URL, or to the feed of the site at that URL.

        The current entries of the feed are stored as unread before this returns. If the site has
        several feeds, the result has ``choices`` instead of ``added``. Raises `AddError` with the
        reason if there is no feed.
        """
        if self.aggregator is None:
            raise TidingsError(
                _("this process cannot add feeds; use `tidings add` or the running service")
            )
        addition = await add_feed(
            self.aggregator, url, self._clock, title=title, folder=folder, user_id=self.user.id
        )
        if addition.added is not None:
            self._publish_subscriptions(addition.added.feed_id)
            await self._update_weight(addition.added.feed_id)
        return addition

    async def change(
        self,
        feed_id: int,
        *,
        title: str | None = None,
        folder: str | None = None,
        priority: Priority | None = None,
        full_text: bool | None = None,
        min_interval_s: float | None = None,
    ) -> None:
        """Change settings of a subscription; None leaves a setting unchanged.

        An empty ``title`` restores the feed's own title. ``folder`` is a name; the folder is
        created if it does not exist, and an empty name moves the feed out of its folder.
        ``min_interval_s`` is the minimum interval between two polls, 0 for automatic. Raises
        `UsageError` if it is outside of the operator's limits.
        """
        if min_interval_s:
            self.check_min_interval(min_interval_s)
        changes: dict[str, Any] = {
            "title": title,
            "folder": folder,
            "priority": priority,
            "full_text": full_text,
            "min_interval_s": min_interval_s,
        }
        changes = {name: value for name, value in changes.items() if value is not None}
        if not await self.store.write(folders.update_subscription, self.user.id, feed_id, changes):
            raise NotFound(_("you are not subscribed to feed %(id)s", id=feed_id))
        self._publish_subscriptions(feed_id)
        if priority is not None or min_interval_s is not None:
            await self._update_weight(feed_id)

    @property
    def min_interval_bounds_s(self) -> tuple[float, float]:
        """Smallest and largest minimum interval that a user may set, in seconds."""
        limits = Limits() if self.aggregator is None else self.aggregator.scheduler.limits
        return max(limits.min_interval_s, OVERFLOW_MIN_S), limits.max_interval_s

    def check_min_interval(self, seconds: float) -> None:
        """Raise `UsageError` for a minimum interval outside of the operator's limits."""
        least, most = self.min_interval_bounds_s
        if not least <= seconds <= most:
            raise UsageError(
                _(
                    "%(given)s is not allowed as a minimum interval; choose "
                    "automatic, or %(least)s to %(most)s",
                    least=duration(least),
                    most=duration(most),
                    given=duration(seconds),
                )
            )

    async def change_url(self, feed_id: int, url: str) -> int:
        """Replace a subscription by one to another feed URL; return the id of the new feed.

        Raises `AlreadyExists` if the user is already subscribed to that URL.
        """
        old = await self.subscription(feed_id)
        if any(s.feed.url == url for s in await self.subscriptions()):
            raise AlreadyExists(_("you are already subscribed to %(url)s", url=url))
        (added,) = await self.store.add_subscriptions(
            [NewSubscription(url, self._clock(), old.title, old.folder)], self.user.id
        )
        await self.change(added.feed_id, **self._settings_of(old))
        await self.unsubscribe(feed_id)
        return added.feed_id

    def _settings_of(self, old: Subscription) -> dict[str, Any]:
        """Return the settings to copy to a new subscription, within the operator's limits."""
        least, most = self.min_interval_bounds_s
        interval_s = min(max(old.min_interval_s, least), most) if old.min_interval_s else 0.0
        return {"priority": old.priority, "full_text": old.full_text, "min_interval_s": interval_s}

    async def counters(self) -> list[tuple[int, int, int]]:
        """Return (feed id, unread entries, all entries) of each subscription."""
        return await self.store.read(folders.counters, self.user.id)

    async def unsubscribe(self, feed_id: int) -> None:
        """Unsubscribe from a feed without deleting the starred and tagged entries.

        A feed without subscribers is no longer polled. Raises `NotFound` if the user is not
        subscribed.
        """
        if not await self.store.write(folders.unsubscribe, self.user.id, feed_id, self._clock()):
            raise NotFound(_("you are not subscribed to feed %(id)s", id=feed_id))
        self._publish_subscriptions()
        await self._update_weight(feed_id)

    async def restore_subscription(
        self, old: Subscription, unread: Collection[int], unsubscribed_at: float
    ) -> None:
        """Undo `unsubscribe` by restoring title, folder, settings and the unread entries.

        Of the entries received until ``unsubscribed_at`` (epoch seconds), only those in ``unread``
        become unread.
        """
        feed, title = (
            old.feed,
            "" if old.title in (old.feed.state.title, redact_password(old.feed.url)) else old.title,
        )
        await self.store.add_subscriptions(
            [NewSubscription(feed.url, self._clock(), title, old.folder)], self.user.id
        )
        await self.change(feed.id, **self._settings_of(old))
        await self.mark_all_read(Stream(feeds=(feed.id,)), until=unsubscribed_at)
        await self.mark(unread, unread=True)

    async def icon(self, feed_id: int) -> Icon | None:
        return await self.store.read(folders.icon, self.user.id, feed_id)

    async def folders(self) -> list[Folder]:
        """Return the user's folders by name, including empty ones."""
        return await self.store.read(folders.folders, self.user.id)

    async def add_folder(self, name: str) -> Folder:
        """Add an empty folder; raise `AlreadyExists` if the name is in use."""
        name = _normalize_name(name)
        folder_id = await self.store.write(folders.add_folder, self.user.id, name)
        if folder_id is None:
            raise AlreadyExists(_("there is already a folder %(name)s", name=name))
        self._publish_subscriptions()
        return Folder(folder_id, name, 0, 0)

    async def rename_folder(self, folder_id: int, name: str) -> None:
        """Rename a folder; raise `AlreadyExists` if the name is in use."""
        name = _normalize_name(name)
        renamed = await self.store.write(folders.rename_folder, self.user.id, folder_id, name)
        if renamed is None:
            raise AlreadyExists(_("there is already a folder %(name)s", name=name))
        if not renamed:
            raise NotFound(_("there is no folder %(id)s", id=folder_id))
        self._publish_subscriptions()

    async def remove_folder(self, folder_id: int) -> None:
        """Remove a folder; the feeds in it stay subscribed, without a folder."""
        if not await self.store.write(folders.remove_folder, self.user.id, folder_id):
            raise NotFound(_("there is no folder %(id)s", id=folder_id))
        self._publish_subscriptions()

    async def import_opml(self, body: bytes) -> ImportReport:
        """Subscribe to the feeds of an OPML document or of a text with one URL per line.

        Either all feeds are imported or, on an error, none.
        """
        report = await import_feeds(self.store, body, self._clock, user_id=self.user.id)
        if self.aggregator is not None:
            self.aggregator.wake()
        self._publish_subscriptions()
        return report

    async def export_opml(self) -> bytes:
        """Return all subscriptions as an OPML 2.0 document."""
        outlines = [
            Outline(s.feed.url, s.title, s.feed.state.site_url, s.folder)
            for s in await self.subscriptions()
        ]
        return write_opml(outlines, _("Subscriptions of %(name)s", name=self.user.name))

    # --- streams ----------------------------------------------------------------------------------

    async def page(self, stream: Stream, *, limit: int = 50, after: str | None = None) -> Page:
        """Return one page of the entries of a stream (keyset pagination).

        ``after`` is the cursor, the ``next`` of the page before. No entry is skipped or repeated
        if entries arrive or change state between two pages.
        """
        return await self.store.read(entry_queries.page, self.user.id, stream, limit, after)

    async def ids(self, stream: Stream, *, limit: int = 1000, after: str | None = None) -> IdPage:
        """Return one page of entry ids, which costs much less than `page`."""
        return await self.store.read(entry_queries.ids, self.user.id, stream, limit, after)

    async def count(self, stream: Stream) -> int:
        return await self.store.read(entry_queries.count, self.user.id, stream)

    async def items(self, entry_ids: Iterable[int]) -> list[Item]:
        """Return entries by id in the given order, without those that the user may not read."""
        return await self.store.read(entry_queries.items, self.user.id, list(entry_ids))

    async def item(self, entry_id: int) -> Item:
        items = await self.items([entry_id])
        if not items:
            raise NotFound(_("there is no post %(id)s", id=entry_id))
        return items[0]

    async def full_text(self, entry_id: int) -> str:
        """Return the full text of an entry as sanitized HTML, from its web page or the store.

        Raises `ArticleUnavailable` with the reason.
        """
        entry = (await self.item(entry_id)).entry
        if self.aggregator is None:
            raise ArticleUnavailable(
                _("this process cannot load full texts; use the running service")
            )
        return await FullTextFetcher(self.aggregator, self._clock).fetch(entry_id, entry.url)

    async def override_text(
        self, entry_id: int, *, title: str | None = None, content: str | None = None
    ) -> None:
        """Replace title or content of an entry (by a translation or summary) for this user only."""
        entry = (await self.item(entry_id)).entry
        change = entry_state.EntryStateChange(
            title=title, content=None if content is None else sanitize_html(content, entry.url)
        )
        await self.store.write(
            entry_state.update_entry_state, self.user.id, [entry_id], change, self._clock()
        )

    async def import_entry(
        self, feed_id: int, entry: Entry, *, published_at: float, unread: bool, starred: bool | None
    ) -> tuple[int, bool]:
        """Add an entry to a subscribed feed for this user only.

        Returns the id of the entry, and whether it is new. If the user has imported an entry with
        the same identity into the feed before, only its state is changed. ``published_at`` is in
        epoch seconds; ``starred=None`` leaves the star unchanged. Raises `NotFound` without a
        subscription, and `UsageError` if the entry has been deleted since it was imported.
        """
        await self.subscription(feed_id)
        identity = f"tidings-import:{self.user.id}:{entry.identity}"
        text = entry_text(replace(entry, identity=identity), EntryDates(published_at, None, None))
        imported = await self.store.write(
            imported_entries.import_entry,
            self.user.id,
            feed_id,
            text,
            entry_state.EntryStateChange(unread, starred),
            self._clock(),
        )
        if imported is None:
            raise UsageError(_("this entry was imported before and has been deleted since"))
        entry_id, is_new = imported
        kind: Kind = "entries_added" if is_new else "entry_state_changed"
        self.events.publish(Event(kind, self.user.id, feed_id, (entry_id,)))
        return imported

    # --- entry state ------------------------------------------------------------------------------

    async def mark(
        self,
        entry_ids: Collection[int],
        *,
        unread: bool | None = None,
        starred: bool | None = None,
        rating: int | None = None,
        add_tags: Collection[str] = (),
        remove_tags: Collection[str] = (),
    ) -> list[int]:
        """Change the read, starred, rating or tag state of entries and return their ids.

        The result has only entries that the user has access to. None leaves a state unchanged. The
        operation is idempotent. Raises `UsageError` for an invalid rating or tag.
        """
        if rating is not None and not 0 <= rating <= 5:
            raise UsageError(_("the rating must be between 1 and 5, or 0 for none"))
        tags = [_normalize_name(name) for name in add_tags]
        change = entry_state.EntryStateChange(
            unread, starred, rating, tuple(tags), tuple(remove_tags)
        )
        marked = await self.store.write(
            entry_state.update_entry_state, self.user.id, list(entry_ids), change, self._clock()
        )
        if marked:
            self.events.publish(Event("entry_state_changed", self.user.id, entry_ids=tuple(marked)))
        return marked

    async def mark_all_read(self, stream: Stream, *, until: float | None = None) -> list[int]:
        """Mark all unread entries of a stream as read and return their ids.

        Pass the ids to `mark` to undo this. Only entries received until ``until`` (epoch seconds,
        by default now) are marked.
        """
        until = self._clock() if until is None else until
        marked = await self.store.write(entry_state.mark_all_read, self.user.id, stream, until)
        if marked:
            self.events.publish(Event("entry_state_changed", self.user.id, entry_ids=tuple(marked)))
        return marked

    async def mark_unread_since(self, since: float) -> list[int]:
        """Mark the entries that the user has read since a time as unread and return their ids."""
        return await self.mark(
            await self.store.read(entry_state.read_since, self.user.id, since), unread=True
        )

    async def flush_history(self) -> None:
        """Remove all read entries that are not starred from the user's streams.

        The entries are removed in batches, so that other writers are not blocked.
        """
        while (
            await self.store.write(
                entry_state.mute_read_entries, self.user.id, BATCH_SIZE, self._clock()
            )
            == BATCH_SIZE
        ):
            pass

    async def tags(self) -> list[Tag]:
        """Return the user's own tags by name."""
        return await self.store.read(entry_state.tags, self.user.id)

    async def rename_tag(self, name: str, new: str) -> None:
        """Rename a tag, or merge it into the tag that already has the new name."""
        if not await self.store.write(
            entry_state.rename_tag, self.user.id, name, _normalize_name(new)
        ):
            raise NotFound(_("there is no tag %(name)s", name=name))

    async def remove_tag(self, name: str) -> None:
        if not await self.store.write(entry_state.remove_tag, self.user.id, name):
            raise NotFound(_("there is no tag %(name)s", name=name))

    async def restore_tag(self, name: str, entry_ids: Collection[int]) -> None:
        """Undo `remove_tag` by adding the tag to these entries again."""
        await self.store.write(entry_state.restore_tag, self.user.id, name, list(entry_ids))

    # --- saved searches and rules -----------------------------------------------------------------

    async def saved_searches(self) -> list[SavedSearch]:
        return await self.store.read(saved_searches.saved_searches, self.user.id)

    async def save_search(self, name: str, stream: Stream) -> SavedSearch:
        """Save a search, replacing a saved search with the same name."""
        return await self.store.write(
            saved_searches.save_search, self.user.id, _normalize_name(name), stream
        )

    async def remove_search(self, search_id: int) -> None:
        if not await self.store.write(saved_searches.remove_search, self.user.id, search_id):
            raise NotFound(_("there is no saved search %(id)s", id=search_id))

    async def rules(self) -> list[Rule]:
        return await self.store.read(rules.rules, self.user.id)

    async def save_rule(self, rule: Rule) -> Rule:
        """Add a rule (id 0) or change an existing one, for entries that arrive from now on."""
        rules.validate_rule(rule)
        if rule.feed_id is not None:
            await self.subscription(rule.feed_id)
        saved = await self.store.write(rules.save_rule, self.user.id, rule)
        if saved is None:
            raise NotFound(_("there is no rule %(id)s", id=rule.id))
        return replace(rule, id=saved)

    async def remove_rule(self, rule_id: int) -> None:
        if not await self.store.write(rules.remove_rule, self.user.id, rule_id):
            raise NotFound(_("there is no rule %(id)s", id=rule_id))

    async def send_to_webhook(self, entry_id: int) -> None:
        """Queue an entry for delivery to the user's webhook (Miniflux's "save entry")."""
        await self.subscription((await self.item(entry_id)).entry.feed_id)
        if not (await self.store.read(users.settings, self.user.id)).webhook_url:
            raise UsageError(_("there is no webhook; enter a webhook URL in the settings"))
        await self.store.write(
            ingest.add_notifications, self.user.id, "save_entry", [entry_id], "", self._clock()
        )

    async def send_test_notification(self) -> int:
        """Queue a test message for each notification URL, and the newest entry for the webhook.

        Returns the number of messages; raises `UsageError` if there are none to send.
        """
        settings = await self.store.read(users.settings, self.user.id)
        newest = (await self.ids(Stream(), limit=1)).ids if settings.webhook_url else ()
        if not settings.alert_urls and not newest:
            raise UsageError(
                _(
                    "there is nothing to test; save a notification URL, or save a "
                    "webhook URL and wait for the first post"
                )
            )
        text = _("Notifications are delivered to this address.")
        message = json.encode((_("Test notification"), text)).decode()
        messages = [(url, message) for url in settings.alert_urls]
        await self.store.write(
            notifications.add_deliveries, self.user.id, "alert", messages, self._clock()
        )
        for entry_id in newest:
            await self.send_to_webhook(entry_id)
        return len(messages) + len(newest)

    async def failed_deliveries(self) -> list[Delivery]:
        """Return failed deliveries of notifications and webhooks, newest first.

        They are either waiting for a retry or abandoned.
        """
        return await self.store.read(notifications.failed_deliveries, self.user.id)

    # --- insights ---------------------------------------------------------------------------------

    async def statistics(self) -> Statistics:
        """Return statistics about reading and delays over the last `STATISTICS_DAYS` days."""
        now = self._clock()
        return await self.store.read(
            insights.statistics, self.user.id, now - STATISTICS_DAYS * DAY_S, now
        )

    async def suggestions(self, limit: int = 12) -> list[Suggestion]:
        """Suggest feeds that are popular, read by similar users or linked from starred entries."""
        return await self.store.read(insights.suggestions, self.user.id, limit)

    def _publish_subscriptions(self, feed_id: int | None = None) -> None:
        self.events.publish(Event("subscriptions", self.user.id, feed_id))

    async def _update_weight(self, feed_id: int) -> None:
        """Recompute a feed's weight and next poll after a change of its subscriptions."""
        if self.aggregator is not None:
            await self.aggregator.update_weights([feed_id])


def _normalize_name(name: str) -> str:
    name = " ".join(name.split())
    if not name or len(name) > 200:
        raise UsageError(_("enter a name of 1 to 200 characters"))
    return name
