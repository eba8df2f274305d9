"""Everything that one user can do: subscribe, ask for streams, mark, tag, search, make rules.

The pages and the three APIs are dialects of this class. Nothing is reachable by id that is not the user's: an entry of a feed
that they are not subscribed to, and have never starred or tagged, is not there.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from msgspec import json
from msgspec.structs import replace

from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.importer import AddResult, ImportReport, add_feed, import_feeds
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
    ingest,
    insights,
    notifications,
    rules,
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
from tidings.users.events import Event, EventBus
from tidings.users.full_text import FullTextFetcher

#: Statistics look back so far.
STATISTICS_DAYS = 30
DAY_S = 86400.0
#: Entries that are put away in one transaction.
BATCH_SIZE = 5000


class ReaderService:
    """Bound to the user who acts: ``Reading(user, store, clock, events, aggregator)``. Cheap to make, for each request anew.

    Without an aggregator everything works but `subscribe` to an address that is not known yet.
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

    # --- subscriptions -------------------------------------------------------------------------------------------------

    async def subscriptions(
        self, feed_ids: Collection[int] | None = None, folder_ids: Collection[int] | None = None
    ) -> list[Subscription]:
        """All of them, or those to these feeds or in these folders (0: in none), with unread counts, by folder and title.

        Of ``feed.state`` a list has titles, times and errors; the rest of it stands with the single `subscription`.
        """
        return await self.store.read(folders.subscriptions, self.user.id, feed_ids, folder_ids)

    async def totals(self) -> Totals:
        return await self.store.read(folders.totals, self.user.id)

    async def subscription(self, feed_id: int) -> Subscription:
        found = await self.store.read(folders.subscription, self.user.id, feed_id)
        if found is None:
            raise NotFound(f"there is no feed {feed_id} among your subscriptions")
        return found

    async def titles(self, feed_ids: Iterable[int]) -> dict[int, str]:
        """What these feeds are called, also those of starred entries that are no longer subscribed to."""
        return await self.store.read(folders.titles, self.user.id, set(feed_ids))

    async def subscribe(self, url: str, *, title: str = "", folder: str = "") -> AddResult:
        """Follow the feed at an address, or the site's. ``choices`` is filled in place of ``added`` where it has several.

        What the feed shows now is there, unread, when this returns. `AddError` says why there is none.
        """
        if self.aggregator is None:
            raise TidingsError(
                "feeds cannot be added here; use `tidings add` or the running service"
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
        """Rename (nothing: the feed's own title), move (to a folder by name, made if need be; nothing: the top), and so on.

        ``min_interval_s`` is the minimum interval between two polls, 0 for automatic. `UsageError` where it is outside of the
        operator's bounds.
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
        if not await self.store.write(folders.change, self.user.id, feed_id, changes):
            raise NotFound(f"there is no feed {feed_id} among your subscriptions")
        self._publish_subscriptions(feed_id)
        if priority is not None or min_interval_s is not None:
            await self._update_weight(feed_id)

    @property
    def min_interval_bounds_s(self) -> tuple[float, float]:
        """The shortest and the longest minimum interval that a subscriber may set."""
        limits = Limits() if self.aggregator is None else self.aggregator.scheduler.limits
        return max(limits.min_interval_s, OVERFLOW_MIN_S), limits.max_interval_s

    def check_min_interval(self, seconds: float) -> None:
        """Raise `UsageError` for a minimum interval outside of the operator's bounds."""
        least, most = self.min_interval_bounds_s
        if not least <= seconds <= most:
            raise UsageError(
                _(
                    "the minimum interval must be between %(least)s and %(most)s, or automatic, not %(given)s",
                    least=duration(least),
                    most=duration(most),
                    given=duration(seconds),
                )
            )

    async def change_url(self, feed_id: int, url: str) -> int:
        """Follow the feed at another address in place of this one; returns its id. `Taken` if it is followed already."""
        old = await self.subscription(feed_id)
        if any(s.feed.url == url for s in await self.subscriptions()):
            raise AlreadyExists(f"you are subscribed to {url} already")
        (added,) = await self.store.add(
            [NewSubscription(url, self._clock(), old.title, old.folder)], self.user.id
        )
        await self.change(added.feed_id, **self._settings_of(old))
        await self.unsubscribe(feed_id)
        return added.feed_id

    def _settings_of(self, old: Subscription) -> dict[str, Any]:
        """What a subscription that takes the place of another keeps of it; the operator's bounds may have changed since."""
        least, most = self.min_interval_bounds_s
        interval_s = min(max(old.min_interval_s, least), most) if old.min_interval_s else 0.0
        return {"priority": old.priority, "full_text": old.full_text, "min_interval_s": interval_s}

    async def counters(self) -> list[tuple[int, int, int]]:
        """Of each subscription: feed, entries that are unread, and all that there are."""
        return await self.store.read(folders.counters, self.user.id)

    async def unsubscribe(self, feed_id: int) -> None:
        """What was starred or tagged stays. A feed that nobody is subscribed to any more is not polled any more."""
        if not await self.store.write(folders.unsubscribe, self.user.id, feed_id, self._clock()):
            raise NotFound(f"there is no feed {feed_id} among your subscriptions")
        self._publish_subscriptions()
        await self._update_weight(feed_id)

    async def restore_subscription(
        self, old: Subscription, unread: Collection[int], unsubscribed_at: float
    ) -> None:
        """As it was before `unsubscribe`: name, folder, wishes; of what had arrived by then, just these entries are unread."""
        feed, title = (
            old.feed,
            "" if old.title in (old.feed.state.title, redact_password(old.feed.url)) else old.title,
        )
        await self.store.add(
            [NewSubscription(feed.url, self._clock(), title, old.folder)], self.user.id
        )
        await self.change(feed.id, **self._settings_of(old))
        await self.mark_all_read(Stream(feeds=(feed.id,)), until=unsubscribed_at)
        await self.mark(unread, unread=True)

    async def icon(self, feed_id: int) -> Icon | None:
        return await self.store.read(folders.icon, self.user.id, feed_id)

    async def folders(self) -> list[Folder]:
        """By name; also those that are empty."""
        return await self.store.read(folders.folders, self.user.id)

    async def add_folder(self, name: str) -> Folder:
        name = _normalize_name(name, "folder")
        folder_id = await self.store.write(folders.add_folder, self.user.id, name)
        if folder_id is None:
            raise AlreadyExists(f"there is a folder {name} already")
        self._publish_subscriptions()
        return Folder(folder_id, name, 0, 0)

    async def rename_folder(self, folder_id: int, name: str) -> None:
        """`Taken` if there is another of that name."""
        name = _normalize_name(name, "folder")
        done = await self.store.write(folders.rename_folder, self.user.id, folder_id, name)
        if done is None:
            raise AlreadyExists(f"there is a folder {name} already")
        if not done:
            raise NotFound(f"there is no folder {folder_id}")
        self._publish_subscriptions()

    async def remove_folder(self, folder_id: int) -> None:
        """Its subscriptions are at the top then."""
        if not await self.store.write(folders.remove_folder, self.user.id, folder_id):
            raise NotFound(f"there is no folder {folder_id}")
        self._publish_subscriptions()

    async def import_opml(self, body: bytes) -> ImportReport:
        """OPML, or one address on each line."""
        report = await import_feeds(self.store, body, self._clock, user_id=self.user.id)
        if self.aggregator is not None:
            self.aggregator.wake()
        self._publish_subscriptions()
        return report

    async def export_opml(self) -> bytes:
        outlines = [
            Outline(s.feed.url, s.title, s.feed.state.site_url, s.folder)
            for s in await self.subscriptions()
        ]
        return write_opml(outlines, f"Subscriptions of {self.user.name}")

    # --- streams -------------------------------------------------------------------------------------------------------

    async def page(self, stream: Stream, *, limit: int = 50, after: str | None = None) -> Page:
        """The next entries of a stream, after the ``next`` of the page before: no entry is skipped or shown twice, whatever
        arrives or is marked in between."""
        return await self.store.read(entry_queries.page, self.user.id, stream, limit, after)

    async def ids(self, stream: Stream, *, limit: int = 1000, after: str | None = None) -> IdPage:
        """As `page`, but ids alone, which is much cheaper."""
        return await self.store.read(entry_queries.ids, self.user.id, stream, limit, after)

    async def count(self, stream: Stream) -> int:
        return await self.store.read(entry_queries.count, self.user.id, stream)

    async def items(self, entry_ids: Iterable[int]) -> list[Item]:
        """These entries, in this order; those that are not the user's are left out."""
        return await self.store.read(entry_queries.items, self.user.id, list(entry_ids))

    async def item(self, entry_id: int) -> Item:
        found = await self.items([entry_id])
        if not found:
            raise NotFound(f"there is no entry {entry_id}")
        return found[0]

    async def full_text(self, entry_id: int) -> str:
        """The whole article from its site, as safe HTML; kept for the next who asks. `NoArticle` says why there is none."""
        entry = (await self.item(entry_id)).entry
        if self.aggregator is None:
            raise ArticleUnavailable("articles cannot be fetched here; use the running service")
        return await FullTextFetcher(self.aggregator, self._clock).fetch(entry_id, entry.url)

    async def override_text(
        self, entry_id: int, *, title: str | None = None, content: str | None = None
    ) -> None:
        """Say it in other words (a translation, a summary). They are this user's: a feed is fetched once for all."""
        entry = (await self.item(entry_id)).entry
        wish = entry_state.EntryStateChange(
            title=title, content=None if content is None else sanitize_html(content, entry.url)
        )
        await self.store.write(
            entry_state.update_entry_state, self.user.id, [entry_id], wish, self._clock()
        )

    # --- marks ---------------------------------------------------------------------------------------------------------

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
        """Change what is given, of those entries that are the user's; returns their ids. Twice changes nothing more."""
        if rating is not None and not 0 <= rating <= 5:
            raise UsageError("a rating is 1 to 5, or 0 for none")
        tags = [_normalize_name(name, "tag") for name in add_tags]
        wish = entry_state.EntryStateChange(
            unread, starred, rating, tuple(tags), tuple(remove_tags)
        )
        done = await self.store.write(
            entry_state.update_entry_state, self.user.id, list(entry_ids), wish, self._clock()
        )
        if done:
            self.events.publish(Event("marked", self.user.id, entry_ids=tuple(done)))
        return done

    async def mark_all_read(self, stream: Stream, *, until: float | None = None) -> list[int]:
        """All unread entries of the stream that had arrived at ``until`` (now, if not given); returns their ids, with which
        `mark` undoes it."""
        until = self._clock() if until is None else until
        done = await self.store.write(entry_state.mark_all_read, self.user.id, stream, until)
        if done:
            self.events.publish(Event("marked", self.user.id, entry_ids=tuple(done)))
        return done

    async def mark_unread_since(self, since: float) -> list[int]:
        """Take back what was read since then."""
        return await self.mark(
            await self.store.read(entry_state.read_since, self.user.id, since), unread=True
        )

    async def flush_history(self) -> None:
        """What was read and not starred is in no stream any more. In parts, because others want to write too."""
        while (
            await self.store.write(
                entry_state.mute_read_entries, self.user.id, BATCH_SIZE, self._clock()
            )
            == BATCH_SIZE
        ):
            pass

    async def tags(self) -> list[Tag]:
        """The user's own, by name."""
        return await self.store.read(entry_state.tags, self.user.id)

    async def rename_tag(self, name: str, new: str) -> None:
        """Entries that had either have the new one."""
        if not await self.store.write(
            entry_state.rename_tag, self.user.id, name, _normalize_name(new, "tag")
        ):
            raise NotFound(f"there is no tag {name}")

    async def remove_tag(self, name: str) -> None:
        if not await self.store.write(entry_state.remove_tag, self.user.id, name):
            raise NotFound(f"there is no tag {name}")

    async def restore_tag(self, name: str, entry_ids: Collection[int]) -> None:
        """Take back `remove_tag`."""
        await self.store.write(entry_state.restore_tag, self.user.id, name, list(entry_ids))

    # --- saved searches and rules --------------------------------------------------------------------------------------

    async def saved_searches(self) -> list[SavedSearch]:
        return await self.store.read(rules.saved_searches, self.user.id)

    async def save_search(self, name: str, stream: Stream) -> SavedSearch:
        """A search of the same name is replaced."""
        return await self.store.write(
            rules.save_search, self.user.id, _normalize_name(name, "search"), stream
        )

    async def remove_search(self, search_id: int) -> None:
        if not await self.store.write(rules.remove_search, self.user.id, search_id):
            raise NotFound(f"there is no saved search {search_id}")

    async def rules(self) -> list[Rule]:
        return await self.store.read(rules.rules, self.user.id)

    async def save_rule(self, rule: Rule) -> Rule:
        """A new one where its id is 0. It holds for what arrives from now on."""
        rules.validate_rule(rule)
        if rule.feed_id is not None:
            await self.subscription(rule.feed_id)
        saved = await self.store.write(rules.save_rule, self.user.id, rule)
        if saved is None:
            raise NotFound(f"there is no rule {rule.id}")
        return replace(rule, id=saved)

    async def remove_rule(self, rule_id: int) -> None:
        if not await self.store.write(rules.remove_rule, self.user.id, rule_id):
            raise NotFound(f"there is no rule {rule_id}")

    async def send(self, entry_id: int) -> None:
        """Hand an entry to the user's webhook, as readers' "save" does."""
        await self.subscription((await self.item(entry_id)).entry.feed_id)
        if not (await self.store.read(users.settings, self.user.id)).webhook_url:
            raise UsageError("there is nowhere to send it; name a webhook in the settings first")
        await self.store.write(
            ingest.add_notifications, self.user.id, "save_entry", [entry_id], "", self._clock()
        )

    async def send_test_notification(self) -> int:
        """To every address of the user: a message as alerts are, and to the webhook the newest entry; to how many."""
        chosen = await self.store.read(users.settings, self.user.id)
        newest = (await self.ids(Stream(), limit=1)).ids if chosen.webhook_url else ()
        if not chosen.alert_urls and not newest:
            raise UsageError(
                "there is nowhere to send a test, or no entry yet for the webhook; save an address first"
            )
        message = json.encode(("A test", "Alerts arrive here.")).decode()
        messages = [(url, message) for url in chosen.alert_urls]
        await self.store.write(notifications.add, self.user.id, "alert", messages, self._clock())
        for entry_id in newest:
            await self.send(entry_id)
        return len(messages) + len(newest)

    async def failed_deliveries(self) -> list[Delivery]:
        """Alerts and events of the webhook that were not taken, the newest first: to be tried again, or given up."""
        return await self.store.read(notifications.failed_deliveries, self.user.id)

    # --- insights ------------------------------------------------------------------------------------------------------

    async def statistics(self) -> Statistics:
        """What was read, and how fast it came, in the last thirty days."""
        now = self._clock()
        return await self.store.read(
            insights.statistics, self.user.id, now - STATISTICS_DAYS * DAY_S, now
        )

    async def suggestions(self, limit: int = 12) -> list[Suggestion]:
        """Feeds that many read here, that people with similar subscriptions read, and that starred entries link to."""
        return await self.store.read(insights.suggestions, self.user.id, limit)

    def _publish_subscriptions(self, feed_id: int | None = None) -> None:
        self.events.publish(Event("subscriptions", self.user.id, feed_id))

    async def _update_weight(self, feed_id: int) -> None:
        """How much a feed matters has changed, and with it when it is asked next."""
        if self.aggregator is not None:
            await self.aggregator.update_weights([feed_id])


def _normalize_name(name: str, thing: str) -> str:
    name = " ".join(name.split())
    if not name or len(name) > 200:
        raise UsageError(f"a {thing} needs a name, of at most 200 characters")
    return name
