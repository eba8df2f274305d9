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

from tidings import logs, loops
from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.brain import Brain
from tidings.aggregator.contact import stored_contact
from tidings.aggregator.shared import SharedBrain
from tidings.config import Config, ConfigError, Setting, config_of
from tidings.errors import UsageError
from tidings.fetch import Fetcher, FetchSettings
from tidings.policy import Policy
from tidings.policy.constraints import Limits
from tidings.policy.registry import make_policy
from tidings.store import Store, StoreError
from tidings.store.connection import Database
from tidings.store.rows import PollOutcome, Recorded
from tidings.web.metrics import Counts

#: Polls under way when the service is told to stop have this long; what is not done then is due again after its lease.
GRACE_S = 5.0
#: Between two requests for pictures of articles to one host.
PICTURE_SPACING_S = 0.05
#: How often the store is looked at for feeds that other processes have added or made due.
NOTICE_S = 2.0

if TYPE_CHECKING:
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp

    from tidings.aggregator.neighbours import Neighbourhood

#: Changes in the store whenever a process that is not the service has polled.
VISIT = "visit"

log = logs.Log("tidings.service")
T = TypeVar("T")
Clock = Callable[[], float]
Place = Path | str  #: of the store: a file, or the address of a PostgreSQL database
Sleep = Callable[[float], Awaitable[object]]


class CountedStore(Store):
    """The store; whatever is recorded is told to those who listen: figures for `/metrics`, pages that are open, our hub."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        self.counts = Counts()
        self.visit: bytes | None = None  #: the last of another process whose polls we know
        self.listeners: list[Callable[[Sequence[PollOutcome], Sequence[Recorded]], None]] = [self.counts.note]

    async def record(self, outcomes: Sequence[PollOutcome]) -> list[Recorded]:
        recorded = await super().record(outcomes)
        for tell in self.listeners:
            tell(outcomes, recorded)
        return recorded


def check_policy(settings: Mapping[str, Setting]) -> Policy:
    """The policy that the configuration names, or a refusal that says where it is named."""
    setting = settings["policy.name"]
    try:
        return make_policy(setting.value, live=True)
    except UsageError as error:
        raise ConfigError(setting.origin, str(error)) from None


def make_brain(settings: Mapping[str, Setting], store: Store) -> Brain:
    """Where several processes may work, one that keeps all it knows in the store, if the policy can."""
    config, policy = config_of(settings), check_policy(settings)
    limits = Limits(config.min_interval_s)
    if store.for_many and policy.extends:
        return SharedBrain(lambda: check_policy(settings), config.budget, store, limits, bytes_per_day=config.bytes_per_day)
    return Brain(policy, config.budget, limits=limits, bytes_per_day=config.bytes_per_day)


def fetch_settings(config: Config) -> FetchSettings:
    """The section ``fetch``, whose options have the names that the fetcher knows, with the contact that holds."""
    names = [row.name for row in fields(config) if row.name.startswith("fetch_")]
    options = {name.removeprefix("fetch_"): getattr(config, name) for name in names}
    return FetchSettings(**options | {"contact_url": config.contact_url})


@asynccontextmanager
async def open_polling(
    settings: Mapping[str, Setting],
    place: Place,
    *,
    serving: bool = False,
    clock: Clock = time.time,
    sleep: Sleep = asyncio.sleep,
    fetching: FetchSettings | None = None,
) -> AsyncIterator[Aggregator]:
    """All parts that polling needs; with ``serving``, as the only one that serves this file, or as one of many workers."""
    config = config_of(settings)
    async with CountedStore.open(place, clock=clock, serving=serving, threads=serving) as store:
        assert isinstance(store, CountedStore)
        store.visit = (await store.shared()).get(VISIT)
        fetching = fetching or fetch_settings(config)
        if not fetching.contact_url:
            fetching = replace(fetching, contact_url=await stored_contact(store))
        brain = make_brain(settings, store)
        worker = f"{socket.gethostname()}:{os.getpid()}" if isinstance(brain, SharedBrain) else ""
        if serving and store.for_many and not worker and not await store.lead():
            raise UsageError(
                f"another process polls this database, and {brain.policy.name} plans for all feeds in one: "
                "stop the other, or choose a policy that several can share, such as price"
            )
        async with (
            Fetcher(fetching, clock, sleep=sleep) as fetcher,
            Aggregator(
                store,
                fetcher,
                brain,
                clock,
                sleep=sleep,
                retain_days=config.store_retain_days,
                retain_entries=config.store_retain_entries,
                worker=worker,
            ) as aggregator,
        ):
            yield aggregator
        if not serving:
            await store.share({VISIT: str(clock()).encode()})


def serve(settings: Mapping[str, Setting], place: Place, say: Callable[[str], object], *, polling: bool = True) -> None:
    """Serve until Ctrl-C or SIGTERM, both of which are a clean end; without ``polling``, pages alone."""
    config = config_of(settings)
    check_policy(settings)
    _set_up_logs(config)
    with listen(config.serve_host, config.serve_port) as listening:
        run_until_told(lambda stop: attend(settings, place, listening, stop, say, polling=polling))


def work(settings: Mapping[str, Setting], place: Place, say: Callable[[str], object]) -> None:
    """Poll, as one of any number of processes that share a database, until Ctrl-C or SIGTERM."""
    if isinstance(place, Path):
        raise UsageError("workers share a PostgreSQL database: name it with --database postgresql://USER@HOST/NAME")
    if not check_policy(settings).extends:
        raise ConfigError(settings["policy.name"].origin, "plans for all feeds in one process; workers need price, say")
    _set_up_logs(config_of(settings))

    async def poll(stop: asyncio.Event) -> None:
        async with open_polling(settings, place, serving=True) as aggregator:
            if config_of(settings).exchange_enabled:
                from tidings.aggregator.sights import Messenger

                aggregator.polls.messenger = Messenger(aggregator.store)
            say("working (Ctrl-C stops it)")
            await labour(aggregator, settings, stop)
        say("stopped")

    run_until_told(poll)


async def labour(
    aggregator: Aggregator, settings: Mapping[str, Setting], stop: asyncio.Event, clock: Clock = time.time
) -> None:
    """Poll until ``stop``; then what is under way has a moment to end."""
    async with _first_failure(), asyncio.TaskGroup() as tasks:
        polling = tasks.create_task(aggregator.run(stop))
        noticing = tasks.create_task(_notice(aggregator, settings, clock))
        await stop.wait()
        noticing.cancel()
        await asyncio.wait({polling}, timeout=GRACE_S)
        polling.cancel()


def _set_up_logs(config: Config) -> None:
    logs.set_up(config.log_level, config.log_format)
    for name in ("uvicorn", "asyncio", "apprise"):
        logging.getLogger(name).handlers[:] = logging.getLogger("tidings").handlers
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def run_until_told(work: Callable[[asyncio.Event], Coroutine[Any, Any, T]]) -> T:
    """Work that is told by an event when Ctrl-C or SIGTERM wants it to end."""

    async def run() -> T:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        return await work(stop)

    return loops.run(run())


def serve_until_told(app: "ASGIApp", listening: socket.socket) -> None:
    """An application alone, until Ctrl-C or SIGTERM."""
    from tidings.web.server import serving

    async def answer(stop: asyncio.Event) -> None:
        async with serving(app, listening):
            await stop.wait()

    run_until_told(answer)


async def attend(
    settings: Mapping[str, Setting],
    place: Place,
    listening: socket.socket,
    stop: asyncio.Event,
    say: Callable[[str], object],
    *,
    polling: bool = True,
) -> None:
    """The service itself: poll, take pushes and answer, until ``stop``."""
    async with open_polling(settings, place, serving=True) as aggregator:
        say(f"tidings is at {address(listening)} (Ctrl-C stops it)")
        await tend(aggregator, settings, listening, stop, polling=polling)
    say("stopped")


async def tend(
    aggregator: Aggregator,
    settings: Mapping[str, Setting],
    listening: socket.socket,
    stop: asyncio.Event,
    *,
    polling: bool = True,
    clock: Clock = time.time,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Everything around an aggregator: hubs, pages, and what other processes do to its store."""
    # Here and not above, because commands that only poll need none of it.
    from tidings.aggregator.push import Subscriber
    from tidings.people import Events, People, Proxy
    from tidings.people.articles import Articles
    from tidings.people.deliveries import Deliveries
    from tidings.people.icons import Icons
    from tidings.web import api
    from tidings.web.api.webhook import event
    from tidings.web.app import make_app
    from tidings.web.hub import Hub
    from tidings.web.live import Streams
    from tidings.web.now import Live
    from tidings.web.server import PageServer
    from tidings.web.visit import Site

    public_url = settings["serve.public_url"].value
    store, fetcher = aggregator.store, aggregator.fetcher
    assert isinstance(store, CountedStore)
    async with (
        _first_failure(),
        Subscriber(
            store,
            fetcher,
            clock,
            public_url=public_url,
            on_content=aggregator.take_push,
            on_ping=aggregator.take_ping,
            sleep=sleep,
        ) as hubs,
        # A page has twenty pictures of one host, and somebody waits for them.
        Fetcher(replace(fetcher.settings, host_spacing_s=PICTURE_SPACING_S), clock, sleep=sleep) as pictures,
    ):
        aggregator.polls.hubs = hubs
        config = config_of(settings)
        proxy = Proxy(config.serve_proxy_header, tuple(config.serve_proxy_addresses.replace(" ", "").split(",")))
        live, events, people = Live(aggregator, hubs, store.counts, clock), Events(), People(store, clock, proxy)
        icons, deliveries = Icons(aggregator, clock), Deliveries(store, fetcher, clock, event)
        site = Site(live, people, events, icons, clock, pictures=pictures, public_url=public_url)
        hub, streams = Hub(site, fetcher, clock), Streams(site)
        store.listeners += [events.recorded, hub.changed]
        async with (
            exchanging(aggregator, settings, listening, await people.key("exchange"), clock, sleep) as (
                site.neighbourhood,
                doors,
            ),
            asyncio.TaskGroup() as tasks,
        ):
            pages = PageServer(make_app(site, hub, streams, [*api.routes(site), *doors]))
            serving = tasks.create_task(pages.serve(sockets=[listening]))
            works = (hubs.run(), hub.run(), icons.run(), deliveries.run(), Articles(aggregator, clock).run())
            beside = [tasks.create_task(work) for work in works]
            log.info("serving", address=address(listening), polling=polling)
            if polling:
                tasks.create_task(labour(aggregator, settings, stop, clock))
            await stop.wait()
            log.info("stopping", under_way=aggregator.under_way)
            pages.should_exit = True
            streams.close()
            for task in beside:
                task.cancel()
            await asyncio.wait({serving}, timeout=GRACE_S)


@asynccontextmanager
async def exchanging(
    aggregator: Aggregator, settings: Mapping[str, Setting], listening: socket.socket, secret: bytes, clock: Clock, sleep: Sleep
) -> "AsyncIterator[tuple[Neighbourhood | None, list[BaseRoute]]]":
    """The exchange, where it is on, with the routes by which neighbours come in if they have no port of their own."""
    config = config_of(settings)
    if not config.exchange_enabled:
        yield None, []
        return
    from starlette.applications import Starlette

    from tidings.aggregator.joining import LISTENS, check, make_neighbourhood
    from tidings.web.server import serving

    own = listen(config.exchange_host or config.serve_host, config.exchange_port) if config.exchange_port else None
    place = (own or listening).getsockname()
    check(config, place[0])
    neighbourhood = make_neighbourhood(aggregator, config, place[0], place[1], secret, clock, sleep=sleep)
    routes: list[BaseRoute] = [*neighbourhood.exchange.routes()]
    await aggregator.store.share({LISTENS: f"{place[0]} {place[1]}".encode()})
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(neighbourhood)
        if own is not None:
            stack.enter_context(own)
            await stack.enter_async_context(serving(Starlette(routes=routes), own, config.exchange_certificate or None))
        yield neighbourhood, routes if own is None else []


@asynccontextmanager
async def _first_failure() -> AsyncIterator[None]:
    """What ends a part ends the service; the one error that began it says why."""
    try:
        yield
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures


async def _notice(aggregator: Aggregator, settings: Mapping[str, Setting], clock: Clock) -> None:
    """Other processes add feeds, or make them due (`tidings import`), and some poll: what they learned is taken up."""
    store = aggregator.store
    assert isinstance(store, CountedStore)
    while True:
        await asyncio.sleep(NOTICE_S)
        now = clock()
        with suppress(StoreError):  # the loop that polls has told of it, and tries again as we do
            for pause in await store.paused():
                aggregator.fetcher.gate.pause(pause.host, pause.until)
            if not aggregator.fetcher.settings.contact_url and (contact := await stored_contact(store)):
                aggregator.fetcher.use_contact(contact)  # entered in another process
            if not store.for_many and (last := (await store.shared()).get(VISIT)) != store.visit:
                store.visit, brain = last, make_brain(settings, store)
                await brain.start(store, now)
                aggregator.think_with(brain)
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
        raise UsageError(f"--host {host}: {error.strerror}; name an address of this machine, such as 127.0.0.1") from None
    except OSError as error:
        raise UsageError(_why_not(error, host, port)) from None


def address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _why_not(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use; stop what listens there, or choose another with --port (0 picks a free one)"
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges; choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host}: is not an address of this machine; try 127.0.0.1"
    return f"cannot listen on {host} port {port}: {error.strerror}"
