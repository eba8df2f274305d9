"""A killed process leaves an intact store: no partial polls, no feed that is never due again."""

import random
import subprocess
import sys
import time

import pytest

from tests.store.conftest import LEASE_S
from tests.store.endless_writer import SHOWN, STEP

FEEDS = 12


def kill_while_recording(location, now, rng):
    command = [sys.executable, "-m", "tests.store.endless_writer", str(location), str(now)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.read(rng.randint(1, 12))
        time.sleep(rng.random() * 0.004)  # a random moment of a transaction
        process.kill()
        process.stdout.read()
    assert process.returncode == -9


@pytest.mark.parametrize("rounds", [8, pytest.param(40, marks=pytest.mark.slow)])
def test_kill_at_any_moment(open_store, location, clock, rounds):
    rng = random.Random(20)
    with open_store() as store:
        feeds = [store.subscribe(f"https://{n}.example/feed") for n in range(FEEDS)]
    total = 0
    for _ in range(rounds):
        kill_while_recording(location, clock(), rng)
        clock.forward(LEASE_S + 10_000)  # after all leases and poll times of the process
        with open_store(serving=True) as store:
            assert store.check() == []
            for feed in feeds:
                state = store.feed(feed).state
                polls = store.polls(feed, limit=100_000)
                assert state.window == len(polls)
                expected = (
                    {f"id:{n}" for n in range(STEP * (len(polls) - 1) + SHOWN)} if polls else set()
                )
                entries = store.entries(feed_id=feed, limit=100_000)
                assert {e.identity for e in entries} == expected
                assert len(entries) == len(expected) == sum(p.new for p in polls)
                assert state.next_poll_at <= clock()
            assert all(
                store.feed(feed).state.window == int(saved)
                for feed, saved in store.estimates("price").items()
            )
            total = store.status().entries
    assert total > rounds * SHOWN
