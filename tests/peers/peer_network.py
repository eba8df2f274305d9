"""A town of real processes: a feed server, a list server, and nodes (`tidings serve`), each at a loopback address of its own.

``with Town(folder) as town: node = town.node(2)`` starts a node at 127.0.0.2; ``town.publish()`` writes a post;
``node.look()`` makes the node poll; ``node.entries()`` is what its store has.
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


def until(condition, what):
    """Until it is so; fails if it is not within a bounded time."""
    deadline = time.monotonic() + TEST_TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}, but not within {TEST_TIMEOUT_S} s"
        time.sleep(0.1)
    return found


class Publisher(LocalServer):
    """One feed. Readers are told apart by the address that they give for complaints."""

    def __init__(self):
        super().__init__()
        self.posts, self.blocked_readers, self.url = [], set(), f"{self.address}/feed"

    def answer(self, request):
        reader = int(re.search(r"http://n(\d+)\.example", request.headers["User-Agent"])[1])
        self.requested_paths.append(reader)
        return (
            (403, "text/plain", b"")
            if reader in self.blocked_readers
            else (200, "application/rss+xml", self.document())
        )

    def document(self):
        items = (
            f"<item><guid>{number}</guid><title>Post {number}</title><link>http://blog.example/{number}</link>"
            f"<pubDate>{formatdate(at)}</pubDate><description>&lt;p&gt;Words {number}&lt;/p&gt;</description></item>"
            for number, at in reversed(self.posts[-WINDOW:])
        )
        return rss("A blog", items)


class Process:
    """A command that says where it listens."""

    def __init__(self, log, *command):
        self._log = log.open("w")
        self._process = subprocess.Popen(
            [TIDINGS, *map(str, command)], stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def ready(self):
        """Where it listens, once it does."""
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
    """One of those who read."""

    def __init__(self, network, number, database=None, **options):
        """With a ``database`` of PostgreSQL, the service does not poll itself: a worker does."""
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
        self._before = [
            "--data-dir",
            self._folder,
            *(f"--set={name}={value}" for name, value in options.items()),
        ]
        if database:
            self._before += ["--database", database]
        serve = (
            *self._before,
            "serve",
            "--host",
            f"127.0.0.{number}",
            "--port",
            0,
            *(["--no-worker"] if database else []),
        )
        self._processes = [Process(self._folder / "log", *serve)]
        if database:
            self._processes.append(Process(self._folder / "worker.log", *self._before, "worker"))

    def kill(self):
        for process in self._processes:
            process.kill()

    def stop(self):
        for process in self._processes:
            process.stop()

    async def _subscribe(self, url):
        async with Store.open(self._store, clock=time.time) as store:
            return (await store.add([NewSubscription(url, time.time())]))[0].feed_id

    def ready(self):
        self.nid = self._processes[0].ready()
        return self

    def poll(self):
        """Let it poll once; what its policy plans before that does not count."""
        (polls,) = self.rows("SELECT count(*) FROM polls")[0]
        until(lambda: self._has_polled(polls), "it looks")

    def _has_polled(self, before):
        """Whether there was a poll; if not, it is due, unless it is so already: one that is under way must not be due again."""
        self.rows(
            f"UPDATE feeds SET next_poll_at = {time.time()}, reason = 'the test wants it' WHERE id = {self._feed_id} "
            f"AND reason <> 'the test wants it' AND (SELECT count(*) FROM polls) = {before} RETURNING id"
        )
        time.sleep(1)
        return self.rows("SELECT count(*) FROM polls") != [(before,)]

    def rows(self, query):
        if isinstance(self._store, str):
            return sql(self._store, query)
        with closing(sqlite3.connect(self._store, timeout=TEST_TIMEOUT_S)) as db, db:
            return db.execute(query).fetchall()

    def entries(self):
        """Number of the post -> how it came."""
        return {
            int(number): source
            for number, source in self.rows("SELECT identity, source FROM entries")
        }

    def log_text(self):
        """What it has logged."""
        return (self._folder / "log").read_text()

    def run(self, *command):
        done = subprocess.run(
            [TIDINGS, *map(str, self._before), *command],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def peers(self):
        return [nid for nid, present in self.rows("SELECT nid, present FROM neighbours") if present]


class PeerNetwork:
    """Everything, and its end."""

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
        """Nodes that begin together."""
        started = [NodeProcess(self, number, **options) for number in numbers]
        for node in started:
            self.nodes[node.number] = node.ready()
        return started

    def publish(self, posts=1, at=None):
        for _ in range(posts):
            self.publisher.posts.append(
                (len(self.publisher.posts) + 1, time.time() if at is None else at)
            )
