"""A view is a stream with an address and a title: ``/unread``, ``/folder/3``, ``/tag/rust``, ``/search?q=river``.

The reader shows it as a list, output feeds serve it to other programs, and "mark all read" means all of it. A view's name is
its path without the slash; `find` makes the view of a name, and refuses what is not the user's.
"""

from urllib.parse import quote, urlencode

from msgspec import Struct
from msgspec.structs import replace

from tidings.i18n import _
from tidings.store.user_models import Settings, Stream
from tidings.users import NotFound, ReaderService

MAX_SEARCH_LENGTH = 500


class View(Struct, frozen=True):
    """What the list shows."""

    name: str  #: ``folder/3``
    title: str
    stream: Stream  #: all of it, read or not
    only_unread: bool = False  #: what is read has no place here: the list of the unread
    search: str = ""
    feed_id: int | None = None
    folder_id: int | None = None

    @property
    def path(self) -> str:
        """As a link."""
        return (
            f"/search?{urlencode({'q': self.search})}"
            if self.name == "search"
            else "/" + quote(self.name)
        )

    def shown(self, settings: Settings, show: str) -> Stream:
        """As the reader wants to see it: only what is unread where they say so, in the order they like."""
        stream = replace(self.stream, by=settings.order, oldest_first=settings.oldest_first)
        return replace(stream, unread=True) if self.only_unread or show == "unread" else stream


async def find(reader_service: ReaderService, name: str, search: str = "") -> View:
    """`NotFound` where there is none of this name."""
    kind, _slash, which = name.partition("/")
    number = int(which) if which.isascii() and which.isdecimal() and len(which) < 10 else -1
    if name == "unread":
        return View(name, _("Unread"), Stream(), only_unread=True)
    if name == "all":
        return View(name, _("All entries"), Stream())
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
    if kind == "tag" and which:
        return View(name, which, Stream(tags=(which,)))
    if kind == "saved":
        saved = next(
            (saved for saved in await reader_service.saved_searches() if saved.id == number), None
        )
        if saved is not None:
            return View(name, saved.name, saved.stream, search=saved.stream.search)
    raise NotFound(_("there is no such page, or it is not yours"))
