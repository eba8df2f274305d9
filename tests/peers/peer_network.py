"""Network of real processes: a feed server, a list server and nodes (`tidings serve`).

Each node has a separate loopback address. In ``with PeerNetwork(folder) as network``,
``(node,) = network.start(2)`` starts a node at 127.0.0.2, ``network.publish()`` publishes a post,
``node.poll()`` makes the node poll and ``node.entries()`` returns its stored entries.
"""

import asyncio
import json
import re
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from email.utils import formatdate

from tests import TEST_TIMEOUT_S
from tests.cli.conftest import TIDINGS
from tests.local_server import LocalServer, rss
from tests.postgres import sql
from tidings.store import Store
from tidings.store.feed_models import NewSubscription

WINDOW = 5
ADDRESS = re.compile(r"at http://([\d.]+):(\d+)/")


def until(condition, description):
    """Wait until the condition is true and return its value; fail after `TEST_TIMEOUT_S`."""
    deadline = time.monotonic() + TEST_TIMEOUT_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {TEST_TIMEOUT_S} s: {description}"
        time.sleep(0.1)
    return value


class Publisher(LocalServer):
    """Server of one feed; it identifies readers by the contact URL in their User-Agent."""

    def __init__(self):
        super().__init__()
        self.posts, self.blocked_readers, self.url = [], set(), f"{self.address}/feed"

    def answer(self, request):
        if request.path != "/feed":  # favicon requests are not counted
            return 404, "text/plain", b""
        reader = int(re.search(r"http://n(\d+)\.example", request.headers["User-Agent"])[1])
        self.requested_paths.append(reader)
        return (
            (403, "text/plain", b"")
            if reader in self.blocked_readers
            else (200, "application/rss+xml", self.document())
        )

    def document(self):
        items = (
            f"<item><guid>{number}</guid><title>Post {number}</title>"
            f"<link>http://blog.example/{number}</link><pubDate>{formatdate(at)}</pubDate>"
            f"<description>&lt;p&gt;Text {number}&lt;/p&gt;</description></item>"
            for number, at in reversed(self.posts[-WINDOW:])
        )
        return rss("A blog", items)


class Process:
    """A command that prints the address it listens at."""

    def __init__(self, log, *command):
        self._log = log.open("w")
        self._process = subprocess.Popen(
            [TIDINGS, *map(str, command)], stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def ready(self):
        """Wait until it listens and return the address."""
        line = self._process.stdout.readline()
        host, port = ADDRESS.search(line).groups()
        return f"{host}:{port}"

    def kill(self):
        self._process.kill()
        self._process.wait()

    def stop(self):
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            assert self._process.wait(TEST_TIMEOUT_S) == 0
        self._process.stdout.close()
        self._log.close()


class NodeProcess:
    """A node as a process of `tidings serve`."""

    def __init__(self, network, number, database=None, **options):
        """With a PostgreSQL ``database``, a worker process polls instead of the service."""
        self.number, self._folder = number, network.folder / str(number)
        self._folder.mkdir(exist_ok=True)
        self._store = database or self._folder / "tidings.db"
        self._feed_id = asyncio.run(self._subscribe(network.publisher.url))
        options = {
            "fetch.allow_private": "true",
            "fetch.contact_url": f"http://n{number}.example/",
            "exchange.enabled": "true",
            "exchange.lists": network.list_server_nid,
            **options,
        }
        self._global_options = [
            "--data-dir",
            self._folder,
            *(f"--set={name}={value}" for name, value in options.items()),
        ]
        if database:
            self._global_options += ["--database", database]
        serve = (
            *self._global_options,
            "serve",
            "--host",
            f"127.0.0.{number}",
            "--port",
            0,
            *(["--no-worker"] if database else []),
        )
        self._processes = [Process(self._folder / "log", *serve)]
        if database:
            self._processes.append(
                Process(self._folder / "worker.log", *self._global_options, "worker")
            )

    def kill(self):
        for process in self._processes:
            process.kill()

    def stop(self):
        for process in self._processes:
            process.stop()

    async def _subscribe(self, url):
        async with Store.open(self._store, clock=time.time) as store:
            return (await store.add_subscriptions([NewSubscription(url, time.time())]))[0].feed_id

    def ready(self):
        self.nid = self._processes[0].ready()
        return self

    def poll(self):
        """Make the node poll once now."""
        (polls,) = self.rows("SELECT count(*) FROM polls")[0]
        until(lambda: self._has_polled(polls), f"node {self.number} polls")

    def _has_polled(self, polls_before):
        """Return whether there was a poll; if not, make the feed due.

        A feed that the test has made due already is not changed: its poll may be in progress, and
        must not be repeated.
        """
        self.rows(
            f"UPDATE feeds SET next_poll_at = {time.time()}, reason = 'requested by test' "
            f"WHERE id = {self._feed_id} AND reason <> 'requested by test' "
            f"AND (SELECT count(*) FROM polls) = {polls_before} RETURNING id"
        )
        time.sleep(1)
        return self.rows("SELECT count(*) FROM polls") != [(polls_before,)]

    def rows(self, query):
        if isinstance(self._store, str):
            return sql(self._store, query)
        with closing(sqlite3.connect(self._store, timeout=TEST_TIMEOUT_S)) as db, db:
            return db.execute(query).fetchall()

    def entries(self):
        """Return the source of each stored entry by the post's number."""
        return {
            int(number): source
            for number, source in self.rows("SELECT identity, source FROM entries")
        }

    def log_text(self):
        """Return the log of the service."""
        return (self._folder / "log").read_text()

    def run(self, *command):
        completed = subprocess.run(
            [TIDINGS, *map(str, self._global_options), *command],
            capture_output=True,
            text=True,
            check=False,
        )
        assert completed.returncode == 0, completed.stderr
        return json.loads(completed.stdout)

    def peers(self):
        return [nid for nid, present in self.rows("SELECT nid, present FROM peers") if present]


class PeerNetwork:
    """The feed server, the list server and all nodes; stops them at the end."""

    def __init__(self, folder):
        self.folder, self.nodes = folder, {}
        self.publisher = Publisher()
        self._list_server = Process(
            folder / "lists.log", "list-server", "--host", "127.0.0.1", "--port", 0
        )

    def __enter__(self):
        self.publisher.__enter__()
        self.list_server_nid = self._list_server.ready()
        return self

    def __exit__(self, kind, *_):
        for node in self.nodes.values():
            node.stop() if kind is None else node.kill()
        self._list_server.kill()
        self.publisher.__exit__()

    def start(self, *numbers, **options):
        """Start nodes together and return them when they listen."""
        started = [NodeProcess(self, number, **options) for number in numbers]
        for node in started:
            self.nodes[node.number] = node.ready()
        return started

    def publish(self, posts=1, at=None):
        for _ in range(posts):
            self.publisher.posts.append(
                (len(self.publisher.posts) + 1, time.time() if at is None else at)
            )
