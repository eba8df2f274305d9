"""What a refresh costs, ours beside lemon24/reader, newsboat and sfeed: `python -m benchmarks.refresh`, `make bench-refresh`.

Four parts, each of which prints a table: ``refresh`` (2,000 feeds of 20 entries: the first time, when nothing has changed,
and when 5 % have), ``ten-thousand`` (ours alone: memory), ``hundred-thousand`` (ours alone: start-up, what is due, an hour of
work) and ``bomb`` (a small body that unpacks to 400 MB). All programs ask the same nginx on the loopback address, in turn;
everything is kept in a temporary folder. On a machine that is not idle, the ratios are what counts.
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

# Nothing heavy: a child's peak memory begins with what its parent holds when it forks.
from benchmarks.programs import PROGRAMS, Cost, Program, Reader, Tidings
from benchmarks.website import WINDOW, Website, serving

CHANGED = 20  #: every 20th feed has a new post in the last step
BOMB_MB = 400
STEPS = ("first", "unchanged", "5 % changed")
#: What ours must stay below, CPU seconds and MB.
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
    """Those that can be measured; of the others it is said how they could be."""
    for program in PROGRAMS:
        if not program.installed():
            print(f"{program.name} is left out; to have it: {program.install}", flush=True)
    return [program for program in PROGRAMS if program.installed()]


def refresh(feeds: int, rounds: int, programs: list[type[Program]]) -> None:
    """All three steps, in turn for every program, from an empty store in every round."""
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
    """One step of one program; what it stored must be what was published."""
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
            f"{program.name}, {step}: {program.stored():,} entries stored, {published:,} were published"
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
                figures = f"{measurement.cpu_s:.2f} | {ratio:.1f} | {feeds / measurement.cpu_s:,.0f} | {measurement.wall_s:.1f}"
                print(f"| {step} | {name} | {figures} | {measurement.peak_mb:.0f} | {answers} |")
    print()
    for step in STEPS if feeds == 2_000 else ():
        _check_target(f"CPU s, {step}", found[Tidings.name, step].cpu_s, CPU_TARGET_S[step])
    if feeds in MEMORY_TARGET_MB:
        _check_target(
            "MB", max(found[Tidings.name, step].peak_mb for step in STEPS), MEMORY_TARGET_MB[feeds]
        )


def bomb(programs: list[type[Program]]) -> None:
    """One feed, of a few hundred kilobytes that unpack to much more."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), 0) as site:
        url = site.write_packed(
            "bomb.rss", b"<?xml version='1.0'?><rss version='2.0'><channel><title>", BOMB_MB
        )
        size = (site.site / "packed" / "bomb.rss").stat().st_size
        print(f"{size / 1e6:.1f} MB of gzip that unpack to {BOMB_MB} MB; {_machine()}\n")
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
    """Made in one process and measured in another, so that peak memory is of the measured work alone."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), 100) as site:
        site.publish()
        store, many = (
            str(Path(folder) / "tidings.db"),
            [sys.executable, "-m", "benchmarks.many_feeds"],
        )
        subprocess.run([*many, "make", store, site.base, str(feeds)], check=True)
        site.answers()
        worked = subprocess.run(
            [*many, "work", store, str(time.monotonic())],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found = json.loads(worked.stdout)
        answers = site.answers()
    print(f"{feeds:,} feeds in SQLite; {_machine()}\n\n| | |\n|---|---|")
    print(f"| start-up, imports included | {found['start_s']:.2f} s |")
    print(
        f"| the next due feed is known in | {found['next_due_ms']:.2f} ms (median), {found['next_due_worst_ms']:.1f} ms |"
    )
    print(
        f"| up to 100 due feeds are taken in | {found['claim_ms']:.1f} ms (median), {found['claim_worst_ms']:.1f} ms |"
    )
    print(
        f"| polls in an hour | {found['polls']:,} ({answers}), {found['new']:,} new entries, {found['cpu_s']:.0f} CPU s |"
    )
    print(
        f"| MB after start-up, then every ten minutes | {', '.join(f'{mb:.0f}' for mb in found['mb'])} |\n"
    )
    _check_target("s, start-up", found["start_s"], 5.0)
    _check_target("ms, due feeds found", found["claim_ms"], 10.0)
    _check_target(
        "MB grown from the 10th minute to the 60th", found["mb"][-1] - found["mb"][1], 20.0
    )


def _check_target(what: str, figure: float, below: float) -> None:
    print(
        f"{'ok    ' if figure < below else 'MISSED'} {figure:.3g} {what}; promised: below {below:g}"
    )


def _times(rounds: int) -> str:
    return f"median of {rounds} rounds" if rounds > 1 else "one round"


def _machine() -> str:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return f"{os.cpu_count()} cores, load {load:.1f}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"


def main() -> None:
    parts = ("refresh", "ten-thousand", "hundred-thousand", "bomb")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--part", choices=parts, action="append", help="this part only; may be said again"
    )
    parser.add_argument(
        "--feeds", type=int, help="so many, to try it out; the promises are for the usual numbers"
    )
    parser.add_argument(
        "--rounds", type=int, default=1, help="how often `refresh` is done; medians are told"
    )
    parser.add_argument(
        "--reader",
        default="",
        metavar="PYTHON",
        help=f"a Python with lemon24/reader: {Reader.install}",
    )
    options = parser.parse_args()
    Reader.python = options.reader
    for name in [name for name in os.environ if name.startswith("TIDINGS_")]:
        del os.environ[name]  # what the operator has chosen is not what is measured
    os.environ.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # else ours is compiled anew at every start, if its source has changed
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
