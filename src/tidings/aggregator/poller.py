"""One poll of one feed: ask, read, compare with what is known, make it fit to be kept. All but the decision what comes next.

What the web does wrong comes back as a value with reasons; what we do wrong (an exception that nobody foresaw) is logged with
its traceback and becomes a failed poll of that one feed.
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
from tidings.logs import Log
from tidings.parse import ParseError, parse, unique_entries
from tidings.parse.sanitize import sanitize_html, sanitize_url, search_text
from tidings.policy.constraints import ASSUMED_CONDITIONAL_SHARE, skip_hours
from tidings.reasons import Reason, reason
from tidings.redaction import redact_password
from tidings.store import Store, StoreError
from tidings.store.feed_models import EntryText, Feed, FeedState, Pause, PollOutcome

#: Bodies from this size on are read in a thread, so that pages and other feeds do not wait for them.
THREAD_PARSE_BYTES = 200_000
#: The feed's newest entries that a suspicious document is compared with.
GAP_CHECK_ENTRIES = 200

log = Log("tidings.poller")


class PollResult(Struct, frozen=True):
    """A finished poll, before it is decided what comes next."""

    feed: Feed
    outcome: PollOutcome  #: complete but for the next poll
    observation: PollObservation  #: for the brain
    links: Links | None = None  #: of a document that was read
    was_requested: bool = True  #: False: the host is paused, and nothing was asked
    document: Document | None = None
    latest: float = np.inf  #: the next poll is no later, whatever the policy says
    notice: str = ""  #: for the feed's owner


class Poller:
    """Polls feeds, any number at once."""

    def __init__(
        self,
        store: Store,
        fetcher: Fetcher,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        wait_for_capacity: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """``room`` is waited for before a document is read."""
        self._store, self._fetcher, self._clock, self._sleep, self._wait_for_capacity = (
            store,
            fetcher,
            clock,
            sleep,
            wait_for_capacity,
        )

    async def poll(self, feed: Feed, why: Reason, result: FetchResult | None = None) -> PollResult:
        """Poll it, unless there is a result already. Never raises for what one feed can do."""
        request = request_for(feed)
        try:
            result = result or await self._fetcher.fetch(request)
            if result.body is not None and self._wait_for_capacity is not None:
                await self._wait_for_capacity()
            return await self._process_response(feed, request, result, why)
        except StoreError:
            raise  # no fault of the feed; it is due again when its lease runs out
        except Exception as error:  # an error of ours in one document is that feed's failure, with backoff, not everybody's
            log.exception("poll failed unexpectedly", feed=feed.id, url=feed.url)
            problem = FetchProblem(
                Problem.BROKEN,
                f"reading it failed ({type(error).__name__}: {error}); please report this",
            )
            failed = FetchResult(
                feed.url,
                validators=request.validators,
                digest=request.body_digest,
                error=problem,
                requests=1,
            )
            return self._failure_result(feed, failed, self._clock(), why)

    async def _process_response(
        self, feed: Feed, request: FetchRequest, result: FetchResult, why: Reason
    ) -> PollResult:
        """Make a poll's effects from its answer."""
        now = self._clock()
        document = diff = None
        if result.error is None and result.body is not None:
            try:
                document = await self.parse(result.body, result.content_type, result.url)
            except ParseError as error:
                result = as_unreadable(request, result, str(error))
        if result.error is not None:
            return self._failure_result(feed, result, now, why)
        if document is not None:
            diff = await self._compare(feed, document, now, delta=result.delta)
        return self._success_result(feed, result, document, diff, now, why)

    async def _compare(
        self, feed: Feed, document: Document, now: float, *, delta: bool = False
    ) -> DocumentDiff:
        """What is new in a document."""
        state = feed.state
        known = {}
        if state.window > 0 and document.entries:
            identities = [entry.identity for entry in document.entries]
            known = await retry_on_store_error(
                lambda: self._store.known_entries(feed.id, identities), self._sleep
            )
        doubtful = may_have_gap(document, known, state.window, delta=delta)
        stored_entries = (
            await self._store.entries(feed_id=feed.id, limit=GAP_CHECK_ENTRIES) if doubtful else []
        )
        return diff_document(document, known, stored_entries, state.last_ok_at, now)

    async def handle_push(self, feed: Feed, document: Document) -> PollResult:
        """A document that a hub has sent: like a poll's, but nothing was asked, and what it leaves out is not gone."""
        diff = await self._compare(feed, document, self._clock(), delta=True)
        state = replace(feed.state, title=document.title or feed.state.title)
        changed = _changed(diff, self._clock())
        return self._unsolicited_result(
            feed, document, diff, state, reason=reason("hub_pushed"), source="push", changed=changed
        )

    async def handle_peer_entries(
        self, feed: Feed, entries: Sequence[Entry], latest: float, **fields: Any
    ) -> PollResult:
        """What neighbours tell, with fields of the outcome: news alone, since what is known is not theirs to change."""
        document = Document("", entries=tuple(entries))
        diff = await self._compare(feed, document, self._clock(), delta=True)
        poll_result = self._unsolicited_result(
            feed, document, diff, feed.state, reason=reason("peer_sent"), **fields
        )
        return replace(poll_result, links=None, latest=latest)

    def _unsolicited_result(
        self, feed: Feed, document: Document, diff: DocumentDiff, state: FeedState, **fields: Any
    ) -> PollResult:
        """Entries that came without being asked for."""
        now, count = self._clock(), len(document.entries)
        outcome = PollOutcome(
            feed_id=feed.id, at=now, entries=count, new=_new(diff), state=state, **fields
        )
        observation = _observation(
            feed, state, now, times=diff.times, new_count=diff.new_count, count=False
        )
        return PollResult(feed, outcome, observation, document.links, document=document)

    def peer_poll_observation(self, feed: Feed, at: float) -> PollObservation:
        """Somebody else has looked, and has told what was new before."""
        return _observation(feed, feed.state, at, count=False)

    async def parse(self, body: bytes, content_type: str, url: str) -> Document:
        """Read a document; `ParseError` if it is none."""
        if len(body) < THREAD_PARSE_BYTES:
            return unique_entries(parse(body, content_type=content_type, url=url))
        return unique_entries(
            await asyncio.to_thread(parse, body, content_type=content_type, url=url)
        )

    def _failure_result(
        self, feed: Feed, result: FetchResult, now: float, why: Reason
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
            # The server's own word, which binds also when polling by hand; our patience after failures is not that.
            earliest_at=_latest(result.retry_at, result.fresh_until, now)
            if verdict.action is not Action.RETIRE
            else None,
        )
        outcome = self._outcome(feed, result, now, why, state)
        retire = str(verdict.reason.params["text"]) if verdict.action is Action.RETIRE else ""
        outcome = replace(
            outcome,
            error_kind=kind,
            error=state.last_error,
            pause=self._pause(result),
            retire=retire,
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
        why: Reason,
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
            moved_sightings=0 if adopt or move is None else move.sightings,
            moved_since=None if adopt or move is None else move.since,
        )
        new: tuple[EntryText, ...] = ()
        changed: tuple[EntryText, ...] = ()
        if document is not None and diff is not None:
            state = _state_after_document(state, result, document)
            if not result.delta:  # what a delta leaves out is not gone
                state = Window.of(state).after(len(document.entries), diff.times).apply_to(state)
            new, changed = _new(diff), _changed(diff, now)
        outcome = replace(
            self._outcome(feed, result, now, why, state),
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
            redact_password(f"It has moved for good, from {feed.url} to {adopt}.") if adopt else ""
        )
        links = document.links if document is not None else None
        return PollResult(feed, outcome, observation, links, notice=notice, document=document)

    def _outcome(
        self, feed: Feed, result: FetchResult, now: float, why: Reason, state: FeedState
    ) -> PollOutcome:
        return PollOutcome(
            feed_id=feed.id,
            at=now,
            reason=why,
            host=host_of(result.url or feed.url),
            status=result.status,
            bytes=result.wire_bytes,
            elapsed_s=result.elapsed_s,
            state=state,
        )

    def _pause(self, result: FetchResult) -> Pause | None:
        """The pause of its host, where this answer has begun one."""
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
    """The entry as it is kept: safe HTML, plain words for the search index, dates as judged."""
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
    """Oldest first, so that ids have the order of publication; documents begin with the newest."""
    texts = [
        entry_text(entry, entry_dates)
        for entry, entry_dates in zip(diff.new, diff.dates, strict=True)
    ]
    texts.reverse()
    texts.sort(key=lambda text: text.published_at)
    return tuple(texts)


def _changed(diff: DocumentDiff, now: float) -> tuple[EntryText, ...]:
    """The store keeps the time that was first judged."""
    return tuple(
        entry_text(entry, EntryDates(declared_date(entry) or now, None, None))
        for entry in diff.changed
    )


def _state_after_response(state: FeedState, result: FetchResult, now: float) -> FeedState:
    """What every answer changes, also a failure."""
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
        **fields,  # type: ignore[arg-type]  # fields of `Look`, by name
    )


def _initial_304_share(state: FeedState, result: FetchResult) -> float:
    """What a document says about conditional requests: validators are a promise, their absence a refusal."""
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
    """What the fetcher's gate calls the host of an address; nothing where there is none."""
    try:
        return host_key(parse_url(url)) if url else ""
    except ValueError:
        return ""
