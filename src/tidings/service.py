"""Construction of the running service from the configuration.

`tidings serve` runs the aggregator, WebSub, the web application and the peer exchange. `tidings
worker` runs the aggregator only. Commands that poll once use `open_polling`. Other commands may use
the same store at the same time.
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
from tidings.i18n import _
from tidings.policy import Policy
from tidings.policy.constraints import Limits
from tidings.policy.registry import make_policy
from tidings.store import Store, StoreError
from tidings.store.connection import Database
from tidings.store.feed_models import PollOutcome, RecordResult
from tidings.web.metrics import PollCounters

#: Time in seconds for running polls to finish at shutdown. A feed whose poll does not finish is due
#: again when its lease expires.
GRACE_S = 5.0
#: Minimum time in seconds between two requests to one host for images of articles.
PICTURE_SPACING_S = 0.05
#: Interval in seconds of checks whether other processes have added feeds or made them due.
WATCH_INTERVAL_S = 2.0

if TYPE_CHECKING:
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp

    from tidings.aggregator.peer_exchange import PeerExchange

#: Key of a stored value that changes when a process other than the service has polled feeds.
EXTERNAL_POLL_KEY = "visit"

log = logs.Log("tidings.service")
T = TypeVar("T")
Clock = Callable[[], float]
StoreLocation = Path | str  #: the SQLite file, or the URL of a PostgreSQL database
Sleep = Callable[[float], Awaitable[object]]


class ObservableStore(Store):
    """Store that calls listener functions after it has recorded a batch of polls.

    Listeners are the metrics, the event streams and the WebSub hub.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        self.counts = PollCounters()
        #: Value of `EXTERNAL_POLL_KEY` that the scheduler's state includes.
        self.last_external_poll: bytes | None = None
        self.listeners: list[Callable[[Sequence[PollOutcome], Sequence[RecordResult]], None]] = [
            self.counts.count_polls
        ]

    async def record(self, outcomes: Sequence[PollOutcome]) -> list[RecordResult]:
        recorded = await super().record(outcomes)
        for listener in self.listeners:
            listener(outcomes, recorded)
        return recorded


def check_policy(settings: Mapping[str, Setting]) -> Policy:
    """Create the configured scheduling policy.

    Raises `ConfigError` with the place where the policy was set if the policy is invalid.
    """
    setting = settings["policy.name"]
    try:
        return make_policy(setting.value, live=True)
    except UsageError as error:
        raise ConfigError(setting.origin, str(error)) from None


def make_scheduler(settings: Mapping[str, Setting], store: Store) -> Scheduler:
    """Create the scheduler for the configured policy and the database.

    It is a `DistributedScheduler` if both database and policy allow several processes.
    """
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
    """Return the settings of the fetcher, which are the options of the section ``fetch``."""
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
    """Open the store, the fetcher and the aggregator for polling, and close them afterwards.

    ``serving`` is True for long-running processes: the only one on a SQLite file, or one of several
    workers on PostgreSQL. ``fetcher_settings`` overrides the settings of the configuration.
    """
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
                _(
                    "another process already polls this database; stop it, or "
                    "replace the policy %(policy)s with one for several processes, "
                    "such as price",
                    policy=scheduler.policy.name,
                )
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
    """Run the service until Ctrl-C or SIGTERM, then finish running polls and stop.

    Without ``polling``, only the web application runs. ``echo`` prints messages for the user.
    """
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
    """Poll feeds until Ctrl-C or SIGTERM, as one of several processes on a shared database.

    Raises `UsageError` without a PostgreSQL database and `ConfigError` if the policy cannot be
    shared.
    """
    if isinstance(location, Path):
        raise UsageError(
            _(
                "workers need a PostgreSQL database: set it with --database "
                "postgresql://USER@HOST/NAME"
            )
        )
    if not check_policy(settings).extends:
        raise ConfigError(
            settings["policy.name"].origin,
            _("this policy cannot run in workers; choose another one, such as price"),
        )
    _configure_logging(config_of(settings))

    async def poll(stop: asyncio.Event) -> None:
        async with open_polling(settings, location, serving=True) as aggregator:
            if config_of(settings).exchange_enabled:
                from tidings.aggregator.poll_notices import NoticePublisher

                aggregator.polls.notice_publisher = NoticePublisher(aggregator.store)
            echo(_("worker started (press Ctrl-C to stop)"))
            await run_polling(aggregator, settings, stop)
        echo(_("tidings has stopped"))

    run_until_signal(poll)


async def run_polling(
    aggregator: Aggregator,
    settings: Mapping[str, Setting],
    stop: asyncio.Event,
    clock: Clock = time.time,
) -> None:
    """Poll feeds until ``stop`` is set, then wait up to `GRACE_S` seconds for running polls."""
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
    """Run ``work`` with an event that is set by Ctrl-C or SIGTERM, and return its result."""

    async def run() -> T:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        return await work(stop)

    return event_loop.run(run())


def serve_until_signal(app: "ASGIApp", server_socket: socket.socket) -> None:
    """Serve one ASGI application until Ctrl-C or SIGTERM."""
    from tidings.web.server import serve_app

    async def answer_requests(stop: asyncio.Event) -> None:
        async with serve_app(app, server_socket):
            await stop.wait()

    run_until_signal(answer_requests)


async def run_service(
    settings: Mapping[str, Setting],
    location: StoreLocation,
    server_socket: socket.socket,
    stop: asyncio.Event,
    echo: Callable[[str], object],
    *,
    polling: bool = True,
) -> None:
    """Run the aggregator and the web application until ``stop`` is set."""
    async with open_polling(settings, location, serving=True) as aggregator:
        echo(
            _(
                "tidings is running at %(url)s (press Ctrl-C to stop)",
                url=address(server_socket),
            )
        )
        await serve_aggregator(aggregator, settings, server_socket, stop, polling=polling)
    echo(_("tidings has stopped"))


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
    """Run the web application and all background tasks for an aggregator until ``stop`` is set.

    The background tasks are polling, WebSub, notifications, favicons, full texts and the peer
    exchange.
    """
    # Imported here because commands that only poll do not need these modules.
    from tidings.aggregator.websub import Subscriber
    from tidings.users import EventBus, TrustedProxy, UserService
    from tidings.users.favicons import FaviconFetcher
    from tidings.users.full_text import FullTextFetcher
    from tidings.users.notification_sender import NotificationSender
    from tidings.web import api
    from tidings.web.api.webhook import encode_event
    from tidings.web.app import make_app
    from tidings.web.hub import Hub
    from tidings.web.request_context import AppServices
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
        # A page may have twenty images of one host, and a user waits for them.
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
            NotificationSender(store, fetcher, clock, encode_event),
        )
        site = AppServices(
            live,
            user_service,
            events,
            icons,
            clock,
            image_fetcher=image_fetcher,
            public_url=public_url,
        )
        hub, streams = Hub(site, fetcher, clock), EventStreams(site)
        store.listeners += [events.publish_polls, hub.on_polls_recorded]
        async with (
            open_exchange(
                aggregator,
                settings,
                server_socket,
                await user_service.signing_key("exchange"),
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
            background_work = (
                hub_subscriber.run(),
                hub.run(),
                icons.run(),
                notification_sender.run(),
                FullTextFetcher(aggregator, clock).run(),
            )
            background_tasks = [tasks.create_task(work) for work in background_work]
            log.info("service_started", address=address(server_socket), polling=polling)
            if polling:
                tasks.create_task(run_polling(aggregator, settings, stop, clock))
            await stop.wait()
            log.info("service_stopping", polls_in_flight=aggregator.polls_in_flight)
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
    """Start the peer exchange if it is enabled, and stop it afterwards.

    Yields the exchange, or None if it is disabled, and its routes for the main port. With
    ``exchange.port``, peers are served on a separate port and the list of routes is empty.
    """
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
    from tidings.web.server import serve_app

    separate_socket = (
        listen(config.exchange_host or config.serve_host, config.exchange_port)
        if config.exchange_port
        else None
    )
    bound_address = (separate_socket or server_socket).getsockname()
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
        if separate_socket is not None:
            stack.enter_context(separate_socket)
            await stack.enter_async_context(
                serve_app(
                    Starlette(routes=routes), separate_socket, config.exchange_certificate or None
                )
            )
        yield peer_exchange, routes if separate_socket is None else []


@asynccontextmanager
async def _raise_first_error() -> AsyncIterator[None]:
    """Raise the first error of an `ExceptionGroup` instead of the group."""
    try:
        yield
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures


async def _watch_other_processes(
    aggregator: Aggregator, settings: Mapping[str, Setting], clock: Clock
) -> None:
    """React to changes that other processes have made in the store.

    Such changes are new or due feeds, host pauses, a contact URL, and polls by other commands.
    """
    store = aggregator.store
    assert isinstance(store, ObservableStore)
    while True:
        await asyncio.sleep(WATCH_INTERVAL_S)
        now = clock()
        with suppress(StoreError):  # the polling loop logs the error, and both loops retry
            for pause in await store.paused_hosts():
                aggregator.fetcher.host_limiter.pause(pause.host, pause.until)
            if not aggregator.fetcher.settings.contact_url and (
                contact := await stored_contact(store)
            ):
                aggregator.fetcher.set_contact_url(contact)  # entered through another process
            if (
                not store.allows_multiple_processes
                and (last := (await store.load_values()).get(EXTERNAL_POLL_KEY))
                != store.last_external_poll
            ):
                store.last_external_poll, scheduler = last, make_scheduler(settings, store)
                await scheduler.start(store, now)
                aggregator.set_scheduler(scheduler)
                log.info("scheduler_reloaded")
                aggregator.wake()
            due = await store.next_due()
            if due is not None and due <= now:
                aggregator.wake()


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket, or raise `UsageError` with a suggestion if that fails."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except socket.gaierror as error:
        raise UsageError(
            _(
                "--host %(host)s: %(error)s; use an address of this machine, such as 127.0.0.1",
                host=host,
                error=error.strerror,
            )
        ) from None
    except OSError as error:
        raise UsageError(_listen_error(error, host, port)) from None


def address(server_socket: socket.socket) -> str:
    host, port = server_socket.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _listen_error(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return _(
            "port %(port)s is already in use; stop the other program, or choose another port with "
            "--port (0 picks a free one)",
            port=port,
        )
    if error.errno == errno.EACCES:
        return _(
            "port %(port)s needs root privileges; choose one above 1023 with --port", port=port
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return _("--host %(host)s is not an address of this machine; try 127.0.0.1", host=host)
    return _(
        "cannot listen on %(host)s port %(port)s: %(error)s",
        host=host,
        port=port,
        error=error.strerror,
    )
