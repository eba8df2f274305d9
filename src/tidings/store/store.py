"""The store as other rooms see it: values in, values out, every call one transaction.

The work is done by the functions of the modules beside this one, which are given a connection. What is here gives them
their place: `Database.write` in the one thread that writes, `Database.read` in one of those that read.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from tidings.store import entries, feeds, ingest, leases, retention
from tidings.store import status as store_status
from tidings.store.connection import Connection, Database, Progress
from tidings.store.feed_models import (
    DEFAULT_USER_ID,
    Entry,
    Estimate,
    Feed,
    FeedSummary,
    Gap,
    KnownEntry,
    NewSubscription,
    Pause,
    Poll,
    PollOutcome,
    PushSubscription,
    RecordResult,
    RetentionResult,
    Schedule,
    Status,
    SubscribeResult,
    Version,
)
from tidings.store.identities import known_entries
from tidings.store.record import record
from tidings.store.sqlite import SqliteDatabase

P = ParamSpec("P")
T = TypeVar("T")


#: The office of the one process that estimates, clusters and moves the price.
LEADER_LOCK_ID = 1


class Store:
    """Everything that is kept. ``async with Store.open(path, clock=time.time) as store: ...``"""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._db = database
        self._clock = clock

    @classmethod
    def open(
        cls,
        location: Path | str,
        *,
        clock: Callable[[], float],
        serving: bool = False,
        threads: bool = True,
    ) -> "Store":
        """Open the store, or make it: a SQLite file by its path, or a PostgreSQL database by its address.

        Any number of processes may open either. Of a file, only one may be ``serving``. Without ``threads``, everything else
        waits while a file is read or written.
        """
        if isinstance(location, Path):
            return cls(SqliteDatabase(location, serving=serving, threads=threads), clock)
        from tidings.store.postgres import PostgresDatabase  # asyncpg is for those who use it

        return cls(PostgresDatabase(location), clock)

    @property
    def allows_multiple_processes(self) -> bool:
        """Whether any number of processes may poll with this store; a file is served by one."""
        return self._db.allows_multiple_processes

    async def __aenter__(self) -> "Store":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._db.close()

    async def read(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        """One of the functions of this room that only read, as a transaction."""
        return await self._db.read(work, *args, **options)

    async def write(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        """One of the functions of this room that write, as a transaction: all of it or nothing."""
        return await self._db.write(work, *args, **options)

    # Feeds

    async def add(
        self, wanted: Sequence[NewSubscription], user_id: int = DEFAULT_USER_ID
    ) -> list[SubscribeResult]:
        """Subscribe to all of these, or to none if one cannot be stored; says for each what was new."""
        return await self._db.write(feeds.add, wanted, user_id, self._clock())

    async def feed(self, feed: int | str) -> Feed | None:
        """By id, or by present or former address."""
        return await self._db.read(feeds.find, feed)

    async def feeds(
        self, *, after: int = 0, limit: int = 1000, user_id: int = DEFAULT_USER_ID
    ) -> list[FeedSummary]:
        """A user's feeds by id, a page at a time: the next begins ``after`` the last id of this one."""
        return await self._db.read(feeds.list_page, user_id, after, limit)

    async def retire(self, feed_id: int, reason: str) -> None:
        """Never ask this feed again, unless somebody adds it again."""
        await self._db.write(feeds.retire, feed_id, reason, self._clock())

    # When to look

    async def lease_feeds(
        self, limit: int, *, lease_s: float, feed_ids: Sequence[int] | None = None, worker: str = ""
    ) -> list[Feed]:
        """Take due feeds (or these, due or not) for ``lease_s``; then they are due again unless an outcome was recorded.

        With the name of a worker, their hosts are taken too: no other worker is given feeds of those.
        """
        if feed_ids is not None:
            return await self._db.write(
                leases.lease_feeds_by_id, self._clock(), lease_s, feed_ids[:limit]
            )
        return await self._db.write(leases.lease_feeds, self._clock(), limit, lease_s, worker)

    async def release(
        self, leased_feeds: Sequence[Feed], worker: str = "", spacing_s: float = 0.0
    ) -> None:
        """Hand back feeds that were not begun, as they were claimed, and all hosts of the worker after a last pause."""
        await self._db.write(leases.release, leased_feeds, worker, self._clock() + spacing_s)

    async def release_hosts(self, hosts: Sequence[tuple[str, float]], worker: str) -> None:
        """Let others ask these hosts, each from a time on."""
        await self._db.write(leases.release_hosts, hosts, worker)

    async def reserve(self, host: str, spacing_s: float) -> float:
        """When this host may be asked, if it is not held: a place in the line of all processes."""
        return await self._db.write(leases.reserve, host, spacing_s, self._clock())

    async def take_tokens(self, wanted: int, per_day: float) -> int:
        """How many of these requests the budget of all processes allows now; they count as made."""
        return await self._db.write(leases.take_tokens, wanted, per_day, self._clock())

    async def consume_budget(self, amount: float, bucket: str = leases.REQUESTS) -> None:
        """Count what was spent without a grant; less than 0 gives back."""
        await self._db.write(leases.consume_budget, amount, bucket)

    async def token_deficit(self, per_day: float, bucket: str = leases.REQUESTS) -> float:
        """How many tokens must flow in until there is one."""
        return await self._db.write(leases.token_deficit, per_day, self._clock(), bucket)

    async def acquire_leadership(self) -> bool:
        """Whether this process leads, which it does from now on if nobody else does; to be asked again and again."""
        return await self._db.pubsub.acquire_leadership(LEADER_LOCK_ID)

    async def listen(self, channel: str, callback: Callable[[str], object]) -> None:
        """Call back with every word on the channel, from whichever process; an empty word: some may have been missed."""
        await self._db.pubsub.listen(channel, callback)

    async def notify(self, channel: str, payload: str = "") -> None:
        await self._db.pubsub.notify(channel, payload)

    async def next_due(self) -> float | None:
        """When the next feed is due."""
        return await self._db.read(feeds.next_due)

    async def reschedule(self, schedules: Sequence[Schedule]) -> None:
        """New times without a poll: decided anew, put off, or handed back."""
        await self._db.write(feeds.reschedule, schedules)

    async def timings(self) -> npt.NDArray[np.void]:
        """All feeds that may be asked, as one array of `feeds.TIMING`."""
        return await self._db.read(feeds.timings)

    async def forbidden_hours(self) -> dict[int, bytes]:
        """The hours not to ask in, of the feeds that have any."""
        return await self._db.read(feeds.forbidden_hours)

    async def posting_times(
        self, since: float, feed_ids: Sequence[int] | None = None
    ) -> npt.NDArray[np.void]:
        """When entries were published, by feed and time, as one array of `entries.POSTING`."""
        return await self._db.read(entries.posting_times, feed_ids, since)

    async def estimates(
        self, policy: str, feed_ids: Sequence[int] | None = None
    ) -> dict[int, bytes]:
        """What a policy remembers of each feed, or of these."""
        return await self._db.read(feeds.estimates, policy, feed_ids)

    async def count_estimates(self, policy: str) -> int:
        """Of how many feeds a policy remembers something."""
        return await self._db.read(feeds.count_estimates, policy)

    async def save_estimates(
        self, estimates: dict[int, Estimate], *, unless_since: float = math.inf
    ) -> None:
        """Keep these, except where others were saved after ``unless_since``."""
        now = self._clock()
        await self._db.write(
            feeds.save_estimates, [(i, estimates[i], now) for i in sorted(estimates)], unless_since
        )

    async def load_values(self) -> dict[str, bytes]:
        """The small values that belong to no feed: a policy's shared state, say."""
        return await self._db.read(feeds.load_values)

    async def save_values(self, values: dict[str, bytes]) -> None:
        await self._db.write(feeds.save_values, values, self._clock())

    async def paused_hosts(self) -> tuple[Pause, ...]:
        """Hosts that are left alone now."""
        return await self._db.read(feeds.paused_hosts, self._clock())

    async def last_request_times(self, since: float) -> dict[str, float]:
        """When hosts were asked last, so that a service that starts anew keeps its distance."""
        return await self._db.read(feeds.last_request_times, since)

    # What came of it

    async def known_entries(self, feed_id: int, identities: Sequence[str]) -> dict[str, KnownEntry]:
        """Those of these identities that the feed has had before."""
        return await self._db.read(known_entries, feed_id, identities)

    async def record(self, outcomes: Sequence[PollOutcome]) -> list[RecordResult]:
        """Store the effects of polls, all or none."""
        return await self._db.write(record, outcomes)

    async def entries(
        self,
        *,
        feed_id: int | None = None,
        since: float | None = None,
        until: float | None = None,
        search: str = "",
        before: int | None = None,
        limit: int = 100,
    ) -> list[Entry]:
        """Newest first; the next page is ``before`` the last id of this one. Times are times of arrival."""
        return await self._db.read(
            entries.list_page,
            feed_id=feed_id,
            since=since,
            until=until,
            search=search,
            before=before,
            limit=limit,
        )

    async def entry(self, entry_id: int) -> Entry | None:
        return await self._db.read(entries.get, entry_id)

    async def versions(self, entry_id: int) -> list[Version]:
        """What an entry said before it was changed, newest first."""
        return await self._db.read(entries.versions, entry_id)

    async def polls(self, feed_id: int, limit: int = 20) -> list[Poll]:
        """A feed's last polls, newest first."""
        return await self._db.read(entries.polls, feed_id, limit)

    async def polls_since(self, since: float) -> int:
        """What was spent. Complete for the last eight days."""
        return await self._db.read(entries.polls_since, since)

    async def gaps(
        self, *, feed_id: int | None = None, state: str | None = None, limit: int = 100
    ) -> list[Gap]:
        """Newest first."""
        return await self._db.read(entries.gaps, feed_id, state, limit)

    async def status(self) -> Status:
        return await self._db.read(store_status.status, self._clock())

    # Push

    async def push(self, feed_id: int) -> PushSubscription | None:
        return await self._db.read(feeds.find_push_subscription, feed_id)

    async def find_push_subscription_by_token(self, token: str) -> PushSubscription | None:
        return await self._db.read(feeds.find_push_subscription_by_token, token)

    async def expiring_push_subscriptions(self, before: float) -> list[PushSubscription]:
        """Those whose lease ends before this time, the most urgent first."""
        return await self._db.read(feeds.expiring_push_subscriptions, before)

    async def save_push_subscription(self, push: PushSubscription) -> None:
        await self._db.write(feeds.save_push_subscription, push)

    # Upkeep

    async def apply_retention(self, *, days: float, min_entries: int) -> RetentionResult:
        """Forget entries that came more than ``days`` ago, save each feed's ``least`` newest and what its document shows.

        In many short transactions, so that polls are recorded in between.
        """
        now = self._clock()
        before = now - days * store_status.DAY_S
        polls = 0
        gone, first = await self._db.prune_old_partitions(before, min_entries, now)
        old = await self._db.read(retention.feeds_with_old_entries, before, first)
        for i in range(0, len(old), retention.FEEDS_PER_TRANSACTION):
            gone += await self._db.write(
                retention.delete_old_entries,
                old[i : i + retention.FEEDS_PER_TRANSACTION],
                before,
                first,
                min_entries,
            )
        while (deleted := await self._db.write(retention.prune_polls, now, before)) is not None:
            polls += deleted
        await self._db.write(ingest.delete_expired_dedup_keys, now)
        await self._db.optimize()
        return RetentionResult(gone, polls)

    async def backup(self, to: Path, progress: Progress | None = None) -> None:
        """Copy one moment of the store to a file of its own; ``progress(pages, of_pages)`` is called from another thread."""
        await self._db.backup(to, progress)

    async def check(self) -> list[str]:
        """All that is wrong with the file, in words."""
        return await self._db.check()
