"""Lists of feeds: OPML as other readers write it, and plain text with an address on each line.

Reading never stops at a bad row: it is reported with its line, and the others count. Folders are paths such as ``news/local``.
"""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from lxml import etree  # type: ignore[import-untyped]  # it has no types
from msgspec import Struct

from .parser import ParseError
from .xml_tree import Element, parse_xml

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Outline(Struct, frozen=True):
    """One feed of a list."""

    url: str
    title: str = ""
    site_url: str = ""
    folder: str = ""
    line: int = 0


class RowError(Struct, frozen=True):
    """A row that was passed over, and why."""

    line: int
    text: str


def parse_opml(body: bytes) -> tuple[list[Outline], list[RowError]]:
    """The feeds of an OPML document in its order, each address once."""
    root, _ = parse_xml(body)
    if root is None or _name(root) != "opml":
        raise ParseError(
            "this is not an OPML file: its root is not <opml>; a plain list has one address on each line"
        )
    return _deduplicate(_rows(root, ()))


def parse_url_list(body: bytes) -> tuple[list[Outline], list[RowError]]:
    """The feeds of a plain list: an address on each line, perhaps a title after it; ``#`` begins a comment."""
    rows: list[Outline] = []
    for number, line in enumerate(body.decode("utf-8-sig", "replace").splitlines(), start=1):
        address, _, title = line.strip().partition(" ")
        if address and not address.startswith("#"):
            rows.append(Outline(address, title.strip().strip('"'), line=number))
    return _deduplicate(rows)


def write_opml(outlines: Iterable[Outline], title: str) -> bytes:
    """OPML 2.0 with nested folders, as every reader imports it."""
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
    """All rows in the order of the document; as deep as libxml2 lets a document be."""
    for element in parent:
        if _name(element) != "outline":
            yield from _rows(element, path)  # the body, and what a mended document has around it
            continue
        attributes = {key.lower(): value.strip() for key, value in element.items()}
        title = " ".join((attributes.get("text") or attributes.get("title") or "").split())
        address = attributes.get("xmlurl") or attributes.get("url") or ""
        if attributes.get("type", "").lower() in ("include", "link") and "xmlurl" not in attributes:
            yield RowError(
                element.sourceline or 0,
                f"“{title or address}” is a link or another list; add its feeds by themselves",
            )
        elif address:
            folder = "/".join(path) or _category(attributes.get("category", ""))
            yield Outline(
                address, title, attributes.get("htmlurl", ""), folder, element.sourceline or 0
            )
        elif len(element) == 0:
            yield RowError(
                element.sourceline or 0,
                f"“{title}” has no xmlUrl" if title else "this outline has no xmlUrl",
            )
        if len(element):
            # A feed may have outlines within it; only an outline without an address is a folder.
            yield from _rows(
                element, path if address or not title else (*path, title.replace("/", "-"))
            )


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2].lower() if isinstance(element.tag, str) else ""


def _category(text: str) -> str:
    """OPML 2.0: categories are parted by commas, their levels by slashes. A feed is in one folder: the first."""
    return "/".join(level.strip() for level in text.partition(",")[0].split("/") if level.strip())


def _deduplicate(rows: Iterable[Outline | RowError]) -> tuple[list[Outline], list[RowError]]:
    kept: dict[str, Outline] = {}
    problems: list[RowError] = []
    for row in rows:
        if isinstance(row, RowError):
            problems.append(row)
            continue
        address = _normalize_url(row.url)
        if not address:
            problems.append(
                RowError(row.line, f"{row.url[:200]} is not a web address (http or https)")
            )
        elif address in kept:
            problems.append(
                RowError(row.line, f"{address} is listed already on line {kept[address].line}")
            )
        else:
            kept[address] = Outline(address, row.title, row.site_url, row.folder, row.line)
    return list(kept.values()), problems


def _normalize_url(address: str) -> str:
    """The address if it can be fetched; ``feed:`` is an old way to write one."""
    if address.lower().startswith("feed:"):
        rest = address[5:].lstrip("/")
        address = rest if rest.lower().startswith(("http:", "https:")) else "http://" + rest
    try:
        parts = urlsplit(address)
        is_web = (
            parts.scheme.lower() in ("http", "https")
            and bool(parts.hostname)
            and " " not in address
        )
    except ValueError:
        return ""
    return address if is_web else ""


def _folder(path: str, folders: dict[str, Element]) -> Element:
    if path not in folders:
        parent, _, name = path.rpartition("/")
        folders[path] = etree.SubElement(_folder(parent, folders), "outline", text=xml_safe(name))
    return folders[path]


def xml_safe(text: str) -> str:
    """Without control characters and other code points that XML cannot hold."""
    return _NOT_XML.sub("", text)
