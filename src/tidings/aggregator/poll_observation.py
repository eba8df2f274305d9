"""Poll observations: facts from polls and the store, as arrays for the scheduling policy."""

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

#: Maximum age of posts that the policy learns from.
HISTORY_S = 180 * DAY_S
NO_TIMES: Floats = np.empty(0)


class PollObservation(Struct, frozen=True):
    """What the scheduler learns from one poll (or push): its result and the constraint facts."""

    feed_id: int
    at: float
    weight: float = 1.0
    added_at: float = 0.0
    ok: bool = True  #: the response was a document or 304
    times: Floats | None = None  #: times of the entries, known ones first; None: no document
    new_count: int = 0  #: number of new entries in `times`
    gap: bool = False
    window: int = 0  #: number of entries that the document holds, for the policy
    count: bool = True  #: it was a request that counts against the budget

    # Facts for `policy.constraints`, known before this poll or stated by its response.
    polled_at: float | None = None  #: our own last poll; None: this one
    ttl_s: float = 0.0  #: stated by the document; 0: not stated
    period_s: float = 0.0  #: sy:updatePeriod of the document; 0: not stated
    fresh_s: float = 0.0  #: stated by the response headers
    stated_s: float = 0.0  #: stated before, if this is not a poll
    stated_by: int = 0
    retry_at: float = -np.inf
    backoff_until: float = -np.inf
    failure: Reason = NO_REASON  #: reason of the wait after a failure
    override_s: float = 0.0  #: minimum interval set by subscribers
    entries: int = 0  #: number of entries in the last document
    most_entries: int = 0  #: maximum number in a document; 0 if entries are dropped by age
    mean_gap_s: float = np.nan  #: mean gap between the entries of the last document
    skip: bytes = b""  #: hours of the week in which polls are excluded
    not_modified: float = 1.0  #: share of unchanged polls that were answered with 304
    document_bytes: float = 0.0
    poll_bytes: float = 0.0
    bytes: int | None = None  #: transfer of this poll; None if there was no request
    unchanged: bool = False  #: no new or changed entries
    answered_304: bool = False


class LearnedFacts(Struct, frozen=True):
    """Facts about the publisher learned from a poll, stored with the feed."""

    stated_s: float
    stated_by: int
    not_modified: float
    document_bytes: float
    poll_bytes: float


class Decision(Struct, frozen=True):
    """The next poll with its reason."""

    at: float
    reason: Reason
    estimate: Estimate | None = None  #: policy state of the feed, to be stored
    learned: LearnedFacts | None = None  #: None if the poll failed


def constraint_facts(observations: Sequence[PollObservation]) -> npt.NDArray[np.void]:
    """Build the facts of the constraint rule from these polls."""
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
    """Build the facts of the constraint rule from stored feeds (`store.feeds.TIMING`).

    ``skip`` has the excluded hours of the week by feed id.
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
    """Create the observation of a stored feed as if it had just been polled without a new post."""
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
    """Load the posts of these feeds, and the time from which each feed's history is complete."""
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
    """Build a batch for `Policy.observe`; the last ``new_counts`` of each row's times are new."""
    end = np.cumsum([len(t) for t in times])
    first = end - [len(t) for t in times]
    flat = np.concatenate(times) if len(times) else NO_TIMES
    return Documents(
        flat, first, end - np.array(new_counts, dtype=np.int64), end, np.array(gap, dtype=np.bool_)
    )
