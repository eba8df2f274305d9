"""Count polls and render metrics in the Prometheus text exposition format 0.0.4.

`PollCounters` counts recorded polls and starts at zero with the process, as Prometheus expects. The
gauges are read from the store at each scrape (`status.StatusReporter.families`).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidings.store.feed_models import PollOutcome, RecordResult

MEDIA_TYPE = "text/plain; version=0.0.4"
#: Upper limits of the delay histogram's buckets in seconds, from a minute to a week.
BUCKETS_S = (60, 300, 600, 1200, 2400, 3600, 7200, 14400, 28800, 86400, 604800)


class Sample(NamedTuple):
    """One value of a metric with its labels."""

    value: float
    labels: dict[str, str] = {}
    suffix: str = ""


class Family(NamedTuple):
    """Metric with its name, type, help text and samples."""

    name: str
    kind: str  #: counter, gauge or histogram
    help: str
    samples: Sequence[Sample]


class PollCounters:
    """Counters of polls, entries and errors since the process started."""

    def __init__(self) -> None:
        self.polls: Counter[tuple[str, str]] = Counter()  #: polls by source and status
        self.errors: Counter[str] = Counter()
        self.bytes = self.new = self.changed = self.gaps = 0
        self._delays = [0] * (len(BUCKETS_S) + 1)
        self._delay_sum_s = 0.0

    def count_polls(
        self, outcomes: Sequence[PollOutcome], recorded: Sequence[RecordResult]
    ) -> None:
        """Count recorded polls and their new and changed entries (called by the store)."""
        for outcome, result in zip(outcomes, recorded, strict=True):
            self.polls[outcome.source, str(outcome.status or "none")] += 1
            self.bytes += outcome.bytes
            self.new += len(result.new)
            self.changed += result.changed
            self.gaps += outcome.gap is not None
            if outcome.error_kind:
                self.errors[outcome.error_kind] += 1
            for entry in outcome.new:
                if entry.delay_s is not None:
                    self._delays[bisect_left(BUCKETS_S, entry.delay_s)] += 1
                    self._delay_sum_s += entry.delay_s

    def families(self) -> list[Family]:
        polls = [
            Sample(n, {"source": source, "status": status})
            for (source, status), n in sorted(self.polls.items())
        ]
        errors = [Sample(n, {"kind": kind}) for kind, n in sorted(self.errors.items())]
        return [
            Family(
                "tidings_polls_total",
                "counter",
                "Polls, pushes and archive pages, by HTTP status.",
                polls,
            ),
            Family(
                "tidings_poll_errors_total",
                "counter",
                "Polls that failed, by kind of error.",
                errors,
            ),
            Family(
                "tidings_poll_bytes_total",
                "counter",
                "Bytes of feed documents, as transferred.",
                [Sample(self.bytes)],
            ),
            Family("tidings_entries_new_total", "counter", "Entries stored.", [Sample(self.new)]),
            Family(
                "tidings_entries_changed_total",
                "counter",
                "Entries changed by their publisher.",
                [Sample(self.changed)],
            ),
            Family(
                "tidings_gaps_total",
                "counter",
                "Polls after which posts were probably missed.",
                [Sample(self.gaps)],
            ),
            Family(
                "tidings_delay_seconds",
                "histogram",
                "Delay from publication to arrival.",
                list(self._histogram()),
            ),
        ]

    def _histogram(self) -> Iterable[Sample]:
        total = 0
        for end, number in zip((*map(str, BUCKETS_S), "+Inf"), self._delays, strict=True):
            total += number
            yield Sample(total, {"le": end}, "_bucket")
        yield Sample(self._delay_sum_s, suffix="_sum")
        yield Sample(total, suffix="_count")


def exposition(families: Iterable[Family]) -> str:
    """Render metrics in the Prometheus text format."""
    lines = []
    for family in families:
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
        for sample in family.samples:
            labels = ",".join(
                f'{name}="{_escape_label_value(value)}"' for name, value in sample.labels.items()
            )
            name = f"{family.name}{sample.suffix}" + (f"{{{labels}}}" if labels else "")
            lines.append(f"{name} {_number(sample.value)}")
    return "\n".join(lines) + "\n"


def _escape_label_value(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
