"""Where the parts are wired: configuration -> store -> fetcher -> brain -> aggregator, and for `tidings serve` hubs and pages.

Commands that poll open the same parts without the pages. Other commands may work on the same store while the service runs.
"""

import asyncio
import errno
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tidings import event_loop, logs
from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.contact import stored_contact
from tidings.aggregator.distributed_scheduler import DistributedScheduler
from tidings.aggregator.scheduler import Scheduler
from tidings.config import Config, ConfigError, Setting, config_of
from tidings.errors import UsageError
from tidings.fetch import Fetcher, FetchSettings
from tidings.policy import Policy
from tidings.policy.constraints import Limits
from tidings.policy.registry import make_policy
from tidings.store import Store, StoreError
from tidings.store.connection import Database
from tidings.store.feed_models import PollOutcome, RecordResult
from tidings.web.metrics import PollCounters

#: Polls under way when the service is told to stop have this long; what is not done then is due again after its lease.
GRACE_S = 5.0
#: Between two requests for pictures of articles to one host.
PICTURE_SPACING_S = 0.05
#: How often the store is looked at for feeds that other processes have added or made due.
WATCH_INTERVAL_S = 2.0

if TYPE_CHECKING:
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp

    from tidings.aggregator.peer_exchange import PeerExchange

#: Changes in the store whenever a process that is not the service has polled.
EXTERNAL_POLL_KEY = "visit"

log = logs.Log("tidings.service")
T = TypeVar("T")
Clock = Callable[[], float]
StoreLocation = Path | str  #: of the store: a file, or the address of a PostgreSQL database
Sleep = Callable[[float], Awaitable[object]]


class ObservableStore(Store):
    """The store; whatever is recorded is told to those who listen: figures for `/metrics`, pages that are open, our hub."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        self.counts = PollCounters()
        self.last_external_poll: bytes | None = (
            None  #: the last of another process whose polls we know
        )
        self.listeners: list[Callable[[Sequence[PollOutcome], Sequence[RecordResult]], None]] = [
            self.counts.count_polls
        ]

    async def record(self, outcomes: Sequence[PollOutcome]) -> list[RecordResult]:
        recorded = await super().record(outcomes)
        for listener in self.listeners:
            listener(outcomes, recorded)
        return recorded


def check_policy(settings: Mapping[str, Setting]) -> Policy:
    """The policy that the configuration names, or a refusal that says where it is named."""
    setting = settings["policy.name"]
    try:
        return make_policy(setting.value, live=True)
    except UsageError as error:
        raise ConfigError(setting.origin, str(error)) from None


def make_scheduler(settings: Mapping[str, Setting], store: Store) -> Scheduler:
    """Where several processes may work, one that keeps all it knows in the store, if the policy can."""
    config, policy = config_of(settings), check_policy(settings)
    limits = Limits(config.min_interval_s)
    if store.allows_multiple_processes and policy.extends:
        return DistributedScheduler(
            lambda: check_policy(settings),
            config.budget,
            store,
            limits,
            bytes_per_day=config.bytes_per_day,
        )
    return Scheduler(policy, config.budget, limits=limits, bytes_per_day=config.bytes_per_day)


def fetch_settings(config: Config) -> FetchSettings:
    """The section ``fetch``, whose options have the names that the fetcher knows, with the contact that holds."""
    names = [row.name for row in fields(config) if row.name.startswith("fetch_")]
    options = {name.removeprefix("fetch_"): getattr(config, name) for name in names}
    return FetchSettings(**options | {"contact_url": config.contact_url})


@asynccontextmanager
async def open_polling(
    settings: Mapping[str, Setting],
    location: StoreLocation,
    *,
    serving: bool = False,
    clock: Clock = time.time,
    sleep: Sleep = asyncio.sleep,
    fetcher_settings: FetchSettings | None = None,
) -> AsyncIterator[Aggregator]:
    """All parts that polling needs; with ``serving``, as the only one that serves this file, or as one of many workers."""
    config = config_of(settings)
    async with ObservableStore.open(
        location, clock=clock, serving=serving, threads=serving
    ) as store:
        assert isinstance(store, ObservableStore)
        store.last_external_poll = (await store.load_values()).get(EXTERNAL_POLL_KEY)
        fetcher_settings = fetcher_settings or fetch_settings(config)
        if not fetcher_settings.contact_url:
            fetcher_settings = replace(fetcher_settings, contact_url=await stored_contact(store))
        scheduler = make_scheduler(settings, store)
        worker = (
            f"{socket.gethostname()}:{os.getpid()}"
            if isinstance(scheduler, DistributedScheduler)
            else ""
        )
        if (
            serving
            and store.allows_multiple_processes
            and not worker
            and not await store.acquire_leadership()
        ):
            raise UsageError(
                f"another process polls this database, and {scheduler.policy.name} plans for all feeds in one: "
                "stop the other, or choose a policy that several can share, such as price"
            )
        async with (
            Fetcher(fetcher_settings, clock, sleep=sleep) as fetcher,
            Aggregator(
                store,
                fetcher,
                scheduler,
                clock,
                sleep=sleep,
                retain_days=config.store_retain_days,
                retain_entries=config.store_retain_entries,
                worker=worker,
            ) as aggregator,
        ):
            yield aggregator
        if not serving:
            await store.save_values({EXTERNAL_POLL_KEY: str(clock()).encode()})


def serve(
    settings: Mapping[str, Setting],
    location: StoreLocation,
    echo: Callable[[str], object],
    *,
    polling: bool = True,
) -> None:
    """Serve until Ctrl-C or SIGTERM, both of which are a clean end; without ``polling``, pages alone."""
    config = config_of(settings)
    check_policy(settings)
    _configure_logging(config)
    with listen(config.serve_host, config.serve_port) as server_socket:
        run_until_signal(
            lambda stop: run_service(settings, location, server_socket, stop, echo, polling=polling)
        )


def run_worker(
    settings: Mapping[str, Setting], location: StoreLocation, echo: Callable[[str], object]
) -> None:
    """Poll, as one of any number of processes that share a database, until Ctrl-C or SIGTERM."""
    if isinstance(location, Path):
        raise UsageError(
            "workers share a PostgreSQL database: name it with --database postgresql://USER@HOST/NAME"
        )
    if not check_policy(settings).extends:
        raise ConfigError(
            settings["policy.name"].origin,
            "plans for all feeds in one process; workers need price, say",
        )
    _configure_logging(config_of(settings))

    async def poll(stop: asyncio.Event) -> None:
        async with open_polling(settings, location, serving=True) as aggregator:
            if config_of(settings).exchange_enabled:
                from tidings.aggregator.poll_notices import NoticePublisher

                aggregator.polls.notice_publisher = NoticePublisher(aggregator.store)
            echo("working (Ctrl-C stops it)")
            await run_polling(aggregator, settings, stop)
        echo("stopped")

    run_until_signal(poll)


async def run_polling(
    aggregator: Aggregator,
    settings: Mapping[str, Setting],
    stop: asyncio.Event,
    clock: Clock = time.time,
) -> None:
    """Poll until ``stop``; then what is under way has a moment to end."""
    async with _raise_first_error(), asyncio.TaskGroup() as tasks:
        polling = tasks.create_task(aggregator.run(stop))
        watching = tasks.create_task(_watch_other_processes(aggregator, settings, clock))
        await stop.wait()
        watching.cancel()
        await asyncio.wait({polling}, timeout=GRACE_S)
        polling.cancel()


def _configure_logging(config: Config) -> None:
    logs.configure_logging(config.log_level, config.log_format)
    for name in ("uvicorn", "asyncio", "apprise"):
        logging.getLogger(name).handlers[:] = logging.getLogger("tidings").handlers
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def run_until_signal(work: Callable[[asyncio.Event], Coroutine[Any, Any, T]]) -> T:
    """Work that is told by an event when Ctrl-C or SIGTERM wants it to end."""

    async def run() -> T:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        return await work(stop)

    return event_loop.run(run())


def serve_until_signal(app: "ASGIApp", server_socket: socket.socket) -> None:
    """An application alone, until Ctrl-C or SIGTERM."""
    from tidings.web.server import serving

    async def answer(stop: asyncio.Event) -> None:
        async with serving(app, server_socket):
            await stop.wait()

    run_until_signal(answer)


async def run_service(
    settings: Mapping[str, Setting],
    location: StoreLocation,
    server_socket: socket.socket,
    stop: asyncio.Event,
    echo: Callable[[str], object],
    *,
    polling: bool = True,
) -> None:
    """The service itself: poll, take pushes and answer, until ``stop``."""
    async with open_polling(settings, location, serving=True) as aggregator:
        echo(f"tidings is at {address(server_socket)} (Ctrl-C stops it)")
        await serve_aggregator(aggregator, settings, server_socket, stop, polling=polling)
    echo("stopped")


async def serve_aggregator(
    aggregator: Aggregator,
    settings: Mapping[str, Setting],
    server_socket: socket.socket,
    stop: asyncio.Event,
    *,
    polling: bool = True,
    clock: Clock = time.time,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Everything around an aggregator: hubs, pages, and what other processes do to its store."""
    # Here and not above, because commands that only poll need none of it.
    from tidings.aggregator.websub import Subscriber
    from tidings.users import EventBus, TrustedProxy, UserService
    from tidings.users.favicons import FaviconFetcher
    from tidings.users.full_text import FullTextFetcher
    from tidings.users.notification_sender import NotificationSender
    from tidings.web import api
    from tidings.web.api.webhook import event
    from tidings.web.app import make_app
    from tidings.web.hub import Hub
    from tidings.web.request_context import Site
    from tidings.web.server import EmbeddedServer
    from tidings.web.sse import EventStreams
    from tidings.web.status import StatusReporter

    public_url = settings["serve.public_url"].value
    store, fetcher = aggregator.store, aggregator.fetcher
    assert isinstance(store, ObservableStore)
    async with (
        _raise_first_error(),
        Subscriber(
            store,
            fetcher,
            clock,
            public_url=public_url,
            on_content=aggregator.handle_push,
            on_ping=aggregator.handle_ping,
            sleep=sleep,
        ) as hub_subscriber,
        # A page has twenty pictures of one host, and somebody waits for them.
        Fetcher(
            replace(fetcher.settings, host_spacing_s=PICTURE_SPACING_S), clock, sleep=sleep
        ) as image_fetcher,
    ):
        aggregator.polls.hub_subscriber = hub_subscriber
        config = config_of(settings)
        proxy = TrustedProxy(
            config.serve_proxy_header,
            tuple(config.serve_proxy_addresses.replace(" ", "").split(",")),
        )
        live, events, user_service = (
            StatusReporter(aggregator, hub_subscriber, store.counts, clock),
            EventBus(),
            UserService(store, clock, proxy),
        )
        icons, notification_sender = (
            FaviconFetcher(aggregator, clock),
            NotificationSender(store, fetcher, clock, event),
        )
        site = Site(
            live,
            user_service,
            events,
            icons,
            clock,
            image_fetcher=image_fetcher,
            public_url=public_url,
        )
        hub, streams = Hub(site, fetcher, clock), EventStreams(site)
        store.listeners += [events.recorded, hub.changed]
        async with (
            open_exchange(
                aggregator,
                settings,
                server_socket,
                await user_service.key("exchange"),
                clock,
                sleep,
            ) as (
                site.peer_exchange,
                exchange_routes,
            ),
            asyncio.TaskGroup() as tasks,
        ):
            pages = EmbeddedServer(
                make_app(site, hub, streams, [*api.routes(site), *exchange_routes])
            )
            serving = tasks.create_task(pages.serve(sockets=[server_socket]))
            works = (
                hub_subscriber.run(),
                hub.run(),
                icons.run(),
                notification_sender.run(),
                FullTextFetcher(aggregator, clock).run(),
            )
            background_tasks = [tasks.create_task(work) for work in works]
            log.info("serving", address=address(server_socket), polling=polling)
            if polling:
                tasks.create_task(run_polling(aggregator, settings, stop, clock))
            await stop.wait()
            log.info("stopping", polls_in_flight=aggregator.polls_in_flight)
            pages.should_exit = True
            streams.close()
            for task in background_tasks:
                task.cancel()
            await asyncio.wait({serving}, timeout=GRACE_S)


@asynccontextmanager
async def open_exchange(
    aggregator: Aggregator,
    settings: Mapping[str, Setting],
    server_socket: socket.socket,
    secret: bytes,
    clock: Clock,
    sleep: Sleep,
) -> "AsyncIterator[tuple[PeerExchange | None, list[BaseRoute]]]":
    """The exchange, where it is on, with the routes by which neighbours come in if they have no port of their own."""
    config = config_of(settings)
    if not config.exchange_enabled:
        yield None, []
        return
    from starlette.applications import Starlette

    from tidings.aggregator.exchange_setup import (
        LISTEN_ADDRESS_KEY,
        check_exchange_config,
        make_peer_exchange,
    )
    from tidings.web.server import serving

    own = (
        listen(config.exchange_host or config.serve_host, config.exchange_port)
        if config.exchange_port
        else None
    )
    bound_address = (own or server_socket).getsockname()
    check_exchange_config(config, bound_address[0])
    peer_exchange = make_peer_exchange(
        aggregator, config, bound_address[0], bound_address[1], secret, clock, sleep=sleep
    )
    routes: list[BaseRoute] = [*peer_exchange.exchange.routes()]
    await aggregator.store.save_values(
        {LISTEN_ADDRESS_KEY: f"{bound_address[0]} {bound_address[1]}".encode()}
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(peer_exchange)
        if own is not None:
            stack.enter_context(own)
            await stack.enter_async_context(
                serving(Starlette(routes=routes), own, config.exchange_certificate or None)
            )
        yield peer_exchange, routes if own is None else []


@asynccontextmanager
async def _raise_first_error() -> AsyncIterator[None]:
    """What ends a part ends the service; the one error that began it says why."""
    try:
        yield
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures


async def _watch_other_processes(
    aggregator: Aggregator, settings: Mapping[str, Setting], clock: Clock
) -> None:
    """Other processes add feeds, or make them due (`tidings import`), and some poll: what they learned is taken up."""
    store = aggregator.store
    assert isinstance(store, ObservableStore)
    while True:
        await asyncio.sleep(WATCH_INTERVAL_S)
        now = clock()
        with suppress(StoreError):  # the loop that polls has told of it, and tries again as we do
            for pause in await store.paused_hosts():
                aggregator.fetcher.host_limiter.pause(pause.host, pause.until)
            if not aggregator.fetcher.settings.contact_url and (
                contact := await stored_contact(store)
            ):
                aggregator.fetcher.set_contact_url(contact)  # entered in another process
            if (
                not store.allows_multiple_processes
                and (last := (await store.load_values()).get(EXTERNAL_POLL_KEY))
                != store.last_external_poll
            ):
                store.last_external_poll, scheduler = last, make_scheduler(settings, store)
                await scheduler.start(store, now)
                aggregator.set_scheduler(scheduler)
                log.info("another process has polled; what it learned is taken up")
                aggregator.wake()
            due = await store.next_due()
            if due is not None and due <= now:
                aggregator.wake()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, or a refusal that says what to do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except socket.gaierror as error:
        raise UsageError(
            f"--host {host}: {error.strerror}; name an address of this machine, such as 127.0.0.1"
        ) from None
    except OSError as error:
        raise UsageError(_listen_error(error, host, port)) from None


def address(server_socket: socket.socket) -> str:
    host, port = server_socket.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _listen_error(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use; stop what listens there, or choose another with --port (0 picks a free one)"
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges; choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host}: is not an address of this machine; try 127.0.0.1"
    return f"cannot listen on {host} port {port}: {error.strerror}"
