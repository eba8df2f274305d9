"""Polls under way: each is a task that goes from the claim of its feed to the record of what it brought, and what follows."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tidings.aggregator.brain import Brain
from tidings.aggregator.reader import Seen, host_of
from tidings.aggregator.recorder import Recorder
from tidings.aggregator.repair import Repairer
from tidings.document import Links
from tidings.fetch import Fetcher
from tidings.fetch.addresses import parse_url
from tidings.logs import Log
from tidings.reasons import Reason
from tidings.store import Store, StoreError
from tidings.store.feeds import host_of as leased_host
from tidings.store.rows import Feed, PollOutcome, Recorded, Schedule

if TYPE_CHECKING:  # those who only poll need no hubs
    from tidings.aggregator.neighbours import Neighbourhood
    from tidings.aggregator.push import Subscriber
    from tidings.aggregator.sights import Messenger

#: Longer than any poll takes, with its wait for the host's turn.
LEASE_S = 900.0
#: Feeds of one host under way at once; more would wait in line and keep others from being asked.
MOST_PER_HOST = 20

log = Log("tidings.aggregator")


class Skipped(Struct, frozen=True):
    """A feed that was not polled although somebody asked for it."""

    feed_id: int
    reason: Reason


class Brought(Struct, frozen=True):
    """What one poll came to."""

    new: int = 0
    changed: int = 0
    failed: bool = False
    skipped: Skipped | None = None


class Polls:
    """Those that have been begun and are not yet recorded."""

    def __init__(
        self,
        store: Store,
        fetcher: Fetcher,
        brain: Brain,
        clock: Callable[[], float],
        *,
        sleep: Callable[[float], Awaitable[object]],
        worker: str,
        wake: Callable[[], None],
    ) -> None:
        """``wake`` is called whenever one has ended."""
        self._store, self._fetcher, self._clock, self._worker, self._wake = store, fetcher, clock, worker, wake
        self.recorder = Recorder(store, brain, sleep)
        self.repairer = Repairer(store, fetcher, clock)
        self.tasks: dict[int, asyncio.Task[Brought]] = {}  #: by feed
        self.pinged: set[int] = set()  #: a hub has said that there is news of these, which will be asked
        self._held: dict[int, Feed] = {}  # what was claimed and is not recorded
        self._per_host: dict[str, int] = {}
        self._asked_out: list[tuple[str, float]] = []  # hosts that others may have, and from when
        self._with_gaps: set[int] = set()
        self.hubs: Subscriber | None = None  #: set by who has one: it is told of hubs, and tells what they are worth
        self.neighbours: Neighbourhood | None = None  #: set by who has one: it is told what polls have shown
        self.messenger: Messenger | None = None  #: the same, where another process has the neighbours

    async def open(self) -> None:
        self._with_gaps = {gap.feed_id for gap in await self._store.gaps(state="open", limit=10_000)}

    async def close(self) -> None:
        """Let go of all: what was begun is due again, for whoever comes next."""
        for task in self.tasks.values():
            task.cancel()
        await self.finish()
        await self.recorder.close()
        await self._store.release(list(self._held.values()), self._worker, self._fetcher.settings.host_spacing_s)

    async def finish(self) -> None:
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    async def free_hosts(self) -> None:
        """Let other workers have the hosts that we have asked all we wanted."""
        if self._asked_out:
            held = {leased_host(feed.url) for feed in self._held.values()}
            hosts, self._asked_out = [one for one in self._asked_out if one[0] not in held], []
            await self._store.free(hosts, self._worker)

    def is_crowded(self, url: str) -> bool:
        """Whether enough feeds of its host are under way; hosts without limits are never crowded."""
        if self._per_host.get(host_of(url), 0) < MOST_PER_HOST:
            return False
        try:
            return not self._fetcher.is_exempt(str(parse_url(url).raw_host))
        except ValueError:
            return False

    def is_held(self, feed_id: int) -> bool:
        """Whether a feed was claimed for a poll that is not recorded yet: that poll will give it its next time."""
        return feed_id in self._held

    async def hold(self, feed_id: int) -> Feed | None:
        """Claim a feed once nobody is at it; None if it cannot be claimed. Begin before anything is awaited."""
        while True:
            while feed_id in self.tasks:
                await asyncio.wait([self.tasks[feed_id]])
            claimed = await self._store.claim(1, lease_s=LEASE_S, feed_ids=[feed_id])
            if feed_id not in self.tasks:
                return claimed[0] if claimed else None

    def begin(self, feed: Feed, look: Callable[[], Awaitable[Seen]]) -> "asyncio.Task[Brought]":
        """Of a feed that was claimed; ``look`` asks for it, or has what somebody sent."""
        self._held[feed.id] = feed
        task = self.tasks[feed.id] = asyncio.create_task(self._finish(feed, look))
        return task

    async def _finish(self, feed: Feed, look: Callable[[], Awaitable[Seen]]) -> Brought:
        host = host_of(feed.url)
        self._per_host[host] = self._per_host.get(host, 0) + 1
        self.pinged.discard(feed.id)
        self.recorder.looking += 1
        looking = True
        try:
            seen = await look()
            if not seen.asked:
                return await self._put_off(seen)
            looking = False
            self.recorder.looking -= 1
            if self.neighbours is None and self.messenger is None:
                seen = replace(seen, document=None)  # it takes half the memory of a poll that waits to be recorded
            outcome, what = await self.recorder.record(seen)
            self._held.pop(feed.id, None)
            self._tell(seen, outcome, what)
            if (told := self.neighbours or self.messenger) is not None:
                told.polled(seen)
            if seen.links is not None:
                await self._after_document(seen, seen.links)
            return Brought(new=len(what.new), changed=what.changed, failed=bool(outcome.error_kind))
        except Exception as error:  # whatever it was, one feed's trouble must not end the loop for all
            self._held.pop(feed.id, None)
            if isinstance(error, StoreError):
                log.warning("a poll could not be recorded; it is due again", feed=feed.id, url=feed.url, error=str(error))
            else:
                log.exception("a poll was not finished; if it was not recorded, it is due again", feed=feed.id, url=feed.url)
            return Brought(failed=True)
        finally:
            self.recorder.looking -= looking
            del self.tasks[feed.id]
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]
                if self._worker:
                    self._asked_out.append((leased_host(feed.url), self._clock() + self._fetcher.settings.host_spacing_s))
            self._wake()

    async def _put_off(self, seen: Seen) -> Brought:
        """Its host has asked to be left alone: nothing was asked, nothing is recorded but the new time."""
        (decision,) = await self.recorder.decide([seen.look])
        await self._store.reschedule([Schedule(seen.feed.id, decision.at, decision.reason)])
        self._held.pop(seen.feed.id, None)
        return Brought(skipped=Skipped(seen.feed.id, seen.look.failure))

    def _tell(self, seen: Seen, outcome: PollOutcome, what: Recorded) -> None:
        if outcome.retire:
            self.recorder.brain.forget(outcome.feed_id)
        if outcome.gap is not None:
            self._with_gaps.add(outcome.feed_id)
            log.info("gap suspected", feed=outcome.feed_id, lost=outcome.gap.lost)
        if seen.notice:
            log.warning("notice", feed=outcome.feed_id, url=seen.feed.url, says=seen.notice)
        state = outcome.state
        log.info(
            "polled",
            feed=outcome.feed_id,
            status=outcome.status,
            new=len(what.new),
            changed=what.changed,
            error=outcome.error_kind,
            next=state.next_poll_at if state is not None else None,
            reason=state.reason.code if state is not None else "",
        )

    async def _after_document(self, seen: Seen, links: Links) -> None:
        """Look for what was lost, and for a hub that would tell sooner."""
        feed, brain = seen.feed, self.recorder.brain
        if feed.id in self._with_gaps:
            await brain.spend(await self.repairer.repair(feed, links), self._clock(), beside=True)
            if not await self._store.gaps(feed_id=feed.id, state="open", limit=1):
                self._with_gaps.discard(feed.id)
        if self.hubs is not None and seen.outcome.source == "poll" and seen.outcome.state is not None:
            found = [entry.published_at for entry in seen.outcome.new if entry.delay_s is not None]
            await self.hubs.consider(replace(feed, state=seen.outcome.state), found)
            brain.pushed(feed.id, self.hubs.share(feed.id))
