"""Data from polls and from the store, as arrays for the scheduling policy."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tidings.aggregator.document_diff import window_sizes
from tidings.model import DAY_S, Documents, Floats
from tidings.policy.constraints import learn_transfer, no_facts, stated_interval
from tidings.reasons import NO_REASON, Reason
from tidings.store import Store
from tidings.store.feed_models import Estimate

#: Maximum age in seconds of posts from which the policy learns.
HISTORY_S = 180 * DAY_S
NO_TIMES: Floats = np.empty(0)


class PollObservation(Struct, frozen=True):
    """Result of one poll or push, and the data for poll constraints, for the scheduler."""

    feed_id: int
    at: float
    weight: float = 1.0
    added_at: float = 0.0
    ok: bool = True  #: whether the response was a document or 304
    times: Floats | None = None  #: times of the entries, known before new; None without document
    new_count: int = 0  #: number of new entries in `times`
    gap: bool = False
    window: int = 0  #: number of entries that a document of this feed lists, for the policy
    count: bool = True  #: whether the poll was a request that counts against the budget

    # Data for `policy.constraints`, known before this poll or stated by its response.
    polled_at: float | None = None  #: time of the last poll by this service, or None for `at`
    ttl_s: float = 0.0  #: ttl of the document, or 0 if not stated
    period_s: float = 0.0  #: sy:updatePeriod of the document, or 0 if not stated
    fresh_s: float = 0.0  #: time for which the response headers state that the document is fresh
    stated_s: float = 0.0  #: interval that the publisher has stated before, if this is not a poll
    stated_by: int = 0
    retry_at: float = -np.inf
    backoff_until: float = -np.inf
    failure: Reason = NO_REASON  #: reason of the wait after a failure
    override_s: float = 0.0  #: minimum interval that subscribers have set, or 0
    entries: int = 0  #: number of entries in the last document
    most_entries: int = 0  #: largest number of entries in a document; 0 if dropped by age
    mean_gap_s: float = np.nan  #: mean time between two entries of the last document
    skip: bytes = b""  #: excluded hours of the week, one bit each
    not_modified: float = 1.0  #: fraction of polls without news that were answered with 304
    document_bytes: float = 0.0
    poll_bytes: float = 0.0
    bytes: int | None = None  #: bytes transferred by this poll, or None if there was no request
    unchanged: bool = False  #: whether there were no new or changed entries
    answered_304: bool = False


class LearnedFacts(Struct, frozen=True):
    """Properties of a feed's server that were learned from a poll and are stored with the feed."""

    stated_s: float
    stated_by: int
    not_modified: float
    document_bytes: float
    poll_bytes: float


class Decision(Struct, frozen=True):
    """Time of the next poll of a feed, with the reason."""

    at: float
    reason: Reason
    estimate: Estimate | None = None  #: policy state of the feed, to be stored
    learned: LearnedFacts | None = None  #: properties of the server, or None if the poll failed


def constraint_facts(observations: Sequence[PollObservation]) -> npt.NDArray[np.void]:
    """Return the data for poll constraints of the feeds that were polled.

    The result is a structured array (`policy.constraints.FACTS`) with one element per observation.
    """
    facts = no_facts(len(observations))
    if not observations:
        return facts
    facts["polled_at"] = [
        observation.at if observation.polled_at is None else observation.polled_at
        for observation in observations
    ]
    for name in _SAME:
        facts[name] = [getattr(observation, name) for observation in observations]
    facts["window"] = [observation.most_entries for observation in observations]
    for i, observation in enumerate(observations):
        if observation.skip:
            facts["skip"][i] = np.frombuffer(observation.skip, dtype=np.uint8)
    polled = [
        i
        for i, observation in enumerate(observations)
        if observation.ok and observation.bytes is not None
    ]
    if polled:
        responses = [observations[i] for i in polled]
        stated = (
            [getattr(observation, name) for observation in responses]
            for name in ("ttl_s", "period_s", "fresh_s")
        )
        facts["stated_s"][polled], facts["stated_by"][polled] = stated_interval(
            *map(np.array, stated)
        )
        facts[polled] = learn_transfer(
            facts[polled],
            np.array([float(observation.bytes or 0) for observation in responses]),
            np.array([observation.unchanged for observation in responses]),
            np.array([observation.answered_304 for observation in responses]),
        )
    return facts


#: Fields of `PollObservation` that are copied to the facts of the same name.
_SAME = (
    *("stated_s", "stated_by", "retry_at", "backoff_until", "override_s", "entries", "mean_gap_s"),
    *("not_modified", "document_bytes", "poll_bytes"),
)


def stored_constraint_facts(members: np.ndarray, skip: Mapping[int, bytes]) -> npt.NDArray[np.void]:
    """Return the data for poll constraints of stored feeds.

    ``members`` are rows of `store.feeds.TIMING`. ``skip`` has the excluded hours of the week by
    feed id. The result is a structured array (`policy.constraints.FACTS`).
    """
    facts = no_facts(len(members))
    for name in ("stated_s", "stated_by", "not_modified", "document_bytes", "poll_bytes"):
        facts[name] = members[name]
    failing = members["errors"] > 0
    facts["stated_s"][failing] = 0.0
    # A failing feed waits until the time that was decided when it failed.
    facts["backoff_until"] = np.where(failing, members["next_poll_at"], -np.inf)
    facts["polled_at"], facts["override_s"] = members["last_poll_at"], members["min_interval_s"]
    facts["entries"], facts["mean_gap_s"] = members["shown"], members["usual_gap_s"]
    facts["window"] = np.where(members["by_age"] > 0, 0, members["window"])
    for i, feed_id in enumerate(members["feed_id"].tolist()):
        if feed_id in skip:
            facts["skip"][i] = np.frombuffer(skip[feed_id], dtype=np.uint8)
    return facts


def observation_from_timing(timing: np.void, skip: bytes, now: float) -> PollObservation:
    """Return the observation of a stored feed as if it had just been polled without a new post."""
    failing = bool(timing["errors"])
    return PollObservation(
        int(timing["feed_id"]),
        now,
        weight=float(timing["weight"]),
        added_at=float(timing["added_at"]),
        window=int(window_sizes(timing["window"], timing["dropped"], timing["by_age"])),
        polled_at=float(timing["last_poll_at"]),
        stated_s=0.0 if failing else float(timing["stated_s"]),
        stated_by=int(timing["stated_by"]),
        backoff_until=float(timing["next_poll_at"]) if failing else -np.inf,
        override_s=float(timing["min_interval_s"]),
        entries=int(timing["shown"]),
        most_entries=0 if timing["by_age"] else int(timing["window"]),
        mean_gap_s=float(timing["usual_gap_s"]),
        skip=skip,
        not_modified=float(timing["not_modified"]),
        document_bytes=float(timing["document_bytes"]),
        poll_bytes=float(timing["poll_bytes"]),
    )


async def posting_history(
    store: Store, members: np.ndarray, now: float
) -> tuple[Documents, Floats]:
    """Return the posts of stored feeds and the time from which each feed's history is complete."""
    posts = await store.posting_times(now - HISTORY_S, members["feed_id"].tolist())
    posts = posts[posts["at"] <= now]
    first = np.searchsorted(posts["feed_id"], members["feed_id"], side="left")
    end = np.searchsorted(posts["feed_id"], members["feed_id"], side="right")
    oldest = np.where(end > first, np.append(posts["at"], np.inf)[first], np.inf)
    since = np.maximum(np.minimum(members["added_at"], oldest), now - HISTORY_S)
    return Documents(
        posts["at"].copy(), first, first, end, np.zeros(len(first), dtype=np.bool_)
    ), since


def build_documents(
    times: Sequence[Floats], new_counts: Sequence[int], gap: Sequence[bool]
) -> Documents:
    """Return entry times of several documents in the form that `Policy.observe` takes.

    In row ``r``, the last ``new_counts[r]`` times are those of new entries.
    """
    end = np.cumsum([len(t) for t in times])
    first = end - [len(t) for t in times]
    flat = np.concatenate(times) if len(times) else NO_TIMES
    return Documents(
        flat, first, end - np.array(new_counts, dtype=np.int64), end, np.array(gap, dtype=np.bool_)
    )
