"""Import and export of OPML, and import of plain text lists with one URL per line.

Invalid rows are reported with their line numbers and skipped. Folders are paths such as
``news/local``.
"""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from lxml import etree  # type: ignore[import-untyped]  # it has no types
from msgspec import Struct

from tidings.i18n import _
from tidings.parse.parser import ParseError
from tidings.parse.xml_tree import Element, parse_xml

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Outline(Struct, frozen=True):
    """One feed of a list, with its folder and the line where it was declared."""

    url: str
    title: str = ""
    site_url: str = ""
    folder: str = ""
    line: int = 0


class RowError(Struct, frozen=True):
    """Skipped row of an import, with its line number and the reason."""

    line: int
    text: str


def parse_opml(body: bytes) -> tuple[list[Outline], list[RowError]]:
    """Return the feeds of an OPML document without duplicates, and the skipped rows.

    Raises `ParseError` if the document is not OPML.
    """
    root, _repaired = parse_xml(body)
    if root is None or _name(root) != "opml":
        raise ParseError(
            _("this is not an OPML file; use an OPML file, or a text file with one URL per line")
        )
    return _deduplicate(_rows(root, ()))


def parse_url_list(body: bytes) -> tuple[list[Outline], list[RowError]]:
    """Return the feeds of a text list without duplicates, and the skipped rows.

    Each line has one URL, optionally followed by a title. A line that starts with ``#`` is a
    comment.
    """
    rows: list[Outline] = []
    for number, line in enumerate(body.decode("utf-8-sig", "replace").splitlines(), start=1):
        url, _space, title = line.strip().partition(" ")
        if url and not url.startswith("#"):
            rows.append(Outline(url, title.strip().strip('"'), line=number))
    return _deduplicate(rows)


def write_opml(outlines: Iterable[Outline], title: str) -> bytes:
    """Return an OPML 2.0 document with nested folders."""
    root = etree.Element("opml", version="2.0")
    etree.SubElement(etree.SubElement(root, "head"), "title").text = xml_safe(title)
    body = etree.SubElement(root, "body")
    folders = {"": body}
    for outline in outlines:
        parent = _folder(outline.folder, folders)
        name = xml_safe(outline.title or outline.url)
        element = etree.SubElement(
            parent, "outline", text=name, title=name, type="rss", xmlUrl=xml_safe(outline.url)
        )
        if outline.site_url:
            element.set("htmlUrl", xml_safe(outline.site_url))
    return bytes(etree.tostring(root, xml_declaration=True, encoding="UTF-8", pretty_print=True))


def _rows(parent: Element, path: tuple[str, ...]) -> Iterator[Outline | RowError]:
    """Yield all feeds and invalid rows in document order. libxml2 limits the recursion depth."""
    for element in parent:
        if _name(element) != "outline":
            yield from _rows(element, path)  # <body>, and other elements of a repaired document
            continue
        attributes = {key.lower(): value.strip() for key, value in element.items()}
        title = " ".join((attributes.get("text") or attributes.get("title") or "").split())
        url = attributes.get("xmlurl") or attributes.get("url") or ""
        if attributes.get("type", "").lower() in ("include", "link") and "xmlurl" not in attributes:
            yield RowError(
                element.sourceline or 0,
                _(
                    "“%(title)s” is a link or another list, not a feed; "
                    "import that list separately",
                    title=title or url,
                ),
            )
        elif url:
            folder = "/".join(path) or _category(attributes.get("category", ""))
            yield Outline(
                url, title, attributes.get("htmlurl", ""), folder, element.sourceline or 0
            )
        elif len(element) == 0:
            yield RowError(
                element.sourceline or 0,
                _("“%(title)s” has no feed address (xmlUrl)", title=title)
                if title
                else _("this line has no feed address (xmlUrl)"),
            )
        if len(element):
            # A feed may contain outlines too; only an outline without a URL is a folder.
            yield from _rows(
                element, path if url or not title else (*path, title.replace("/", "-"))
            )


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2].lower() if isinstance(element.tag, str) else ""


def _category(text: str) -> str:
    """Return the first category of an outline as a folder path.

    OPML 2.0 separates categories by commas and their levels by slashes.
    """
    return "/".join(level.strip() for level in text.partition(",")[0].split("/") if level.strip())


def _deduplicate(rows: Iterable[Outline | RowError]) -> tuple[list[Outline], list[RowError]]:
    outline_by_url: dict[str, Outline] = {}
    problems: list[RowError] = []
    for row in rows:
        if isinstance(row, RowError):
            problems.append(row)
            continue
        url = _normalize_url(row.url)
        if not url:
            message = _("%(url)s is not a web address (http or https)", url=row.url[:200])
            problems.append(RowError(row.line, message))
        elif url in outline_by_url:
            message = _(
                "%(url)s is a duplicate of line %(line)s", url=url, line=outline_by_url[url].line
            )
            problems.append(RowError(row.line, message))
        else:
            outline_by_url[url] = Outline(url, row.title, row.site_url, row.folder, row.line)
    return list(outline_by_url.values()), problems


def _normalize_url(url: str) -> str:
    """Return an HTTP URL with the old scheme ``feed:`` replaced, or an empty string.

    Other URLs than HTTP give an empty string.
    """
    if url.lower().startswith("feed:"):
        rest = url[5:].lstrip("/")
        url = rest if rest.lower().startswith(("http:", "https:")) else "http://" + rest
    try:
        parts = urlsplit(url)
        is_web = (
            parts.scheme.lower() in ("http", "https") and bool(parts.hostname) and " " not in url
        )
    except ValueError:
        return ""
    return url if is_web else ""


def _folder(path: str, folders: dict[str, Element]) -> Element:
    if path not in folders:
        parent, _slash, name = path.rpartition("/")
        folders[path] = etree.SubElement(_folder(parent, folders), "outline", text=xml_safe(name))
    return folders[path]


def xml_safe(text: str) -> str:
    """Remove control characters and other code points that are not allowed in XML."""
    return _NOT_XML.sub("", text)
