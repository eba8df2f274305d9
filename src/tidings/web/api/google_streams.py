"""Convert item ids and stream ids of the Google Reader API to entry ids and streams.

An item id is the entry id plus 10^15, so that it has 16 decimal digits: Readrops pads the
hexadecimal form to the length of the decimal one, so smaller numbers would never match. Ids stay
below 2^53, the limit of exact integers in JavaScript clients.
"""

import re
from collections.abc import Iterable
from typing import Any

from tidings.store.user_models import Stream, Subscription
from tidings.users import ReaderService
from tidings.web.api.common import MAX_SAFE_INTEGER, RequestParams, parse_int

ID_OFFSET = 10**15
ITEM_ID_PREFIX = "tag:google.com,2005:reader/item/"
STATE = "user/-/state/com.google/"
LABEL = "user/-/label/"

#: Tolerance of the parameter ``ot`` in seconds. Clients request items newer than the Date of the
#: last response, but entries that were being stored at that moment have an earlier time. BazQux
#: does the same.
SLACK_S = 180.0


def long_id(entry_id: int) -> str:
    """Return the long form of an item id, a tag URI with 16 hexadecimal digits."""
    return f"{ITEM_ID_PREFIX}{entry_id + ID_OFFSET:016x}"


def entry_id(text: str) -> int | None:
    """Return the entry id of an item id, or None if the item id is invalid.

    Clients send the long form, its hexadecimal part with or without leading zeros, or a decimal
    number.
    """
    _prefix, slash, last = text.strip().rpartition("/")
    if not slash and re.fullmatch(r"[1-9][0-9]{0,18}", last):
        number = int(last)
    elif re.fullmatch(r"[0-9a-fA-F]{1,16}", last):
        number = int(last, 16)
    else:
        return None
    return number - ID_OFFSET if ID_OFFSET < number <= MAX_SAFE_INTEGER else None


def entry_ids(texts: Iterable[str]) -> list[int]:
    """Return the entry ids of item ids, without invalid ids and duplicates."""
    return list(dict.fromkeys(i for text in texts if (i := entry_id(text)) is not None))


def canonical(stream_id: str) -> str:
    """Return the normalized form of a stream id.

    ``user/1234/`` becomes ``user/-/``. Repeated prefixes ``feed/`` and ``user/-/label/``, as sent
    by Read You, become one.
    """
    stream_id = re.sub(r"^user/[^/]*/", "user/-/", stream_id.strip().lstrip("/"))
    return re.sub(r"^(feed/|user/-/label/)\1+", r"\1", stream_id)


def label(stream_id: str) -> str | None:
    """Return the label name in a stream id, or None for other streams."""
    name = canonical(stream_id)
    return name.removeprefix(LABEL) if name.startswith(LABEL) else None


def state(stream_id: str) -> str | None:
    """Return the state name in a stream id, such as ``starred``, or None for other streams."""
    name = canonical(stream_id)
    return name.removeprefix(STATE) if name.startswith(STATE) else None


class StreamResolver:
    """Resolver of stream ids for one user.

    Folders, tags and subscriptions are loaded once.
    """

    def __init__(
        self,
        reader_service: ReaderService,
        subscriptions: list[Subscription],
        folders: dict[str, int],
        tags: set[str],
    ) -> None:
        self.reader_service, self.subscriptions = reader_service, subscriptions
        self.folders, self.tags = folders, tags
        self._by_url = {s.feed.url: s for s in subscriptions}
        self._by_id = {s.feed.id: s for s in subscriptions}

    @classmethod
    async def load(
        cls, reader_service: ReaderService, names: Iterable[str] | None = None
    ) -> "StreamResolver":
        """Load the user's folders, tags and subscriptions and return a resolver.

        With ``names``, only the subscriptions that these stream ids need are loaded.
        """
        folders = {folder.name: folder.id for folder in await reader_service.folders()}
        tags = {tag.name for tag in await reader_service.tags()}
        known: list[int] | None = None
        if names is not None:
            feeds = [
                name.removeprefix("feed/")
                for name in map(canonical, names)
                if name.startswith("feed/")
            ]
            numbers = [number for name in feeds if (number := parse_int(name)) is not None]
            if len(numbers) == len(feeds):  # other feeds are identified by their URL
                known = [number for number in numbers if number < 2**31]
        return cls(reader_service, await reader_service.subscriptions(known), folders, tags)

    def subscription(self, stream_id: str) -> Subscription | None:
        """Return the subscription of ``feed/12`` or ``feed/`` with the feed's URL, or None."""
        name = canonical(stream_id).removeprefix("feed/")
        number = parse_int(name)
        return self._by_url.get(name) if number is None else self._by_id.get(number)

    def stream(self, names: list[str], params: RequestParams) -> Stream | None:
        """Return the stream that request parameters describe, or None if no entry can match.

        An entry must be in any of ``names`` (parameter ``s``), in all of ``it`` and in none of
        ``xt``. ``ot`` and ``nt`` are the oldest and newest time, ``r`` is the order.
        """
        conditions: dict[str, Any] = {}
        groups: list[tuple[set[int], set[int]]] = []
        for alternatives in [names, *([name] for name in params.all("it"))]:
            sources = [
                source for name in alternatives if (source := self._source(name)) is not None
            ]
            if sources:
                groups.append(
                    (
                        set().union(*(feeds for feeds, _ in sources)),
                        set().union(*(folders for _, folders in sources)),
                    )
                )
            if not all(
                self._narrow(conditions, name, True)
                for name in alternatives
                if self._source(name) is None
            ):
                return None
        for name in params.all("xt"):
            source = self._source(name)
            if source is not None:
                for key, ids in zip(("not_feeds", "not_folders"), source, strict=True):
                    conditions[key] = (*conditions.get(key, ()), *ids)
            elif not self._narrow(conditions, name, False):
                return None
        feeds, folders = groups[0] if groups else (set(), set())
        if len(groups) > 1:
            feeds, folders = set.intersection(*(self._feeds(*group) for group in groups)), set()
        if groups and not feeds and not folders:
            return None
        since, until = params.number("ot"), params.number("nt")
        return Stream(
            **conditions,
            feeds=tuple(sorted(feeds)),
            folders=tuple(sorted(folders)),
            seen_from=since - SLACK_S if since else None,
            seen_until=until + 1.0 if until else None,
            oldest_first=params.get("r") == "o",
        )

    def _source(self, name: str) -> tuple[set[int], set[int]] | None:
        """Return the feed ids and folder ids of a stream id, or None if it is neither.

        A label is a folder if there is one of that name, otherwise a tag.
        """
        if canonical(name).startswith("feed/"):
            subscription = self.subscription(name)
            return ({subscription.feed.id} if subscription else set()), set()
        folder = self.folders.get(label(name) or "")
        return None if folder is None else (set(), {folder})

    def _feeds(self, feeds: set[int], folders: set[int]) -> set[int]:
        return feeds | {s.feed.id for s in self.subscriptions if s.folder_id in folders}

    def _narrow(self, conditions: dict[str, Any], name: str, included: bool) -> bool:
        """Add a condition on a state or tag and return whether an entry can match it."""
        tag, state_name = label(name), state(name)
        if tag is not None:
            if tag in self.tags:
                key = "tags" if included else "not_tags"
                conditions[key] = (*conditions.get(key, ()), tag)
            return tag in self.tags or not included
        if state_name == "reading-list":
            return included
        if state_name == "starred":
            return _set_or_match(conditions, "starred", included)
        if state_name in ("read", "unread"):
            return _set_or_match(conditions, "unread", included == (state_name == "unread"))
        return not included  # an unsupported state, or not a stream id


def _set_or_match(conditions: dict[str, Any], key: str, value: bool) -> bool:
    """Set a condition and return whether it agrees with the value that was set before."""
    return bool(conditions.setdefault(key, value) is value)
