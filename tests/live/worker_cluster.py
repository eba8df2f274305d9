"""Worker cluster: several worker processes, a PostgreSQL server, a proxy that can be cut.

`WorkerCluster.publish` adds one post to every feed and makes all feeds due. The workers' clock runs
faster than real time, so that tests can wait for a lease of 15 minutes to expire.
"""

import asyncio
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

from tests import TEST_TIMEOUT_S
from tests.local_server import LocalServer, rss
from tests.postgres import sql, start_server
from tests.trace_helpers import MONDAY
from tidings import event_loop
from tidings.aggregator.aggregator import FEEDS_CHANNEL
from tidings.aggregator.poll_tasks import LEASE_S
from tidings.config import read
from tidings.fetch import FetchSettings
from tidings.service import open_polling, run_polling
from tidings.store import Store
from tidings.store.feed_models import NewSubscription

SPEED = 120.0
#: Delay of publishers' responses, so that workers always have polls in progress.
RESPONSE_DELAY_S = 0.05
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.live.worker_cluster"])


def worker(url, started_at, started):
    """Run a process like `tidings worker` with a faster clock; sets ``started`` when it polls."""
    settings = read(Path("/nonexistent"), {}, {"policy.budget": "1200", "log.level": "error"})
    fetcher_settings = FetchSettings(
        allow_private=True, treat_private_as_public=True, host_spacing_s=1.0, concurrency=8
    )

    def clock():
        return MONDAY + (time.time() - started_at) * SPEED

    async def run():
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        options = {
            "clock": clock,
            "sleep": lambda seconds: asyncio.sleep(seconds / SPEED),
            "fetcher_settings": fetcher_settings,
        }
        async with open_polling(settings, url, serving=True, **options) as aggregator:
            started.set()
            await run_polling(aggregator, settings, stop, clock)

    event_loop.run(run())


class Publisher(LocalServer):
    """A host that serves some of the feeds."""

    protocol = "HTTP/1.1"

    def __init__(self, publishers):
        super().__init__()
        self._group = publishers

    def page(self, path):
        self._group.request_counts[path] += 1
        time.sleep(RESPONSE_DELAY_S)
        items = (
            f"<item><guid>{n}</guid><title>Post {n}</title></item>"
            for n in range(self._group.revision)
        )
        return rss("Feed", items), "application/rss+xml"


class PublisherGroup:
    """Publishers, each on a separate port."""

    def __init__(self, hosts, feeds, stack):
        self.revision = 0  # number of posts in each feed
        self.request_counts = Counter()  # by feed, for this revision
        publishers = [stack.enter_context(Publisher(self)) for _ in range(hosts)]
        self.urls = [f"{publishers[i % hosts].address}/{i}" for i in range(feeds)]


class DatabaseProxy:
    """Proxy to the database through a Unix socket, which can be cut like a network connection."""

    def __init__(self, folder, to):
        self._to, self._sockets, self._is_cut = to, [], False
        self.url = f"postgresql://postgres:@/{{}}?host={folder}"
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(f"{folder}/.s.PGSQL.5432")
        self._listening.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, far = self._listening.accept()[0], socket.socket(socket.AF_UNIX)
                self._sockets += [near, far]
                if self._is_cut:
                    continue
                far.connect(self._to)
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(self, source, target):
        with suppress(OSError):
            while data := source.recv(65536):
                if self._is_cut:  # like an unplugged cable: neither data nor a close arrives
                    return
                target.sendall(data)
        if not self._is_cut:
            for end in (source, target):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def cut(self, *, silent):
        """Cut all connections: ``silent`` drops data without closing them."""
        self._is_cut = True
        if not silent:
            self._close_all()

    def reconnect(self):
        self._is_cut = False
        self._close_all()

    def _close_all(self):
        for end in self._sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._sockets.clear()

    def close(self):
        self._listening.close()
        self._close_all()


class WorkerCluster:
    def __init__(self, *, feeds=60, hosts=12):
        self._stack, self._started_at = ExitStack(), time.time()
        folder = Path(tempfile.mkdtemp(prefix="tidings-news-"))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        self.postgres = start_server(folder / "data")
        self._stack.callback(self.postgres.stop)
        self.url = self.postgres.get_uri()
        self.database_proxy = DatabaseProxy(
            folder, str(next((folder / "data").glob(".s.PGSQL.*[0-9]")))
        )
        self._stack.callback(self.database_proxy.close)
        self.publishers = PublisherGroup(hosts, feeds, self._stack)
        self.workers = []
        self._stack.callback(self._stop_all)
        asyncio.run(self._subscribe())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def now(self):
        return MONDAY + (time.time() - self._started_at) * SPEED

    async def _subscribe(self):
        async with Store.open(self.url, clock=self.now) as store:
            await store.add_subscriptions(
                [NewSubscription(url, self.now() + 1e9) for url in self.publishers.urls]
            )

    def start_workers(self, count, url=None):
        events = [PROCESSES.Event() for _ in range(count)]
        processes = [
            PROCESSES.Process(
                target=worker, args=(url or self.url, self._started_at, event), daemon=True
            )
            for event in events
        ]
        for process in processes:
            process.start()
        self.workers += processes
        self.wait_for(lambda: all(event.is_set() for event in events), "running workers")
        return processes

    def connected_workers(self):
        """Return the process ids of workers that are connected to the database."""
        rows = self.query(
            "SELECT application_name FROM pg_stat_activity "
            "WHERE application_name LIKE 'tidings %:%'"
        )
        return {int(name.rpartition(":")[2]) for (name,) in rows}

    def leader(self):
        rows = self.query(
            "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid) "
            "WHERE locktype = 'advisory' AND granted"
        )
        pids = {int(name.rpartition(":")[2]) for (name,) in rows}
        return next((process for process in self.workers if process.pid in pids), None)

    def query(self, *statements):
        return sql(self.url, *statements)

    def publish(self, until):
        """Publish a new revision; returns when this share of the feeds has been requested."""
        self.publishers.request_counts.clear()
        self.publishers.revision += 1
        ((before,),) = self.query("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")
        self._since = int(
            before
        )  # polls that are not recorded yet get this transaction id or later
        self.query(
            "SET synchronous_commit = on",  # this change must survive a kill of PostgreSQL
            f"UPDATE feeds SET next_poll_at = {self.now()}",
            f"SELECT pg_notify('{FEEDS_CHANNEL}', '')",
        )
        self.wait_for(
            lambda: len(self.publishers.request_counts) >= until * len(self.publishers.urls),
            "requests",
        )

    def stuck_feeds(self):
        """Return feeds without the latest post that are not due within the time of a lease.

        A feed whose poll was in progress when the revision was published, and got the one before,
        has been polled and is not due.
        """
        now = self.now()
        shown = f"entries < {self.publishers.revision} AND xmin::text::bigint >= {self._since}"
        return self.query(
            f"SELECT id, next_poll_at - {now}, last_poll_at - {now}, reason FROM feeds "
            f"WHERE next_poll_at > {now + LEASE_S} AND id NOT IN (SELECT feed_id FROM entries "
            f"WHERE identity LIKE '%{self.publishers.revision - 1}') "
            "AND NOT EXISTS (SELECT 1 FROM polls WHERE feed_id = feeds.id AND at = last_poll_at "
            f"AND {shown})"
        )

    def wait_until_read(self):
        self.wait_for(
            lambda: self.counts()[0] >= len(self.publishers.urls) * self.publishers.revision,
            "entries",
        )

    def counts(self):
        """Return the number of entries and of distinct entries."""
        (row,) = self.query("SELECT count(*), count(DISTINCT (feed_id, identity)) FROM entries")
        return row

    def wait_for(self, condition, what, describe=None):
        deadline = time.monotonic() + TEST_TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                requested = f"{len(self.publishers.request_counts)} feeds requested"
                state = describe() if describe else (requested, self.counts())
                raise AssertionError(f"no {what} after {TEST_TIMEOUT_S} s: {state}")
            time.sleep(0.05)

    def kill(self, process):
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        self.workers.remove(process)

    def kill_postgres(self):
        process = self.postgres.get_postmaster_info().process
        process.kill()
        process.wait(TEST_TIMEOUT_S)
        self.wait_for(self._start_postgres, "PostgreSQL", self.postgres.log.read_text)

    def _start_postgres(self):
        """Start PostgreSQL; fails while processes of the killed server are running."""
        with suppress(subprocess.SubprocessError):
            self.postgres.start()
            return True

    def _stop_all(self):
        for process in self.workers:
            process.terminate()
        for process in self.workers:
            process.join(20)
            process.kill()
