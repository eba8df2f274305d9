"""Benchmark of a refresh, compared with lemon24/reader, newsboat and sfeed.

Run `python -m benchmarks.refresh` or `make bench-refresh`. Four parts print a table each:
``refresh`` (2,000 feeds of 20 entries: first refresh, nothing changed, 5 % changed),
``ten-thousand`` (tidings only: memory), ``hundred-thousand`` (tidings only: start-up, due feeds,
one hour of polls) and ``bomb`` (a small body that decompresses to 400 MB). All programs use the
same nginx on loopback, in turn, and a temporary folder. If the machine is not idle, only the ratios
are meaningful.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

# No large imports: a child's peak memory includes that of its parent at the fork.
from benchmarks.programs import PROGRAMS, Cost, Program, Reader, Tidings
from benchmarks.website import WINDOW, Website, serving

CHANGED = 20  #: every 20th feed has a new post in the last step
BOMB_MB = 400
STEPS = ("first", "unchanged", "5 % changed")
#: Targets of tidings: maximum CPU seconds and MB.
CPU_TARGET_S = dict(zip(STEPS, (10.0, 1.0, 2.0), strict=True))
MEMORY_TARGET_MB = {2_000: 100.0, 10_000: 200.0}


@dataclass
class Measurement:
    """A program's runs of one step."""

    costs: list[Cost] = field(default_factory=list)
    answers: dict[str, int] = field(default_factory=dict)

    @property
    def cpu_s(self) -> float:
        return statistics.median(cost.cpu_s for cost in self.costs)

    @property
    def wall_s(self) -> float:
        return statistics.median(cost.wall_s for cost in self.costs)

    @property
    def peak_mb(self) -> float:
        return max(cost.peak_mb for cost in self.costs)


def installed() -> list[type[Program]]:
    """Return the installed programs; prints how to install the others."""
    for program in PROGRAMS:
        if not program.installed():
            print(f"{program.name} is not installed: {program.install}", flush=True)
    return [program for program in PROGRAMS if program.installed()]


def refresh(feeds: int, rounds: int, programs: list[type[Program]]) -> None:
    """Measure the three steps for all programs in turn, with an empty store in each round."""
    found = {(program.name, step): Measurement() for program in programs for step in STEPS}
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder, serving(Path(folder), feeds) as site:
            site.publish()
            running = [program(Path(folder) / "state", site.urls) for program in programs]
            for step in STEPS:
                if step == STEPS[2]:
                    site.publish(range(0, feeds, CHANGED), posts=1)
                for program in running:
                    _measure(site, program, step, found[program.name, step])
                    cost = found[program.name, step].costs[-1]
                    print(
                        f"round {number + 1}, {step}, {program.name}: {cost.cpu_s:.2f} CPU s",
                        file=sys.stderr,
                        flush=True,
                    )
    _print_refresh(feeds, rounds, found)


def _measure(site: Website, program: Program, step: str, into: Measurement) -> None:
    """Measure one step of one program, and check the number of stored entries."""
    if step == STEPS[1]:
        for _ in range(program.warm_ups):
            program.refresh()
    site.answers()
    into.costs.append(program.refresh())
    into.answers = site.answers()
    published = site.feeds * WINDOW + (
        len(range(0, site.feeds, CHANGED)) if step == STEPS[2] else 0
    )
    if program.stored() != published:
        raise SystemExit(
            f"{program.name}, {step}: {program.stored():,} entries stored, {published:,} published"
        )


def _print_refresh(feeds: int, rounds: int, found: dict[tuple[str, str], Measurement]) -> None:
    print(f"{feeds:,} feeds of {WINDOW} entries; {_times(rounds)}; {_machine()}\n")
    print(
        "| refresh | program | CPU s | x tidings | feeds per CPU s | wall s | peak MB | answers |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for step in STEPS:
        for (name, of), measurement in found.items():
            if of == step:
                ratio = measurement.cpu_s / found[Tidings.name, step].cpu_s
                answers = ", ".join(
                    f"{count:,} x {status}" for status, count in measurement.answers.items()
                )
                cells = (
                    step,
                    name,
                    f"{measurement.cpu_s:.2f}",
                    f"{ratio:.1f}",
                    f"{feeds / measurement.cpu_s:,.0f}",
                    f"{measurement.wall_s:.1f}",
                    f"{measurement.peak_mb:.0f}",
                    answers,
                )
                print(f"| {' | '.join(cells)} |")
    print()
    for step in STEPS if feeds == 2_000 else ():
        _check_target(f"CPU s, {step}", found[Tidings.name, step].cpu_s, CPU_TARGET_S[step])
    if feeds in MEMORY_TARGET_MB:
        _check_target(
            "MB", max(found[Tidings.name, step].peak_mb for step in STEPS), MEMORY_TARGET_MB[feeds]
        )


def bomb(programs: list[type[Program]]) -> None:
    """Measure a decompression bomb: one feed of a few hundred kilobytes."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), 0) as site:
        url = site.write_packed(
            "bomb.rss", b"<?xml version='1.0'?><rss version='2.0'><channel><title>", BOMB_MB
        )
        size = (site.site / "packed" / "bomb.rss").stat().st_size
        print(f"{size / 1e6:.1f} MB of gzip, {BOMB_MB} MB decompressed; {_machine()}\n")
        print("| program | peak MB | CPU s | answers |\n|---|---|---|---|")
        for kind in programs:
            program = kind(Path(folder) / "state", [url])
            site.answers()
            cost = program.refresh(check=False)
            print(
                f"| {program.name} | {cost.peak_mb:.0f} | {cost.cpu_s:.2f} | {site.answers()} |",
                flush=True,
            )


def hundred_thousand(feeds: int) -> None:
    """Run `benchmarks.many_feeds`; store creation is a separate process, for its peak memory."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), 100) as site:
        site.publish()
        store = str(Path(folder) / "tidings.db")
        command = [sys.executable, "-m", "benchmarks.many_feeds"]
        subprocess.run([*command, "make", store, site.base, str(feeds)], check=True)
        site.answers()
        completed = subprocess.run(
            [*command, "work", store, str(time.monotonic())],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found = json.loads(completed.stdout)
        answers = site.answers()
    print(f"{feeds:,} feeds in SQLite; {_machine()}\n\n| | |\n|---|---|")
    print(f"| start-up, including imports | {found['start_s']:.2f} s |")
    for label, name in (
        ("query of the next due time", "next_due"),
        ("lease of up to 100 due feeds", "lease_feeds"),
    ):
        median, worst = found[f"{name}_ms"], found[f"{name}_worst_ms"]
        print(f"| {label} | {median:.2f} ms (median), {worst:.1f} ms (max) |")
    print(
        f"| polls in an hour | {found['polls']:,} ({answers}), {found['new']:,} new entries, "
        f"{found['cpu_s']:.0f} CPU s |"
    )
    memory = ", ".join(f"{mb:.0f}" for mb in found["mb"])
    print(f"| MB after start-up, then every ten minutes | {memory} |\n")
    _check_target("s, start-up", found["start_s"], 5.0)
    _check_target("ms, lease of due feeds", found["lease_feeds_ms"], 10.0)
    _check_target(
        "MB of growth from minute 10 to minute 60", found["mb"][-1] - found["mb"][1], 20.0
    )


def _check_target(what: str, figure: float, limit: float) -> None:
    print(
        f"{'ok    ' if figure < limit else 'MISSED'} {figure:.3g} {what}; target: below {limit:g}"
    )


def _times(rounds: int) -> str:
    return f"median of {rounds} rounds" if rounds > 1 else "one round"


def _machine() -> str:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    system = f"{platform.system()} {platform.machine()}"
    return f"{os.cpu_count()} cores, load {load:.1f}, Python {platform.python_version()}, {system}"


def main() -> None:
    parts = ("refresh", "ten-thousand", "hundred-thousand", "bomb")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--part", choices=parts, action="append", help="only this part; may be repeated"
    )
    parser.add_argument(
        "--feeds", type=int, help="number of feeds; the targets are for the default numbers"
    )
    parser.add_argument(
        "--rounds", type=int, default=1, help="rounds of `refresh`, whose medians are printed"
    )
    parser.add_argument(
        "--reader",
        default="",
        metavar="PYTHON",
        help=f"Python interpreter with lemon24/reader: {Reader.install}",
    )
    options = parser.parse_args()
    Reader.python = options.reader
    for name in [name for name in os.environ if name.startswith("TIDINGS_")]:
        del os.environ[name]  # measure the default configuration
    # Otherwise changed source files would be compiled again at every start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for part in options.part or parts:
        print(f"\n## {part}\n", flush=True)
        if part == "refresh":
            refresh(options.feeds or 2_000, options.rounds, installed())
        elif part == "ten-thousand":
            refresh(options.feeds or 10_000, 1, [Tidings])
        elif part == "hundred-thousand":
            hundred_thousand(options.feeds or 100_000)
        else:
            bomb(installed())


if __name__ == "__main__":
    main()
