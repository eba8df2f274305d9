"""Start the tidings services of a demo on the demo's clock, with a history of polls."""

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
from tidings.demo.demo import PASSWORD, PEER_CLIENT, USER_NAME, Demo, DemoInstance, Plan
from tidings.demo.publisher_server import ClientRecord, PublisherServer
from tidings.demo.simulated_publishers import SimulatedPublishers
from tidings.exchange.listserver import ListServer
from tidings.model import DAY_S
from tidings.parse import parse
from tidings.policy.constraints import ASSUMED_CONDITIONAL_SHARE
from tidings.store import Store, icons
from tidings.store.feed_models import FeedState, NewSubscription, PollOutcome
from tidings.store.user_models import Stream
from tidings.users import ReaderService, UserService
from tidings.web.server import serve_app

#: Seconds between checks whether all services have started.
READY_CHECK_S = 0.02


@asynccontextmanager
async def open_demo(plan: Plan) -> AsyncIterator[Demo]:
    """Run a demo in a temporary directory inside the ``async with`` block.

    At the end, the services are stopped and the directory is deleted.
    """
    publishers = await asyncio.to_thread(SimulatedPublishers, plan.publishers, plan.days, plan.seed)
    clock = Clock(publishers.start, plan.speed)
    clients = [
        ClientRecord(name, plan.publishers)
        for name in dict.fromkeys(instance.client_name for instance in plan.instances)
    ]
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidings-demo-")))
        server = await stack.enter_async_context(PublisherServer(publishers, clock, clients).open())
        list_socket = stack.enter_context(service.listen("127.0.0.1", 0))
        await stack.enter_async_context(
            serve_app(ListServer(clock, seed=plan.seed).app(), list_socket)
        )
        demo = Demo(plan, publishers, clock, server)
        history = await asyncio.to_thread(_build_history, server)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        for instance in plan.instances:
            tasks.create_task(
                _serve(
                    demo,
                    instance,
                    directory / instance.name,
                    history,
                    service.address(list_socket),
                )
            )
        clock.add_busy_check(lambda: len(demo.aggregators) < len(plan.instances))
        background = [tasks.create_task(work) for work in (clock.run(), server.push())]
        try:
            while len(demo.aggregators) < len(plan.instances):
                await asyncio.sleep(READY_CHECK_S)
            yield demo
        finally:
            demo.stop.set()
            for task in background:
                task.cancel()


async def _serve(
    demo: Demo,
    instance: DemoInstance,
    directory: Path,
    history: Sequence[PollOutcome],
    list_server: str,
) -> None:
    """Run one service on the demo's clock."""
    clock = demo.clock
    directory.mkdir(mode=0o700)
    store = directory / "tidings.db"
    await _load_history(demo, instance, store, history)
    with service.listen("127.0.0.1", 0) as server_socket:
        address = service.address(server_socket)
        settings = _settings(directory, instance, address, list_server)
        async with service.open_polling(
            settings, store, serving=True, clock=clock, sleep=clock.sleep
        ) as aggregator:
            demo.aggregators[instance.name], demo.addresses[instance.name] = aggregator, address
            clock.add_busy_check(lambda: not aggregator.is_idle or aggregator.polls_in_flight > 0)
            if instance.client_name == PEER_CLIENT:
                clock.add_busy_check(
                    lambda: (
                        aggregator.polls.peer_exchange is None
                        or aggregator.polls.peer_exchange.exchange.is_busy
                    )
                )
            await service.serve_aggregator(
                aggregator, settings, server_socket, demo.stop, clock=clock, sleep=clock.sleep
            )


def _settings(
    directory: Path, instance: DemoInstance, address: str, list_server: str
) -> dict[str, Setting]:
    flags = {
        "policy.name": instance.policy,
        "policy.budget": f"{instance.budget:g}/feed",
        "fetch.allow_private": "true",
    }
    if instance.client_name == PEER_CLIENT:
        flags |= {
            "exchange.enabled": "true",
            "exchange.lists": list_server.removeprefix("http://").rstrip("/"),
        }
    return read(directory, {}, {**flags, "serve.public_url": address})


def _build_history(server: PublisherServer) -> list[PollOutcome]:
    """Return one poll outcome per feed, with all posts before the start of the demo."""
    publishers, outcomes = server.publishers, []
    for feed, kind in enumerate(publishers.kinds):
        end = publishers.published(feed, publishers.start)
        times = publishers.times(feed)[:end].tolist()
        document = parse(
            server.document(feed, 0, end),
            content_type="application/rss+xml",
            url="http://127.0.0.1/",
        )
        # Feed documents list the newest entry first.
        new = [
            entry_text(e, EntryDates(at, None, at))
            for e, at in zip(document.entries, reversed(times), strict=True)
        ]
        shown = times[max(end - kind.window, 0) :]
        size = len(server.document(feed, max(end - kind.window, 0), end))
        state = FeedState(
            title=publishers.names[feed],
            site_url=server.site(feed),
            window=kind.window,
            shown=len(shown),
            usual_gap_s=(shown[-1] - shown[0]) / (len(shown) - 1) if len(shown) > 1 else None,
            not_modified=ASSUMED_CONDITIONAL_SHARE,
            document_bytes=float(size),
            poll_bytes=0.5 * size,
            next_poll_at=publishers.end + DAY_S,  # replaced when the policy has learned the history
            last_poll_at=publishers.start,
            last_ok_at=publishers.start,
        )
        outcomes.append(
            PollOutcome(feed_id=feed, at=publishers.start, new=tuple(reversed(new)), state=state)
        )
    return outcomes


async def _load_history(
    demo: Demo, instance: DemoInstance, path: Path, history: Sequence[PollOutcome]
) -> None:
    """Write the history and a user to the database of a service.

    The user has read all posts except those of the last day. Exchange nodes get the feeds in
    different orders, so that they do not poll at the same times.
    """
    publishers, first = (
        demo.publishers,
        demo.plan.instances.index(instance) * len(history) // len(demo.plan.instances),
    )
    if instance.client_name != PEER_CLIENT:
        first = 0
    async with Store.open(path, clock=lambda: publishers.trace.start) as store:
        order = [*range(first, len(history)), *range(first)]
        subscriptions = [
            NewSubscription(
                demo.server.url(instance.client_name, feed),
                publishers.end,
                folder=publishers.kinds[feed].name.capitalize(),
            )
            for feed in order
        ]
        added = await store.add_subscriptions(subscriptions)
        outcomes = [
            replace(history[feed], feed_id=one.feed_id)
            for feed, one in zip(order, added, strict=True)
        ]
        for first in range(0, len(outcomes), 20):
            await store.record(outcomes[first : first + 20])
        for feed in added:  # no publisher has an icon, so the service need not request one
            await store.write(icons.save, feed.feed_id, None, publishers.start)
        user = await UserService(store, demo.clock).add_user(
            USER_NAME, PASSWORD, admin=True, by=None
        )
        await ReaderService(user, store, demo.clock).mark_all_read(
            Stream(published_until=publishers.start - DAY_S)
        )
