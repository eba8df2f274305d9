"""Storage interface for other packages, with one transaction per call.

The work is done by functions of the other modules, which get a connection. `Database.write` and
`Database.read` run them in a transaction in another thread.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from tidings.store import entries, feeds, ingest, leases, retention, token_bucket
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

#: Id of the advisory lock of the leader, which is the process that runs the policy for all workers.
LEADER_LOCK_ID = 1


class Store:
    """Storage of feeds, entries, polls and users.

    Use it as ``async with Store.open(path, clock=time.time) as store: ...``.
    """

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
        """Open a SQLite file (`Path`) or a PostgreSQL database (URL).

        A missing file is created. Any number of processes may open either, but only one may open a
        file with ``serving``. Without ``threads``, calls on a file block the event loop. Raises
        `StoreError` if the database cannot be opened.
        """
        if isinstance(location, Path):
            return cls(SqliteDatabase(location, serving=serving, threads=threads), clock)
        from tidings.store.postgres import PostgresDatabase  # asyncpg is optional

        return cls(PostgresDatabase(location), clock)

    @property
    def allows_multiple_processes(self) -> bool:
        """Whether several processes may poll with this store, unlike with a SQLite file."""
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
        """Run a read-only function of this package in a transaction."""
        return await self._db.read(work, *args, **options)

    async def write(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Run a function of this package in a transaction, rolled back if the function raises."""
        return await self._db.write(work, *args, **options)

    # Feeds

    async def add_subscriptions(
        self, new_subscriptions: Sequence[NewSubscription], user_id: int = DEFAULT_USER_ID
    ) -> list[SubscribeResult]:
        """Subscribe a user to all given feeds, or to none if one of them cannot be stored."""
        return await self._db.write(
            feeds.add_subscriptions, new_subscriptions, user_id, self._clock()
        )

    async def feed(self, feed: int | str) -> Feed | None:
        """Return a feed by its id, or by its present or a former URL, or None."""
        return await self._db.read(feeds.find, feed)

    async def feeds(
        self, *, after: int = 0, limit: int = 1000, user_id: int = DEFAULT_USER_ID
    ) -> list[FeedSummary]:
        """List a page of a user's feeds by id. ``after`` is the last id of the page before."""
        return await self._db.read(feeds.list_page, user_id, after, limit)

    async def retire(self, feed_id: int, reason: str) -> None:
        """Stop polling a feed until a user adds it again."""
        await self._db.write(feeds.retire, feed_id, reason, self._clock())

    # Scheduling

    async def lease_feeds(
        self, limit: int, *, lease_s: float, feed_ids: Sequence[int] | None = None, worker: str = ""
    ) -> list[Feed]:
        """Lease due feeds for ``lease_s`` seconds and return them.

        With ``feed_ids``, the feeds with these ids are leased, whether they are due or not. A
        leased feed becomes due again after ``lease_s``, unless an outcome is recorded. With a
        worker name the hosts of the feeds are leased too, so that other workers do not get feeds of
        these hosts.
        """
        if feed_ids is not None:
            return await self._db.write(
                leases.lease_feeds_by_id, self._clock(), lease_s, feed_ids[:limit]
            )
        return await self._db.write(leases.lease_feeds, self._clock(), limit, lease_s, worker)

    async def release(
        self, leased_feeds: Sequence[Feed], worker: str = "", spacing_s: float = 0.0
    ) -> None:
        """Release leased feeds that were not polled, and the worker's hosts after ``spacing_s``."""
        await self._db.write(leases.release, leased_feeds, worker, self._clock() + spacing_s)

    async def release_hosts(self, hosts: Sequence[tuple[str, float]], worker: str) -> None:
        """End the worker's leases of hosts, each at its own time."""
        await self._db.write(leases.release_hosts, hosts, worker)

    async def reserve(self, host: str, spacing_s: float) -> float:
        """Reserve the next request slot of a host across all processes, and return its time."""
        return await self._db.write(leases.reserve, host, spacing_s, self._clock())

    async def take_tokens(self, max_tokens: int, per_day: float) -> int:
        """Take up to ``max_tokens`` request tokens from the token bucket that all processes share.

        Returns the number of tokens that were taken.
        """
        return await self._db.write(token_bucket.take_tokens, max_tokens, per_day, self._clock())

    async def consume_budget(self, amount: float, bucket: str = token_bucket.REQUESTS) -> None:
        """Subtract tokens that were used without `take_tokens`.

        A negative amount returns tokens.
        """
        await self._db.write(token_bucket.consume_budget, amount, bucket)

    async def token_deficit(self, per_day: float, bucket: str = token_bucket.REQUESTS) -> float:
        """Return the number of tokens that must be refilled until one is available."""
        return await self._db.write(token_bucket.token_deficit, per_day, self._clock(), bucket)

    async def acquire_leadership(self) -> bool:
        """Try to become the leader, and return whether this process is the leader.

        Call this repeatedly, because leadership ends with the connection.
        """
        return await self._db.pubsub.acquire_leadership(LEADER_LOCK_ID)

    async def listen(self, channel: str, callback: Callable[[str], object]) -> None:
        """Call ``callback`` with every payload on a channel, from any process.

        An empty payload means that messages may have been missed.
        """
        await self._db.pubsub.listen(channel, callback)

    async def notify(self, channel: str, payload: str = "") -> None:
        """Send a payload to all listeners of a channel."""
        await self._db.pubsub.notify(channel, payload)

    async def next_due(self) -> float | None:
        """Return the earliest poll time of all feeds, or None if no feed has one."""
        return await self._db.read(feeds.next_due)

    async def reschedule(self, schedules: Sequence[Schedule]) -> None:
        """Store new poll times of feeds without a poll."""
        await self._db.write(feeds.reschedule, schedules)

    async def timings(self) -> npt.NDArray[np.void]:
        """Return the poll data of all active feeds as one array of `feeds.TIMING`."""
        return await self._db.read(feeds.timings)

    async def forbidden_hours(self) -> dict[int, bytes]:
        """Return the hours of the week without polls (skipHours, skipDays) by feed id.

        Feeds without such hours are left out.
        """
        return await self._db.read(feeds.forbidden_hours)

    async def posting_times(
        self, since: float, feed_ids: Sequence[int] | None = None
    ) -> npt.NDArray[np.void]:
        """Return publication times, sorted by feed and time, as one array of `entries.POSTING`."""
        return await self._db.read(entries.posting_times, feed_ids, since)

    async def estimates(
        self, policy: str, feed_ids: Sequence[int] | None = None
    ) -> dict[int, bytes]:
        """Return the saved states of a policy by feed id.

        ``feed_ids`` restricts the feeds; None means all feeds.
        """
        return await self._db.read(feeds.estimates, policy, feed_ids)

    async def count_estimates(self, policy: str) -> int:
        """Return the number of feeds for which a policy has a saved state."""
        return await self._db.read(feeds.count_estimates, policy)

    async def save_estimates(
        self, estimates: dict[int, Estimate], *, unless_since: float = math.inf
    ) -> None:
        """Store policy states by feed id.

        A state that was stored after ``unless_since`` is not replaced.
        """
        now = self._clock()
        await self._db.write(
            feeds.save_estimates, [(i, estimates[i], now) for i in sorted(estimates)], unless_since
        )

    async def load_values(self) -> dict[str, bytes]:
        """Return all stored values by key, such as the shared state of a policy."""
        return await self._db.read(feeds.load_values)

    async def save_values(self, values: dict[str, bytes]) -> None:
        """Store values by key."""
        await self._db.write(feeds.save_values, values, self._clock())

    async def paused_hosts(self) -> tuple[Pause, ...]:
        """List the hosts that are paused now."""
        return await self._db.read(feeds.paused_hosts, self._clock())

    async def last_request_times(self, since: float) -> dict[str, float]:
        """Return the last request time of each host, for the host limiter after a restart."""
        return await self._db.read(feeds.last_request_times, since)

    # Results and entries

    async def known_entries(self, feed_id: int, identities: Sequence[str]) -> dict[str, KnownEntry]:
        """Return the entries, by identity, that the feed has had before."""
        return await self._db.read(known_entries, feed_id, identities)

    async def record(self, outcomes: Sequence[PollOutcome]) -> list[RecordResult]:
        """Store the results of polls in one transaction."""
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
        """List a page of entries, newest first. ``before`` is the last id of the page before.

        ``since`` and ``until`` are times of arrival.
        """
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
        """List the former versions of an entry, newest first."""
        return await self._db.read(entries.versions, entry_id)

    async def polls(self, feed_id: int, limit: int = 20) -> list[Poll]:
        """List the last polls of a feed, newest first."""
        return await self._db.read(entries.polls, feed_id, limit)

    async def polls_since(self, since: float) -> int:
        """Return the number of polls since a time, without pushes.

        The poll log is complete for the last eight days.
        """
        return await self._db.read(entries.polls_since, since)

    async def gaps(
        self, *, feed_id: int | None = None, state: str | None = None, limit: int = 100
    ) -> list[Gap]:
        """List gaps, newest first. None as ``feed_id`` or ``state`` means all."""
        return await self._db.read(entries.gaps, feed_id, state, limit)

    async def status(self) -> Status:
        return await self._db.read(store_status.status, self._clock())

    # WebSub

    async def find_push_subscription(self, feed_id: int) -> PushSubscription | None:
        return await self._db.read(feeds.find_push_subscription, feed_id)

    async def find_push_subscription_by_token(self, token: str) -> PushSubscription | None:
        return await self._db.read(feeds.find_push_subscription_by_token, token)

    async def expiring_push_subscriptions(self, before: float) -> list[PushSubscription]:
        """List WebSub subscriptions whose lease ends before a time, earliest first."""
        return await self._db.read(feeds.expiring_push_subscriptions, before)

    async def save_push_subscription(self, push: PushSubscription) -> None:
        await self._db.write(feeds.save_push_subscription, push)

    # Maintenance

    async def apply_retention(self, *, days: float, min_entries: int) -> RetentionResult:
        """Delete entries that were received more than ``days`` ago, and prune the poll log.

        Each feed's ``min_entries`` newest entries, entries that its document still lists, and
        starred or tagged entries are not deleted. Many short transactions are used, so that polls
        are recorded in between.
        """
        now = self._clock()
        before = now - days * store_status.DAY_S
        polls = 0
        deleted, first = await self._db.prune_old_partitions(before, min_entries, now)
        old = await self._db.read(retention.feeds_with_old_entries, before, first)
        for i in range(0, len(old), retention.FEEDS_PER_TRANSACTION):
            deleted += await self._db.write(
                retention.delete_old_entries,
                old[i : i + retention.FEEDS_PER_TRANSACTION],
                before,
                first,
                min_entries,
            )
        while (pruned := await self._db.write(retention.prune_polls, now, before)) is not None:
            polls += pruned
        await self._db.write(ingest.delete_expired_dedup_keys, now)
        await self._db.optimize()
        return RetentionResult(deleted, polls)

    async def backup(self, to: Path, progress: Progress | None = None) -> None:
        """Copy a snapshot of the store to a file.

        ``progress(pages, total)`` is called from another thread. Raises `UsageError` for
        PostgreSQL, which has its own tools.
        """
        await self._db.backup(to, progress)

    async def check(self) -> list[str]:
        """Check the integrity of the store, and return the problems as messages."""
        return await self._db.check()
