"""Several workers as processes of their own, a PostgreSQL that may die, and a line to it that may be cut.

Publishers bring out editions: with each, every feed has one post more, and is due. The workers' clock runs faster than ours,
so that a lease of a quarter of an hour is waited for.
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
#: A publisher takes its time, so that workers are always in the middle of something.
RESPONSE_DELAY_S = 0.05
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.live.worker_cluster"])


def worker(url, began, started):
    """The process: as `tidings worker`, but for its clock; from ``started`` on it must outlive whatever happens."""
    settings = read(Path("/nonexistent"), {}, {"policy.budget": "1200", "log.level": "error"})
    fetcher_settings = FetchSettings(
        allow_private=True, treat_private_as_public=True, host_spacing_s=1.0, concurrency=8
    )

    def clock():
        return MONDAY + (time.time() - began) * SPEED

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
    """A host with some of the feeds."""

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
    """Publishers, each on a port of its own."""

    def __init__(self, hosts, feeds, stack):
        self.revision, self.request_counts = 0, Counter()  # by feed, in this edition
        publishers = [stack.enter_context(Publisher(self)) for _ in range(hosts)]
        self.urls = [f"{publishers[i % hosts].address}/{i}" for i in range(feeds)]


class DatabaseProxy:
    """To the database, through a socket of ours that can be cut: what is on it is lost, and nobody answers."""

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
                if self._is_cut:  # as if the cable had been pulled: neither data nor an end arrives
                    return
                target.sendall(data)
        if not self._is_cut:
            for end in (source, target):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def cut(self, *, silent):
        """Silently, or so that both ends notice."""
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
        self._stack, self._began = ExitStack(), time.time()
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
        return MONDAY + (time.time() - self._began) * SPEED

    async def _subscribe(self):
        async with Store.open(self.url, clock=self.now) as store:
            await store.add(
                [NewSubscription(url, self.now() + 1e9) for url in self.publishers.urls]
            )

    def start_workers(self, count, url=None):
        begun = [PROCESSES.Event() for _ in range(count)]
        started = [
            PROCESSES.Process(target=worker, args=(url or self.url, self._began, one), daemon=True)
            for one in begun
        ]
        for process in started:
            process.start()
        self.workers += started
        self.wait_for(lambda: all(one.is_set() for one in begun), "workers at work")
        return started

    def connected_workers(self):
        """Pids of workers that have connections."""
        rows = self.query(
            "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'tidings %:%'"
        )
        return {int(name.rpartition(":")[2]) for (name,) in rows}

    def leader(self):
        rows = self.query(
            "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted"
        )
        pids = {int(name.rpartition(":")[2]) for (name,) in rows}
        return next((process for process in self.workers if process.pid in pids), None)

    def query(self, *statements):
        return sql(self.url, *statements)

    def publish(self, until):
        """A new edition; returns when that share of the feeds has been asked for it."""
        self.publishers.request_counts.clear()
        self.publishers.revision += 1
        ((before,),) = self.query("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")
        self._since = int(
            before
        )  # what has not been recorded by now is recorded by this transaction or a later one
        lasting = "SET synchronous_commit = on"  # whoever kills PostgreSQL now kills what workers do, not what we did
        self.query(
            lasting,
            f"UPDATE feeds SET next_poll_at = {self.now()}",
            f"SELECT pg_notify('{FEEDS_CHANNEL}', '')",
        )
        self.wait_for(
            lambda: len(self.publishers.request_counts) >= until * len(self.publishers.urls),
            "requests",
        )

    def stuck_feeds(self):
        """Feeds that nobody would ask for longer than a lease although they have not been read.

        One that was being asked when the edition came out, and shown the one before, has had its look: it is not due.
        """
        now = self.now()
        shown = f"entries < {self.publishers.revision} AND xmin::text::bigint >= {self._since}"
        return self.query(
            f"SELECT id, next_poll_at - {now}, last_poll_at - {now}, reason FROM feeds WHERE next_poll_at > {now + LEASE_S} "
            f"AND id NOT IN (SELECT feed_id FROM entries WHERE identity LIKE '%{self.publishers.revision - 1}') "
            f"AND NOT EXISTS (SELECT 1 FROM polls WHERE feed_id = feeds.id AND at = last_poll_at AND {shown})"
        )

    def wait_until_read(self):
        self.wait_for(
            lambda: self.counts()[0] >= len(self.publishers.urls) * self.publishers.revision,
            "entries",
        )

    def counts(self):
        """Entries, and as many as there should be if none is there twice."""
        (row,) = self.query("SELECT count(*), count(DISTINCT (feed_id, identity)) FROM entries")
        return row

    def wait_for(self, condition, what, describe=None):
        deadline = time.monotonic() + TEST_TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                request_counts = f"{len(self.publishers.request_counts)} feeds asked"
                raise AssertionError(
                    f"no {what} after {TEST_TIMEOUT_S} s: {describe() if describe else (request_counts, self.counts())}"
                )
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
        """Refused as long as a process of the one before is there."""
        with suppress(subprocess.SubprocessError):
            self.postgres.start()
            return True

    def _stop_all(self):
        for process in self.workers:
            process.terminate()
        for process in self.workers:
            process.join(20)
            process.kill()
