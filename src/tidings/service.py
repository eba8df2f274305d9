"""Where the parts are wired: configuration -> store -> fetcher -> brain -> aggregator, and for `tidings serve` hubs and pages.

Commands that poll open the same parts without the pages. Other commands may work on the same store while the service runs.
"""

import asyncio
import errno
import logging
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tidings import logs, loops
from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.brain import Brain
from tidings.config import Config, ConfigError, Setting, config_of
from tidings.errors import UsageError
from tidings.fetch import Fetcher, FetchSettings
from tidings.policy import Policy
from tidings.policy.registry import make_policy
from tidings.store import Store
from tidings.store.connection import Database
from tidings.store.rows import PollOutcome, Recorded
from tidings.web.metrics import Counts

#: Polls under way when the service is told to stop have this long; what is not done then is due again after its lease.
GRACE_S = 5.0
#: How often the store is looked at for feeds that other processes have added or made due.
NOTICE_S = 2.0

if TYPE_CHECKING:
    from tidings.web.comparison import Comparisons

#: Changes in the store whenever a process that is not the service has polled.
VISIT = "visit"

log = logs.Log("tidings.service")
Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[object]]


class CountedStore(Store):
    """The store; whatever is recorded is counted for `/metrics`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        self.counts = Counts()

    async def record(self, outcomes: Sequence[PollOutcome]) -> list[Recorded]:
        recorded = await super().record(outcomes)
        self.counts.note(outcomes, recorded)
        return recorded


def check_policy(settings: Mapping[str, Setting]) -> Policy:
    """The policy that the configuration names, or a refusal that says where it is named."""
    setting = settings["policy.name"]
    try:
        return make_policy(setting.value)
    except UsageError as error:
        raise ConfigError(setting.origin, str(error)) from None


def make_brain(settings: Mapping[str, Setting]) -> Brain:
    return Brain(check_policy(settings), config_of(settings).budget)


def fetch_settings(config: Config) -> FetchSettings:
    return FetchSettings(
        contact_url=config.fetch_contact_url,
        allow_private=config.fetch_allow_private,
        max_bytes=config.fetch_max_bytes,
        timeout_s=config.fetch_timeout_s,
        concurrency=config.fetch_concurrency,
        host_spacing_s=config.fetch_host_spacing_s,
    )


@asynccontextmanager
async def open_polling(
    settings: Mapping[str, Setting],
    store_path: Path,
    *,
    serving: bool = False,
    clock: Clock = time.time,
    sleep: Sleep = asyncio.sleep,
) -> AsyncIterator[Aggregator]:
    """All parts that polling needs; with ``serving``, as the only one that serves this store."""
    config = config_of(settings)
    days, entries = config.store_retain_days, config.store_retain_entries
    async with CountedStore.open(store_path, clock=clock, serving=serving) as store:
        async with (
            Fetcher(fetch_settings(config), clock, sleep=sleep) as fetcher,
            Aggregator(
                store, fetcher, make_brain(settings), clock, sleep=sleep, retain_days=days, retain_entries=entries
            ) as aggregator,
        ):
            yield aggregator
        if not serving:
            await store.share({VISIT: str(clock()).encode()})


def serve(settings: Mapping[str, Setting], store_path: Path, say: Callable[[str], object]) -> None:
    """Serve until Ctrl-C or SIGTERM, both of which are a clean end."""
    config = config_of(settings)
    check_policy(settings)
    logs.set_up(config.log_level, config.log_format)
    for name in ("uvicorn", "asyncio"):
        logging.getLogger(name).handlers[:] = logging.getLogger("tidings").handlers
    logging.getLogger("uvicorn").setLevel(logging.WARNING)

    async def until_told() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await attend(settings, store_path, listening, stop, say)

    with listen(config.serve_host, config.serve_port) as listening:
        loops.run(until_told())


async def attend(
    settings: Mapping[str, Setting],
    store_path: Path,
    listening: socket.socket,
    stop: asyncio.Event,
    say: Callable[[str], object],
    comparisons: "Comparisons | None" = None,
) -> None:
    """The service itself: poll, take pushes and answer, until ``stop``."""
    async with open_polling(settings, store_path, serving=True) as aggregator:
        say(f"tidings is at {address(listening)} (Ctrl-C stops it)")
        await tend(aggregator, settings, listening, stop, comparisons)
    say("stopped")


async def tend(
    aggregator: Aggregator,
    settings: Mapping[str, Setting],
    listening: socket.socket,
    stop: asyncio.Event,
    comparisons: "Comparisons | None" = None,
    *,
    clock: Clock = time.time,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Everything around an aggregator: hubs, pages, and what other processes do to its store."""
    # Here and not above, because commands that only poll need none of it.
    from tidings.aggregator.push import Subscriber
    from tidings.web.app import make_app
    from tidings.web.comparison import Comparisons
    from tidings.web.now import Live
    from tidings.web.server import PageServer

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
    ):
        aggregator.hubs = hubs
        live = Live(aggregator, hubs, store.counts, clock)
        pages = PageServer(make_app(live, comparisons or Comparisons()))
        async with asyncio.TaskGroup() as tasks:
            polling = tasks.create_task(aggregator.run(stop))
            serving = tasks.create_task(pages.serve(sockets=[listening]))
            beside = [tasks.create_task(work) for work in (_notice(aggregator, settings, clock), hubs.run())]
            log.info("serving", address=address(listening))
            await stop.wait()
            log.info("stopping", under_way=aggregator.under_way)
            pages.should_exit = True
            for task in beside:
                task.cancel()
            await asyncio.wait({polling, serving}, timeout=GRACE_S)
            polling.cancel()


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
    visit = (await store.shared()).get(VISIT)
    while True:
        await asyncio.sleep(NOTICE_S)
        now = clock()
        if (last := (await store.shared()).get(VISIT)) != visit:
            visit, brain = last, make_brain(settings)
            await brain.start(store, now)
            for pause in await store.paused():
                aggregator.fetcher.gate.pause(pause.host, pause.until)
            aggregator.brain = brain
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
