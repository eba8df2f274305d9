"""Poller that makes one poll of a feed, from the conditional request to the new entries.

Errors of servers and documents are returned as values with reasons. An unexpected exception in this
program is logged with its traceback and becomes a failed poll of that feed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tidings.aggregator.document_diff import DocumentDiff, Window, diff_document, may_have_gap
from tidings.aggregator.entry_dates import EntryDates, declared_date
from tidings.aggregator.poll_observation import PollObservation
from tidings.aggregator.retry import retry_on_store_error
from tidings.document import Document, Entry, Links
from tidings.fetch import Fetcher, FetchProblem, FetchRequest, FetchResult, Problem
from tidings.fetch.error_policy import (
    DEAD_AFTER_S,
    Action,
    FailureHistory,
    Move,
    as_unreadable,
    decide,
    update_move,
)
from tidings.fetch.urls import host_key, parse_url
from tidings.fetch.validators import Validators
from tidings.i18n import _
from tidings.logs import Log
from tidings.parse import ParseError, parse, unique_entries
from tidings.parse.sanitize import sanitize_html, sanitize_url, search_text
from tidings.policy.constraints import ASSUMED_CONDITIONAL_SHARE, skip_hours
from tidings.reasons import Reason, reason
from tidings.redaction import redact_password
from tidings.store import Store, StoreError
from tidings.store.feed_models import EntryText, Feed, FeedState, Pause, PollOutcome

#: Minimum size in bytes of documents that are parsed in a thread, so that the event loop is not
#: blocked.
THREAD_PARSE_BYTES = 200_000
#: Number of newest stored entries that are compared with a document after a suspected gap.
GAP_CHECK_ENTRIES = 200

log = Log("tidings.poller")


class PollResult(Struct, frozen=True):
    """Result of a finished poll, before the next poll is decided."""

    feed: Feed
    outcome: PollOutcome  #: values to store, complete except for the time of the next poll
    observation: PollObservation  #: values for the scheduler
    links: Links | None = None  #: links of the parsed document
    was_requested: bool = True  #: False if no request was made because the host is paused
    document: Document | None = None
    latest: float = np.inf  #: upper bound of the next poll time
    notice: str = ""  #: message for the subscribers


class Poller:
    """Component that polls feeds. Any number of its polls may run concurrently."""

    def __init__(
        self,
        store: Store,
        fetcher: Fetcher,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        wait_for_capacity: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Set the components. ``wait_for_capacity`` is awaited before a document is parsed."""
        self._store, self._fetcher, self._clock, self._sleep, self._wait_for_capacity = (
            store,
            fetcher,
            clock,
            sleep,
            wait_for_capacity,
        )

    async def poll(
        self, feed: Feed, poll_reason: Reason, result: FetchResult | None = None
    ) -> PollResult:
        """Poll a feed, or process ``result`` if the feed was already fetched.

        Errors of the feed are returned in the result; only `StoreError` is raised.
        """
        request = request_for(feed)
        try:
            result = result or await self._fetcher.fetch(request)
            if result.body is not None and self._wait_for_capacity is not None:
                await self._wait_for_capacity()
            return await self._process_response(feed, request, result, poll_reason)
        except StoreError:
            raise  # this is no error of the feed, which is due again when its lease expires
        except Exception as error:  # a bug triggered by one document fails that feed only
            log.exception("poll_crashed", feed=feed.id, url=feed.url)
            problem = FetchProblem(
                Problem.BROKEN,
                _(
                    "internal error (%(type)s: %(error)s); please report this",
                    type=type(error).__name__,
                    error=error,
                ),
            )
            failed = FetchResult(
                feed.url,
                validators=request.validators,
                digest=request.body_digest,
                error=problem,
                requests=1,
            )
            return self._failure_result(feed, failed, self._clock(), poll_reason)

    async def _process_response(
        self, feed: Feed, request: FetchRequest, result: FetchResult, poll_reason: Reason
    ) -> PollResult:
        """Convert the response of a server into a poll result."""
        now = self._clock()
        document = diff = None
        if result.error is None and result.body is not None:
            try:
                document = await self.parse(result.body, result.content_type, result.url)
            except ParseError as error:
                result = as_unreadable(request, result, str(error))
        if result.error is not None:
            return self._failure_result(feed, result, now, poll_reason)
        if document is not None:
            diff = await self._compare(feed, document, now, delta=result.delta)
        return self._success_result(feed, result, document, diff, now, poll_reason)

    async def _compare(
        self, feed: Feed, document: Document, now: float, *, delta: bool = False
    ) -> DocumentDiff:
        """Find the new and changed entries of a document.

        ``delta`` marks a document that omits known entries on purpose.
        """
        state = feed.state
        known = {}
        if state.window > 0 and document.entries:
            identities = [entry.identity for entry in document.entries]
            known = await retry_on_store_error(
                lambda: self._store.known_entries(feed.id, identities), self._sleep
            )
        has_suspected_gap = may_have_gap(document, known, state.window, delta=delta)
        stored_entries = (
            await self._store.entries(feed_id=feed.id, limit=GAP_CHECK_ENTRIES)
            if has_suspected_gap
            else []
        )
        return diff_document(document, known, stored_entries, state.last_ok_at, now)

    async def handle_push(self, feed: Feed, document: Document) -> PollResult:
        """Process a document that a hub has pushed.

        Entries that the document does not contain are not deleted.
        """
        diff = await self._compare(feed, document, self._clock(), delta=True)
        state = replace(feed.state, title=document.title or feed.state.title)
        changed = _changed(diff, self._clock())
        return self._unsolicited_result(
            feed, document, diff, state, reason=reason("hub_pushed"), source="push", changed=changed
        )

    async def handle_peer_entries(
        self, feed: Feed, entries: Sequence[Entry], latest: float, **fields: Any
    ) -> PollResult:
        """Process entries from peers. Known entries are ignored, because peers cannot change them.

        ``latest`` is the upper bound of the next poll time. ``fields`` are fields of `PollOutcome`.
        """
        document = Document("", entries=tuple(entries))
        diff = await self._compare(feed, document, self._clock(), delta=True)
        poll_result = self._unsolicited_result(
            feed, document, diff, feed.state, reason=reason("peer_sent"), **fields
        )
        return replace(poll_result, links=None, latest=latest)

    def _unsolicited_result(
        self, feed: Feed, document: Document, diff: DocumentDiff, state: FeedState, **fields: Any
    ) -> PollResult:
        """Return the poll result for entries that were received without a request."""
        now, count = self._clock(), len(document.entries)
        outcome = PollOutcome(
            feed_id=feed.id, at=now, entries=count, new=_new(diff), state=state, **fields
        )
        observation = _observation(
            feed, state, now, times=diff.times, new_count=diff.new_count, count=False
        )
        return PollResult(feed, outcome, observation, document.links, document=document)

    def peer_poll_observation(self, feed: Feed, at: float) -> PollObservation:
        """Return the observation of a poll by a peer, whose new entries were received before."""
        return _observation(feed, feed.state, at, count=False)

    async def parse(self, body: bytes, content_type: str, url: str) -> Document:
        """Parse a document, in a thread if it is large.

        Raises `ParseError` if the document is not a feed.
        """
        if len(body) < THREAD_PARSE_BYTES:
            return unique_entries(parse(body, content_type=content_type, url=url))
        return unique_entries(
            await asyncio.to_thread(parse, body, content_type=content_type, url=url)
        )

    def _failure_result(
        self, feed: Feed, result: FetchResult, now: float, poll_reason: Reason
    ) -> PollResult:
        assert result.error is not None
        state, error = feed.state, result.error
        silent_s = (state.last_poll_at or now) - (
            now if state.failing_since is None else state.failing_since
        )
        history = FailureHistory(
            state.errors,
            state.failing_since,
            state.last_ok_at is not None,
            silent_s >= DEAD_AFTER_S,
        )
        verdict = decide(result, history, now, str(feed.id))
        kind = f"http {result.status}" if error.kind is Problem.STATUS else str(error.kind)
        state = replace(
            _state_after_response(state, result, now),
            errors=verdict.history.errors,
            failing_since=verdict.history.failing_since,
            error_kind=kind,
            last_error=f"{error.message}: {error.response_text}"
            if error.response_text
            else error.message,
            stated_s=0.0,
            stated_by=0,
            # This applies to manual polls too, so it excludes the backoff of this service.
            earliest_at=_latest(result.retry_at, result.fresh_until, now)
            if verdict.action is not Action.RETIRE
            else None,
        )
        outcome = self._outcome(feed, result, now, poll_reason, state)
        retire = str(verdict.reason.params["text"]) if verdict.action is Action.RETIRE else ""
        outcome = replace(
            outcome,
            error_kind=kind,
            error=state.last_error,
            pause=self._pause(result),
            retire_reason=retire,
        )
        was_requested = error.kind is not Problem.PAUSED
        bounds = {"backoff_until": verdict.earliest, "failure": verdict.reason}
        observation = _observation(
            feed,
            state if was_requested else feed.state,
            now,
            ok=False,
            count=result.requests > 0,
            **bounds,
        )
        return PollResult(
            feed, outcome, observation, was_requested=was_requested, notice=verdict.notice
        )

    def _success_result(
        self,
        feed: Feed,
        result: FetchResult,
        document: Document | None,
        diff: DocumentDiff | None,
        now: float,
        poll_reason: Reason,
    ) -> PollResult:
        state = feed.state
        hints = document.hints if document is not None else state.hints
        move = update_move(_move_of(state), result, now)
        adopt = move.target if move is not None and move.is_settled else ""
        state = replace(
            _state_after_response(state, result, now),
            last_ok_at=now,
            errors=0,
            failing_since=None,
            error_kind="",
            last_error="",
            moved_to="" if adopt or move is None else move.target,
            moved_sightings=0 if adopt or move is None else move.count,
            moved_since=None if adopt or move is None else move.since,
        )
        new: tuple[EntryText, ...] = ()
        changed: tuple[EntryText, ...] = ()
        if document is not None and diff is not None:
            state = _state_after_document(state, result, document)
            if not result.delta:  # a delta response omits known entries
                state = Window.of(state).after(len(document.entries), diff.times).apply_to(state)
            new, changed = _new(diff), _changed(diff, now)
        outcome = replace(
            self._outcome(feed, result, now, poll_reason, state),
            entries=len(document.entries) if document is not None else 0,
            new=new,
            changed=changed,
            document=tuple(e.identity for e in document.entries)
            if document is not None and not result.delta
            else None,
            gap=diff.gap if diff is not None else None,
            new_url=adopt,
        )
        observation = _observation(
            feed,
            state,
            now,
            times=diff.times if diff is not None else None,
            new_count=diff.new_count if diff is not None else 0,
            gap=outcome.gap is not None,
            ttl_s=hints.ttl_s or 0.0,
            period_s=hints.period_s or 0.0,
            fresh_s=max((result.fresh_until or now) - now, 0.0),
            bytes=result.wire_bytes,
            unchanged=not (new or changed),
            answered_304=result.status == 304,
        )
        notice = (
            redact_password(
                _(
                    "The feed has moved permanently from %(old)s to %(new)s.",
                    old=feed.url,
                    new=adopt,
                )
            )
            if adopt
            else ""
        )
        links = document.links if document is not None else None
        return PollResult(feed, outcome, observation, links, notice=notice, document=document)

    def _outcome(
        self, feed: Feed, result: FetchResult, now: float, poll_reason: Reason, state: FeedState
    ) -> PollOutcome:
        return PollOutcome(
            feed_id=feed.id,
            at=now,
            reason=poll_reason,
            host=host_of(result.url or feed.url),
            status=result.status,
            bytes=result.wire_bytes,
            elapsed_s=result.elapsed_s,
            state=state,
        )

    def _pause(self, result: FetchResult) -> Pause | None:
        """Return the pause of the host that this response has caused, or None."""
        host = host_of(result.url)
        until = (
            self._fetcher.host_limiter.paused_until(host) if result.rate_limited and host else None
        )
        return (
            Pause(host, until, result.error.message if result.error else "")
            if until is not None
            else None
        )


def request_for(feed: Feed) -> FetchRequest:
    """Return the conditional request (ETag, Last-Modified) for a feed."""
    state = feed.state
    validators = Validators(
        state.etag or None,
        state.last_modified or None,
        state.validators_url,
        state.validators_since or 0.0,
    )
    return FetchRequest(
        feed.url, validators, state.body_digest, feed.subscribers, usual_gap_s=state.usual_gap_s
    )


def entry_text(entry: Entry, entry_dates: EntryDates) -> EntryText:
    """Convert an entry for storage, with sanitized HTML and plain text for the search index."""
    content = sanitize_html(entry.content, entry.base_url) if entry.content else ""
    summary = sanitize_html(entry.summary, entry.base_url) if entry.summary else ""
    return EntryText(
        identity=entry.identity,
        digest=entry.digest,
        published_at=entry_dates.published_at,
        url=sanitize_url(entry.url),
        title=entry.title,
        author=entry.author,
        content=content,
        summary=summary,
        text=search_text(content or summary),
        declared_published_at=declared_date(entry),
        updated_at=entry.updated,
        comments_url=sanitize_url(entry.comments_url),
        tags=entry.tags,
        enclosures=tuple(file for file in entry.enclosures if sanitize_url(file.url)),
        delay_s=entry_dates.delay_s,
    )


def _new(diff: DocumentDiff) -> tuple[EntryText, ...]:
    """Return the new entries, oldest first, so that ids are in the order of publication."""
    texts = [
        entry_text(entry, entry_dates)
        for entry, entry_dates in zip(diff.new, diff.dates, strict=True)
    ]
    texts.reverse()
    texts.sort(key=lambda text: text.published_at)
    return tuple(texts)


def _changed(diff: DocumentDiff, now: float) -> tuple[EntryText, ...]:
    """Return the changed entries. The store does not change their publication time."""
    return tuple(
        entry_text(entry, EntryDates(declared_date(entry) or now, None, None))
        for entry in diff.changed
    )


def _state_after_response(state: FeedState, result: FetchResult, now: float) -> FeedState:
    """Return the feed state with the values that every response changes, even a failure."""
    validators = result.validators
    return replace(
        state,
        last_poll_at=now,
        etag=validators.etag or "",
        last_modified=validators.last_modified or "",
        validators_url=validators.url,
        validators_since=validators.since or None,
        body_digest=result.digest,
        hubs=result.hubs or state.hubs,
        self_url=result.self_url or state.self_url,
    )


def _state_after_document(state: FeedState, result: FetchResult, document: Document) -> FeedState:
    return replace(
        state,
        not_modified=_initial_304_share(state, result),
        title=document.title or state.title,
        site_url=sanitize_url(document.links.site) or state.site_url,
        format=document.format,
        hubs=result.hubs or document.links.hubs,
        self_url=result.self_url or document.links.self_url,
        hints=document.hints,
        forbidden=skip_hours(document.hints),
    )


def _observation(feed: Feed, state: FeedState, now: float, **fields: object) -> PollObservation:
    window = Window.of(state)
    return PollObservation(
        feed.id,
        now,
        weight=feed.weight,
        added_at=feed.added_at,
        window=window.size,
        polled_at=state.last_poll_at,
        stated_s=state.stated_s,
        stated_by=state.stated_by,
        override_s=feed.min_interval_s,
        entries=window.shown,
        most_entries=0 if window.by_age else window.most,
        mean_gap_s=np.nan if window.usual_gap_s is None else window.usual_gap_s,
        skip=state.forbidden,
        not_modified=state.not_modified,
        document_bytes=state.document_bytes,
        poll_bytes=state.poll_bytes,
        **fields,  # type: ignore[arg-type]  # fields of `PollObservation`, by name
    )


def _initial_304_share(state: FeedState, result: FetchResult) -> float:
    """Return the assumed fraction of 304 responses when nothing has changed.

    It is 0 if the server sends no validators (ETag, Last-Modified).
    """
    if result.validators.etag is None and result.validators.last_modified is None:
        return 0.0
    is_first = not state.window or (not state.not_modified and state.document_bytes <= 0)
    return ASSUMED_CONDITIONAL_SHARE if is_first else state.not_modified


def _move_of(state: FeedState) -> Move | None:
    return (
        Move(state.moved_to, state.moved_sightings, state.moved_since or 0.0)
        if state.moved_to
        else None
    )


def _latest(retry_at: float | None, fresh_until: float | None, now: float) -> float | None:
    return max((at for at in (retry_at, fresh_until) if at is not None and at > now), default=None)


@lru_cache(maxsize=4096)
def host_of(url: str) -> str:
    """Return the key of a URL's host in the host limiter, or an empty string if it has no host."""
    try:
        return host_key(parse_url(url)) if url else ""
    except ValueError:
        return ""
