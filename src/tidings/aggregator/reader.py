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

from tidings.aggregator.dating import Dated, told
from tidings.aggregator.looks import Look
from tidings.aggregator.monitor import Findings, Window, examine, suspicious
from tidings.aggregator.patience import insist
from tidings.document import Document, Entry, Links
from tidings.fetch import Fetcher, FetchProblem, FetchRequest, FetchResult, Problem
from tidings.fetch.addresses import host_name, parse_url
from tidings.fetch.outcomes import DEAD_AFTER_S, Action, Move, Past, judge, seen_move, unreadable
from tidings.fetch.validators import Validators
from tidings.logs import Log
from tidings.parse import ParseError, each_once, parse
from tidings.parse.sanitise import clean_address, clean_html, search_text
from tidings.policy.constraints import PROMISED_SHARE, skip_hours
from tidings.privacy import without_password
from tidings.reasons import Reason, reason
from tidings.store import Store, StoreError
from tidings.store.rows import EntryText, Feed, FeedState, Pause, PollOutcome

#: Bodies from this size on are read in a thread, so that pages and other feeds do not wait for them.
LARGE_BYTES = 200_000
#: The feed's newest entries that a suspicious document is compared with.
COMPARED = 200

log = Log("tidings.reader")


class Seen(Struct, frozen=True):
    """A finished poll, before it is decided what comes next."""

    feed: Feed
    outcome: PollOutcome  #: complete but for the next poll
    look: Look  #: for the brain
    links: Links | None = None  #: of a document that was read
    asked: bool = True  #: False: the host is paused, and nothing was asked
    document: Document | None = None
    latest: float = np.inf  #: the next poll is no later, whatever the policy says
    notice: str = ""  #: for the feed's owner


class Reader:
    """Polls feeds, any number at once."""

    def __init__(
        self,
        store: Store,
        fetcher: Fetcher,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        room: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """``room`` is waited for before a document is read."""
        self._store, self._fetcher, self._clock, self._sleep, self._room = store, fetcher, clock, sleep, room

    async def look(self, feed: Feed, why: Reason, result: FetchResult | None = None) -> Seen:
        """Poll it, unless there is a result already. Never raises for what one feed can do."""
        request = request_for(feed)
        try:
            result = result or await self._fetcher.fetch(request)
            if result.body is not None and self._room is not None:
                await self._room()
            return await self._take_in(feed, request, result, why)
        except StoreError:
            raise  # no fault of the feed; it is due again when its lease runs out
        except Exception as error:  # an error of ours in one document is that feed's failure, with backoff, not everybody's
            log.exception("poll failed unexpectedly", feed=feed.id, url=feed.url)
            problem = FetchProblem(Problem.BROKEN, f"reading it failed ({type(error).__name__}: {error}); please report this")
            failed = FetchResult(feed.url, validators=request.validators, digest=request.body_digest, error=problem, requests=1)
            return self._failed(feed, failed, self._clock(), why)

    async def _take_in(self, feed: Feed, request: FetchRequest, result: FetchResult, why: Reason) -> Seen:
        """Make a poll's effects from its answer."""
        now = self._clock()
        document = findings = None
        if result.error is None and result.body is not None:
            try:
                document = await self.parse(result.body, result.content_type, result.url)
            except ParseError as error:
                result = unreadable(request, result, str(error))
        if result.error is not None:
            return self._failed(feed, result, now, why)
        if document is not None:
            findings = await self._compare(feed, document, now, delta=result.delta)
        return self._answered(feed, result, document, findings, now, why)

    async def _compare(self, feed: Feed, document: Document, now: float, *, delta: bool = False) -> Findings:
        """What is new in a document."""
        state = feed.state
        known = {}
        if state.window > 0 and document.entries:
            identities = [entry.identity for entry in document.entries]
            known = await insist(lambda: self._store.known(feed.id, identities), self._sleep)
        doubtful = suspicious(document, known, state.window, delta=delta)
        before = await self._store.entries(feed_id=feed.id, limit=COMPARED) if doubtful else []
        return examine(document, known, before, state.last_ok_at, now)

    async def take_push(self, feed: Feed, document: Document) -> Seen:
        """A document that a hub has sent: like a poll's, but nothing was asked, and what it leaves out is not gone."""
        findings = await self._compare(feed, document, self._clock(), delta=True)
        state = replace(feed.state, title=document.title or feed.state.title)
        changed = _changed(findings, self._clock())
        return self._sent(feed, document, findings, state, reason=reason("hub_pushed"), source="push", changed=changed)

    async def take_told(self, feed: Feed, entries: Sequence[Entry], latest: float, **fields: Any) -> Seen:
        """What neighbours tell, with fields of the outcome: news alone, since what is known is not theirs to change."""
        document = Document("", entries=tuple(entries))
        findings = await self._compare(feed, document, self._clock(), delta=True)
        seen = self._sent(feed, document, findings, feed.state, reason=reason("peer_sent"), **fields)
        return replace(seen, links=None, latest=latest)

    def _sent(self, feed: Feed, document: Document, findings: Findings, state: FeedState, **fields: Any) -> Seen:
        """Entries that came without being asked for."""
        now, count = self._clock(), len(document.entries)
        outcome = PollOutcome(feed_id=feed.id, at=now, entries=count, new=_new(findings), state=state, **fields)
        look = _look(feed, state, now, times=findings.times, fresh=findings.fresh, count=False)
        return Seen(feed, outcome, look, document.links, document=document)

    def others_look(self, feed: Feed, at: float) -> Look:
        """Somebody else has looked, and has told what was new before."""
        return _look(feed, feed.state, at, count=False)

    async def parse(self, body: bytes, content_type: str, url: str) -> Document:
        """Read a document; `ParseError` if it is none."""
        if len(body) < LARGE_BYTES:
            return each_once(parse(body, content_type=content_type, url=url))
        return each_once(await asyncio.to_thread(parse, body, content_type=content_type, url=url))

    def _failed(self, feed: Feed, result: FetchResult, now: float, why: Reason) -> Seen:
        assert result.error is not None
        state, error = feed.state, result.error
        silent_s = (state.last_poll_at or now) - (now if state.failing_since is None else state.failing_since)
        past = Past(state.errors, state.failing_since, state.last_ok_at is not None, silent_s >= DEAD_AFTER_S)
        verdict = judge(result, past, now, str(feed.id))
        kind = f"http {result.status}" if error.kind is Problem.STATUS else str(error.kind)
        state = replace(
            _after_any(state, result, now),
            errors=verdict.past.errors,
            failing_since=verdict.past.failing_since,
            error_kind=kind,
            last_error=f"{error.words}: {error.said}" if error.said else error.words,
            stated_s=0.0,
            stated_by=0,
            # The server's own word, which binds also when polling by hand; our patience after failures is not that.
            earliest_at=_latest(result.retry_at, result.fresh_until, now) if verdict.action is not Action.RETIRE else None,
        )
        outcome = self._outcome(feed, result, now, why, state)
        retire = str(verdict.reason.params["text"]) if verdict.action is Action.RETIRE else ""
        outcome = replace(outcome, error_kind=kind, error=state.last_error, pause=self._pause(result), retire=retire)
        asked = error.kind is not Problem.PAUSED
        bounds = {"backoff_until": verdict.earliest, "failure": verdict.reason}
        look = _look(feed, state if asked else feed.state, now, ok=False, count=result.requests > 0, **bounds)
        return Seen(feed, outcome, look, asked=asked, notice=verdict.notice)

    def _answered(
        self, feed: Feed, result: FetchResult, document: Document | None, findings: Findings | None, now: float, why: Reason
    ) -> Seen:
        state = feed.state
        hints = document.hints if document is not None else state.hints
        move = seen_move(_move_of(state), result, now)
        adopt = move.target if move is not None and move.settled else ""
        state = replace(
            _after_any(state, result, now),
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
        if document is not None and findings is not None:
            state = _after_document(state, result, document)
            if not result.delta:  # what a delta leaves out is not gone
                state = Window.of(state).after(len(document.entries), findings.times).put(state)
            new, changed = _new(findings), _changed(findings, now)
        outcome = replace(
            self._outcome(feed, result, now, why, state),
            entries=len(document.entries) if document is not None else 0,
            new=new,
            changed=changed,
            document=tuple(e.identity for e in document.entries) if document is not None and not result.delta else None,
            gap=findings.gap if findings is not None else None,
            adopt_url=adopt,
        )
        look = _look(
            feed,
            state,
            now,
            times=findings.times if findings is not None else None,
            fresh=findings.fresh if findings is not None else 0,
            gap=outcome.gap is not None,
            ttl_s=hints.ttl_s or 0.0,
            period_s=hints.period_s or 0.0,
            fresh_s=max((result.fresh_until or now) - now, 0.0),
            bytes=result.wire_bytes,
            unchanged=not (new or changed),
            answered_304=result.status == 304,
        )
        notice = without_password(f"It has moved for good, from {feed.url} to {adopt}.") if adopt else ""
        links = document.links if document is not None else None
        return Seen(feed, outcome, look, links, notice=notice, document=document)

    def _outcome(self, feed: Feed, result: FetchResult, now: float, why: Reason, state: FeedState) -> PollOutcome:
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
        until = self._fetcher.gate.paused_until(host) if result.limited and host else None
        return Pause(host, until, result.error.words if result.error else "") if until is not None else None


def request_for(feed: Feed) -> FetchRequest:
    state = feed.state
    validators = Validators(
        state.etag or None, state.last_modified or None, state.validators_url, state.validators_since or 0.0
    )
    return FetchRequest(feed.url, validators, state.body_digest, feed.subscribers, usual_gap_s=state.usual_gap_s)


def entry_text(entry: Entry, dated: Dated) -> EntryText:
    """The entry as it is kept: safe HTML, plain words for the search index, dates as judged."""
    content = clean_html(entry.content, entry.base_url) if entry.content else ""
    summary = clean_html(entry.summary, entry.base_url) if entry.summary else ""
    return EntryText(
        identity=entry.identity,
        digest=entry.digest,
        published_at=dated.published_at,
        url=clean_address(entry.url),
        title=entry.title,
        author=entry.author,
        content=content,
        summary=summary,
        text=search_text(content or summary),
        published_told=told(entry),
        updated_at=entry.updated,
        comments_url=clean_address(entry.comments_url),
        tags=entry.tags,
        enclosures=tuple(file for file in entry.enclosures if clean_address(file.url)),
        delay_s=dated.delay_s,
    )


def _new(findings: Findings) -> tuple[EntryText, ...]:
    """Oldest first, so that ids have the order of publication; documents begin with the newest."""
    texts = [entry_text(entry, dated) for entry, dated in zip(findings.new, findings.dates, strict=True)]
    texts.reverse()
    texts.sort(key=lambda text: text.published_at)
    return tuple(texts)


def _changed(findings: Findings, now: float) -> tuple[EntryText, ...]:
    """The store keeps the time that was first judged."""
    return tuple(entry_text(entry, Dated(told(entry) or now, None, None)) for entry in findings.changed)


def _after_any(state: FeedState, result: FetchResult, now: float) -> FeedState:
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


def _after_document(state: FeedState, result: FetchResult, document: Document) -> FeedState:
    return replace(
        state,
        not_modified=_promised(state, result),
        title=document.title or state.title,
        site_url=clean_address(document.links.site) or state.site_url,
        format=document.format,
        hubs=result.hubs or document.links.hubs,
        self_url=result.self_url or document.links.self_url,
        hints=document.hints,
        forbidden=skip_hours(document.hints),
    )


def _look(feed: Feed, state: FeedState, now: float, **fields: object) -> Look:
    window = Window.of(state)
    return Look(
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


def _promised(state: FeedState, result: FetchResult) -> float:
    """What a document says about conditional requests: validators are a promise, their absence a refusal."""
    if result.validators.etag is None and result.validators.last_modified is None:
        return 0.0
    is_first = not state.window or (not state.not_modified and state.document_bytes <= 0)
    return PROMISED_SHARE if is_first else state.not_modified


def _move_of(state: FeedState) -> Move | None:
    return Move(state.moved_to, state.moved_sightings, state.moved_since or 0.0) if state.moved_to else None


def _latest(retry_at: float | None, fresh_until: float | None, now: float) -> float | None:
    return max((at for at in (retry_at, fresh_until) if at is not None and at > now), default=None)


@lru_cache(maxsize=4096)
def host_of(url: str) -> str:
    """What the fetcher's gate calls the host of an address; nothing where there is none."""
    try:
        return host_name(parse_url(url)) if url else ""
    except ValueError:
        return ""
