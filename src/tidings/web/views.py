"""Define views, which are entry streams with a path and a title, such as ``/folder/3``.

The reader shows a view as a list, output feeds publish it, and "Mark all as read" applies to all of
its entries. A view's name is its path without the leading slash.
"""

from urllib.parse import quote, urlencode

from msgspec import Struct
from msgspec.structs import replace

from tidings.i18n import _
from tidings.store.user_models import Settings, Stream
from tidings.users import NotFound, ReaderService

MAX_SEARCH_LENGTH = 500


class View(Struct, frozen=True):
    """Stream of entries with its path and title."""

    name: str  #: path without the leading slash, such as ``folder/3``
    title: str
    stream: Stream  #: stream with read and unread entries
    only_unread: bool = False  #: whether the view never shows read entries
    search: str = ""
    feed_id: int | None = None
    folder_id: int | None = None

    @property
    def path(self) -> str:
        """Path and query string of the view's page."""
        return (
            f"/search?{urlencode({'q': self.search})}"
            if self.name == "search"
            else "/" + quote(self.name)
        )

    def stream_for(self, settings: Settings, show: str) -> Stream:
        """Return the stream in the user's sort order, with only unread entries if required.

        ``show`` is the query parameter of the page; ``unread`` hides read entries.
        """
        stream = replace(self.stream, by=settings.order, oldest_first=settings.oldest_first)
        return replace(stream, unread=True) if self.only_unread or show == "unread" else stream


async def find(reader_service: ReaderService, name: str, search: str = "") -> View:
    """Return the user's view with this name; raise `NotFound` if there is none."""
    kind, _slash, key = name.partition("/")
    number = int(key) if key.isascii() and key.isdecimal() and len(key) < 10 else -1
    if name == "unread":
        return View(name, _("Unread"), Stream(), only_unread=True)
    if name == "all":
        return View(name, _("All posts"), Stream())
    if name == "starred":
        return View(name, _("Starred"), Stream(starred=True))
    if name == "search":
        search = " ".join(search.split())[:MAX_SEARCH_LENGTH]
        return View(name, _("Search"), Stream(search=search), search=search)
    if kind == "feed":
        subscription = await reader_service.subscription(number)
        return View(
            name,
            subscription.title,
            Stream(feeds=(number,)),
            feed_id=number,
            folder_id=subscription.folder_id,
        )
    if kind == "folder":
        folder = next(
            (folder for folder in await reader_service.folders() if folder.id == number), None
        )
        if folder is not None:
            return View(name, folder.name, Stream(folders=(number,)), folder_id=number)
    if kind == "tag" and key:
        return View(name, key, Stream(tags=(key,)))
    if kind == "saved":
        saved = next(
            (saved for saved in await reader_service.saved_searches() if saved.id == number), None
        )
        if saved is not None:
            return View(name, saved.name, saved.stream, search=saved.stream.search)
    raise NotFound(_("this page does not exist, or you have no access to it"))
