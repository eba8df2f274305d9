"""The services of the demo: each a whole one, with a past of its own, by the demo's clock."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from tidings import service
from tidings.aggregator.entry_dates import EntryDates
from tidings.aggregator.poller import entry_text
from tidings.config import Setting, read
from tidings.demo.clock import Clock
from tidings.demo.demo import FRIENDS, PASSWORD, READER, Demo, Member, Plan
from tidings.demo.publishers import Publishers, Visitor
from tidings.demo.world import World
from tidings.exchange.listserver import ListServer
from tidings.model import DAY_S
from tidings.parse import parse
from tidings.policy.constraints import ASSUMED_CONDITIONAL_SHARE
from tidings.store import Store, icons
from tidings.store.feed_models import FeedState, NewSubscription, PollOutcome
from tidings.store.user_models import Stream
from tidings.users import ReaderService, UserService
from tidings.web.server import serving

#: How often it is looked whether all services are there.
READY_S = 0.02


@asynccontextmanager
async def open_demo(plan: Plan) -> AsyncIterator[Demo]:
    """The demo while it runs, in a folder that goes with it."""
    world = await asyncio.to_thread(World, plan.publishers, plan.days, plan.seed)
    clock = Clock(world.start, plan.speed)
    visitors = [
        Visitor(name, plan.publishers)
        for name in dict.fromkeys(member.visitor for member in plan.members)
    ]
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidings-demo-")))
        publishers = await stack.enter_async_context(Publishers(world, clock, visitors).open())
        lists = stack.enter_context(service.listen("127.0.0.1", 0))
        await stack.enter_async_context(serving(ListServer(clock, seed=plan.seed).app(), lists))
        demo = Demo(plan, world, clock, publishers)
        past = await asyncio.to_thread(_past, publishers)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        for member in plan.members:
            tasks.create_task(
                _serve(demo, member, folder / member.name, past, service.address(lists))
            )
        clock.watch(lambda: len(demo.aggregators) < len(plan.members))
        beside = [tasks.create_task(work) for work in (clock.run(), publishers.push())]
        try:
            while len(demo.aggregators) < len(plan.members):
                await asyncio.sleep(READY_S)
            yield demo
        finally:
            demo.stop.set()
            for task in beside:
                task.cancel()


async def _serve(
    demo: Demo, member: Member, folder: Path, past: Sequence[PollOutcome], lists: str
) -> None:
    """One whole service, by the demo's clock."""
    clock = demo.clock
    folder.mkdir(mode=0o700)
    store = folder / "tidings.db"
    await _remember(demo, member, store, past)
    with service.listen("127.0.0.1", 0) as listening:
        address = service.address(listening)
        settings = _settings(folder, member, address, lists)
        async with service.open_polling(
            settings, store, serving=True, clock=clock, sleep=clock.sleep
        ) as aggregator:
            demo.aggregators[member.name], demo.addresses[member.name] = aggregator, address
            clock.watch(lambda: not aggregator.is_idle or aggregator.polls_in_flight > 0)
            if member.visitor == FRIENDS:
                clock.watch(
                    lambda: (
                        aggregator.polls.peer_exchange is None
                        or aggregator.polls.peer_exchange.exchange.is_busy
                    )
                )
            await service.serve_aggregator(
                aggregator, settings, listening, demo.stop, clock=clock, sleep=clock.sleep
            )


def _settings(folder: Path, member: Member, address: str, lists: str) -> dict[str, Setting]:
    flags = {
        "policy.name": member.policy,
        "policy.budget": f"{member.budget:g}/feed",
        "fetch.allow_private": "true",
    }
    if member.visitor == FRIENDS:
        flags |= {
            "exchange.enabled": "true",
            "exchange.lists": lists.removeprefix("http://").rstrip("/"),
        }
    return read(folder, {}, {**flags, "serve.public_url": address})


def _past(publishers: Publishers) -> list[PollOutcome]:
    """What polling has brought until the demo begins, for all feeds by number: everything, as if no post had been missed."""
    world, outcomes = publishers.world, []
    for feed, kind in enumerate(world.kinds):
        end = world.published(feed, world.start)
        times = world.times(feed)[:end].tolist()
        document = parse(
            publishers.document(feed, 0, end),
            content_type="application/rss+xml",
            url="http://127.0.0.1/",
        )
        # Documents begin with the newest.
        new = [
            entry_text(e, EntryDates(at, None, at))
            for e, at in zip(document.entries, reversed(times), strict=True)
        ]
        shown = times[max(end - kind.window, 0) :]
        size = len(publishers.document(feed, max(end - kind.window, 0), end))
        state = FeedState(
            title=world.names[feed],
            site_url=publishers.site(feed),
            window=kind.window,
            shown=len(shown),
            usual_gap_s=(shown[-1] - shown[0]) / (len(shown) - 1) if len(shown) > 1 else None,
            not_modified=ASSUMED_CONDITIONAL_SHARE,
            document_bytes=float(size),
            poll_bytes=0.5 * size,
            next_poll_at=world.end + DAY_S,  # the policy decides anew as soon as it has learned
            last_poll_at=world.start,
            last_ok_at=world.start,
        )
        outcomes.append(
            PollOutcome(feed_id=feed, at=world.start, new=tuple(reversed(new)), state=state)
        )
    return outcomes


async def _remember(demo: Demo, member: Member, path: Path, past: Sequence[PollOutcome]) -> None:
    """Put the past into a service's store, with somebody who has read all but the last day of it.

    Every service has found the feeds in another order, so friends do not look at the same moment.
    """
    world, first = demo.world, demo.plan.members.index(member) * len(past) // len(demo.plan.members)
    if member.visitor != FRIENDS:
        first = 0
    async with Store.open(path, clock=lambda: world.trace.start) as store:
        order = [*range(first, len(past)), *range(first)]
        wanted = [
            NewSubscription(
                demo.publishers.url(member.visitor, feed),
                world.end,
                folder=world.kinds[feed].name.capitalize(),
            )
            for feed in order
        ]
        added = await store.add(wanted)
        outcomes = [
            replace(past[feed], feed_id=one.feed_id) for feed, one in zip(order, added, strict=True)
        ]
        for first in range(0, len(outcomes), 20):
            await store.record(outcomes[first : first + 20])
        for feed in added:  # nobody here has an icon, and looking for one would cost requests
            await store.write(icons.save, feed.feed_id, None, world.start)
        user = await UserService(store, demo.clock).add_user(READER, PASSWORD, admin=True, by=None)
        await ReaderService(user, store, demo.clock).mark_all_read(
            Stream(published_until=world.start - DAY_S)
        )
