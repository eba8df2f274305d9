"""Benchmarks of speed and memory with their targets (`make bench`).

Every part runs in a separate process, for its peak memory, and on one core. Each line has a figure,
its target if there is one, and the command that reproduces it. `--quick` uses small sizes;
`python benchmarks/run.py --part NAME` prints one part as JSON.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# No large imports: a child's peak memory includes that of its parent at the fork.

HERE = Path(__file__)
TIDINGS = Path(sys.executable).with_name("tidings")
FIVE = "uniform,scheduling,min-delay,combined,min-missing"
ONE_CORE = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Sizes:
    """Sizes of the benchmarks."""

    feeds: int = 10_000
    days: int = 90
    limit_days: int = 24  #: about a million posts
    million: int = 1_000_000
    learned: int = 2_000  #: feeds whose learned state is copied to a million
    simulated_days: int = 42  #: 28 of them training


QUICK = Sizes(feeds=150, days=30, limit_days=20, million=20_000, learned=100, simulated_days=31)


@dataclass(frozen=True)
class Figure:
    """One figure; it must be below ``target`` if there is one."""

    what: str
    figure: float
    unit: str
    target: float | None
    command: str

    def __str__(self) -> str:
        target = "" if self.target is None else f"< {self.target:g}"
        verdict = "" if self.target is None else "ok" if self.figure < self.target else "MISSED"
        value = f"{self.figure:>9.3g} {self.unit:<4}"
        return f"{self.what:<66} {value} {target:>7}  {verdict:<6}  {self.command}"


# --- processes ----------------------------------------------------------------------------------


def timed(command: list[str]) -> tuple[float, float, str]:
    """Run a command; returns seconds, peak memory in MB and output."""
    with tempfile.TemporaryFile("w+") as out:
        started = time.perf_counter()
        child = subprocess.Popen(command, stdout=out, env={**os.environ, **ONE_CORE})
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"{' '.join(command)}: exit code {child.returncode}")
        out.seek(0)
        return seconds, usage.ru_maxrss / 1024, out.read()


def part(name: str, sizes: Sizes, *arguments: str) -> dict[str, Any]:
    """Run one of the parts below in a separate process."""
    quick = ["--quick"] if sizes == QUICK else []
    _, _, printed = timed([sys.executable, str(HERE), "--part", name, *quick, *arguments])
    found: dict[str, Any] = json.loads(printed)
    return found


def command_for(name: str, sizes: Sizes) -> str:
    return f"python benchmarks/run.py --part {name}" + (" --quick" if sizes == QUICK else "")


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextmanager
def clock(into: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    into[name] = time.perf_counter() - started


# --- parts, each in its own process -------------------------------------------------------------


def allocation(sizes: Sizes) -> dict[str, float]:
    """Measure every allocation for a million feeds at 4 polls each, in seconds."""
    import numpy as np

    from tidings.policy.allocation import ALLOCATIONS, integer_min_delay

    rng = np.random.default_rng(0)
    rates = rng.lognormal(0.0, 1.5, sizes.million)
    weights = rng.integers(1, 100, sizes.million).astype(np.float64)
    windows = rng.integers(1, 60, sizes.million)
    seconds: dict[str, float] = {}
    for name, allocate in {**ALLOCATIONS, "min-delay, whole polls": integer_min_delay}.items():
        with clock(seconds, name):
            allocate(rates, weights, windows, 4.0 * sizes.million)
    return seconds


def limit(sizes: Sizes) -> dict[str, float]:
    """Measure the clairvoyant lower bound at one poll per feed and day, in seconds."""
    from tidings.lab.generate import generate
    from tidings.lab.lower_bound import clairvoyant_bound

    # Compiles the code, or loads the compiled one.
    clairvoyant_bound(generate("sia-cho", 5, 20), 50.0, windows=True)
    trace = generate("sia-cho", sizes.feeds, sizes.limit_days)
    polls = float(trace.n_feeds * sizes.limit_days)
    seconds: dict[str, float] = {"posts": float(trace.n_posts)}
    for name, windows in (("without", False), ("with", True)):
        with clock(seconds, name):
            clairvoyant_bound(trace, polls, windows=windows)
    return seconds


def million(sizes: Sizes) -> dict[str, float]:
    """Measure decisions of `price` for a million feeds, ten thousand at a time.

    The state is learned from a few feeds and copied. It stays in memory, as in a service with a
    single process.
    """
    import numpy as np

    from tidings.lab.generate import generate
    from tidings.model import WEEK_S
    from tidings.policy import Feeds, make_policy

    trace = generate("sia-cho", sizes.learned, 28)
    policy = make_policy("price")
    start = trace.training_end(27.9)
    policy.start(
        Feeds.of(trace.window), trace.history(start), trace.start, start, 4.0 * sizes.learned
    )
    n = sizes.million
    tile = np.resize(np.arange(sizes.learned), n)
    policy.state = policy.state[tile]
    policy.feeds = Feeds.of(trace.window[tile])
    found: dict[str, float] = {
        "state_mb": policy.state.nbytes / 2**20,
        "row_bytes": float(len(policy.save_row(0))),
    }
    # Random times of the week, each feed one second after its last poll.
    now = start + np.random.default_rng(0).random(n) * WEEK_S
    policy.state["last"] = now - 1.0
    times = np.empty(n)
    with clock(found, "seconds"):
        for begin in range(0, n, 10_000):
            rows = np.arange(begin, min(begin + 10_000, n))
            times[rows] = policy.decide(rows, now[rows]).times
    assert bool(np.all(times > now)), "a decided poll is in the past"
    found["peak_mb"] = peak_mb()
    return found


def simulated(sizes: Sizes) -> dict[str, float]:
    """Measure `price` in the simulator at 4 polls per feed and day, by method of the policy."""
    from tidings.lab.generate import generate
    from tidings.lab.simulate import simulate
    from tidings.policy import make_policy

    trace = generate("sia-cho", sizes.feeds, sizes.simulated_days)
    policy = make_policy("price")
    spent = {"decide": 0.0, "observe": 0.0, "tick": 0.0, "start": 0.0}

    def measure(name: str) -> Callable[..., Any]:
        inner = getattr(policy, name)

        def measured(*arguments: Any, **options: Any) -> Any:
            started = time.perf_counter()
            result = inner(*arguments, **options)
            spent[name] += time.perf_counter() - started
            return result

        return measured

    for name in spent:
        setattr(policy, name, measure(name))
    started = time.perf_counter()
    polls = simulate(trace, policy, 4.0, trace.training_end(28))
    seconds = time.perf_counter() - started
    per_poll = {name: 1e6 * total / len(polls) for name, total in spent.items() if name != "start"}
    return {
        "polls": float(len(polls)),
        "seconds": seconds,
        "start": spent["start"],
        **per_poll,
        "peak_mb": peak_mb(),
    }


PARTS = {"allocation": allocation, "limit": limit, "million": million, "simulated": simulated}


# --- table --------------------------------------------------------------------------------------


def lines(sizes: Sizes) -> Iterator[Figure]:
    yield from _compare(sizes)
    many = f"{sizes.million:,} feeds"
    for name, seconds in part("allocation", sizes).items():
        yield Figure(
            f"allocation of {many}: {name}", seconds, "s", 1, command_for("allocation", sizes)
        )
    found = part("limit", sizes)
    what = f"limit, {sizes.feeds:,} feeds, {found['posts']:,.0f} posts, {{}} windows"
    for name in ("without", "with"):
        yield Figure(what.format(name), found[name], "s", 10, command_for("limit", sizes))
    found = part("million", sizes)
    command = command_for("million", sizes)
    yield Figure(f"price: next polls of {many}, state given", found["seconds"], "s", 60, command)
    yield Figure(
        f"  peak memory, {found['state_mb']:.0f} MB of it the state of all feeds",
        found["peak_mb"],
        "MB",
        2048,
        command,
    )
    yield Figure("  state of one feed, as saved", found["row_bytes"], "B", 1024, command)
    found = part("simulated", sizes)
    command = command_for("simulated", sizes)
    what = f"price: {sizes.feeds:,} feeds simulated, {found['polls']:,.0f} polls"
    yield Figure(f"{what}, a decision", found["decide"], "µs", 60, command)
    yield Figure("  observing a poll", found["observe"], "µs", None, command)
    yield Figure("  ticks of the controller, per poll", found["tick"], "µs", None, command)
    yield Figure(
        "  complete run, including 28 days of history", found["seconds"], "s", None, command
    )


def _compare(sizes: Sizes) -> Iterator[Figure]:
    """Measure `tidings lab compare` on a trace on disk, including reading it."""
    with tempfile.TemporaryDirectory() as folder:
        make = [
            "lab",
            "generate",
            "big",
            "--like",
            "sia-cho",
            "--feeds",
            str(sizes.feeds),
            "--days",
            str(sizes.days),
        ]
        run = ["lab", "compare", "big", "--policies", FIVE, "--budget", "4"]

        def in_folder(arguments: list[str]) -> list[str]:
            return [
                str(TIDINGS),
                *(
                    str(Path(folder) / "big") if argument == "big" else argument
                    for argument in arguments
                ),
            ]

        timed(in_folder(make))
        seconds, memory, _ = timed([*in_folder(run), "--json"])
    command = f"tidings {' '.join(make)} && tidings {' '.join(run)}"
    what = (
        f"compare, 5 policies, {sizes.feeds:,} feeds, {sizes.days} days, 4 polls per feed and day"
    )
    yield Figure(what, seconds, "s", 120, command)
    yield Figure("  peak memory", memory, "MB", 2048, "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, for tests; figures are meaningless"
    )
    parser.add_argument("--part", choices=PARTS, help="only this part, as JSON")
    options = parser.parse_args()
    sizes = QUICK if options.quick else Sizes()
    if hasattr(os, "sched_setaffinity"):  # children inherit it
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ.update(ONE_CORE)
    if options.part:
        print(json.dumps(PARTS[options.part](sizes)))
        return
    for line in lines(sizes):
        # The targets are for the full sizes.
        print(replace(line, target=None) if options.quick else line, flush=True)


if __name__ == "__main__":
    main()
