"""Elements by plain names: `dc:creator`, `content:encoded`, `title`, whatever prefix or namespace URI a document uses for them.

The namespace of the root, and those of the RSS versions, have no prefix. A prefix that is used without being declared counts
as the one that everybody uses. All names are in lower case: there are feeds that shout.
"""

import base64
import html
from urllib.parse import urljoin

from .sanitize import plain_text
from .xml_tree import Element

XML_BASE = "{http://www.w3.org/XML/1998/namespace}base"
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"

#: By the URI in lower case, without its scheme, "www." and a last slash or hash: publishers vary all of these.
_PREFIXES = {
    "my.netscape.com/rdf/simple/0.9": "",
    "channel.netscape.com/rdf/simple/0.9": "",
    "purl.org/rss/1.0": "",
    "purl.org/net/rss1.1": "",
    "backend.userland.com/rss": "",
    "backend.userland.com/rss2": "",
    "backend.userland.com/rss091": "",
    "blogs.law.harvard.edu/tech/rss": "",
    "cyber.law.harvard.edu/rss/rss.html": "",
    "w3.org/2005/atom": "atom",
    "purl.org/atom/ns": "atom",
    "purl.org/dc/elements/1.1": "dc",
    "purl.org/dc/elements/1.0": "dc",
    "purl.org/dc/terms": "dcterms",
    "urn:tidings:exchange": "exchange",
    "purl.org/rss/1.0/modules/content": "content",
    "purl.org/rss/1.0/modules/slash": "slash",
    "purl.org/rss/1.0/modules/syndication": "sy",
    "purl.org/syndication/history/1.0": "fh",
    "search.yahoo.com/mrss": "media",
    "search.yahoo.com/mrss/1.0": "media",
    "tools.search.yahoo.com/mrss": "media",
    "itunes.com/dtds/podcast-1.0.dtd": "itunes",
    "itunes.com/dtds/podcast-1.0": "itunes",
    "wellformedweb.org/commentapi": "wfw",
    "rssnamespace.org/feedburner/ext/1.0": "feedburner",
    "w3.org/1999/xhtml": "xhtml",
    "w3.org/1999/02/22-rdf-syntax-ns": "rdf",
}
_KNOWN = frozenset(_PREFIXES.values())
_MAX_BASE_LENGTH = 2000
_MAX_WORD_LENGTH = 40

#: What stands in an element: its children under their names, in the order of the document.
Children = dict[str, list[Element]]


class TagNames(dict[str, str]):
    """Plain names of a document's tags, each worked out once."""

    def __init__(self, root: Element) -> None:
        super().__init__()
        self.root_namespace = _split(root.tag)[0]

    def __missing__(self, tag: str) -> str:
        namespace, local = _split(tag)
        if namespace == self.root_namespace or not namespace:
            prefix, _, name = local.rpartition(
                ":"
            )  # a prefix that was not declared stays in the name
            plain = local if prefix in _KNOWN and prefix else name
        else:
            key = namespace.strip().lower().rpartition("://")[2].removeprefix("www.").rstrip("/#")
            known = _PREFIXES.get(key)
            plain = local if known == "" else f"{known or '?'}:{local}"
        self[tag] = plain
        return plain

    def children(self, element: Element) -> Children:
        """The children of an element; text in other places than those is not looked at."""
        found: Children = {}
        for child in element:
            tag = child.tag
            if isinstance(tag, str):
                found.setdefault(self[tag], []).append(child)
        return found


def _split(tag: str) -> tuple[str, str]:
    namespace, _, local = tag.rpartition("}")
    return namespace[1:], local.lower()


def first(children: Children, *names: str) -> Element | None:
    """The first element under the first of these names that there is."""
    for name in names:
        if name in children:
            return children[name][0]
    return None


def element_text(element: Element | None) -> str:
    """The text of an element as it stands, without the spaces around it."""
    if element is None:
        return ""
    text: str = ((element.text or "") if len(element) == 0 else "".join(element.itertext())).strip()
    return _strip_cdata(text) if text[:2] == "<!" else text


def _strip_cdata(text: str) -> str:
    """Without the second CDATA section that somebody may have put within the first."""
    if not text.startswith("<![CDATA["):
        return text
    return text.removeprefix("<![CDATA[").removesuffix("]]>").removesuffix("]]&gt;").strip()


def first_text(children: Children, *names: str) -> str:
    """The text of the first element under these names that says anything."""
    for name in names:
        for element in children.get(name, ()):
            if text := element_text(element):
                return text
    return ""


def inner_html(element: Element) -> str:
    """What is inside an element, as HTML: naked markup is written out, escaped markup is as it was published."""
    if len(element):
        return _children_to_html(element)
    text: str = (element.text or "").strip()
    return _strip_cdata(text) if text[:2] == "<!" else text


def _children_to_html(element: Element) -> str:
    out: list[str] = [html.escape(element.text or "", quote=False)]
    for child in element:
        _write(child, out)
    return "".join(out).strip()


def _write(element: Element, out: list[str]) -> None:
    tag = element.tag
    if isinstance(tag, str):
        name = _split(tag)[1]
        attributes = "".join(
            f' {_split(key)[1]}="{html.escape(value)}"' for key, value in element.items()
        )
        out.append(f"<{name}{attributes}>")
        out.append(html.escape(element.text or "", quote=False))
        for child in element:  # as deep as libxml2 lets a document be
            _write(child, out)
        if name not in ("br", "hr", "img", "input", "wbr"):
            out.append(f"</{name}>")
    out.append(html.escape(element.tail or "", quote=False))


def atom_html(element: Element) -> str:
    """An Atom text construct or content as HTML (RFC 4287 sect. 3.1, 4.1.3; Atom 0.3 has `mode` and MIME types)."""
    kind = (element.get("type") or "").strip().lower()
    mode = element.get("mode")
    if mode == "base64" or (
        kind and "/" in kind and not kind.startswith("text/") and not kind.endswith(("xml", "html"))
    ):
        return _from_base64(element_text(element), kind)
    is_html = kind in ("html", "text/html") or (mode == "escaped" and kind in ("", "text/html"))
    if len(element):
        whole = [child for child in element if isinstance(child.tag, str)]
        # The div of type="xhtml" is not part of the content; some put one around escaped HTML too.
        if len(whole) == 1 and kind.endswith("html") and _split(whole[0].tag)[1] == "div":
            return inner_html(whole[0]) if is_html else _children_to_html(whole[0])
        return _children_to_html(element)
    return element_text(element) if is_html else _children_to_html(element)


def _from_base64(text: str, kind: str) -> str:
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode().strip()
    except (
        UnicodeDecodeError
    ):  # a picture or the like: nothing to read; or a word that could be base64 by chance
        return (
            ""
            if kind.startswith(("image/", "audio/", "video/")) or len(text) > _MAX_WORD_LENGTH
            else text
        )
    except ValueError:  # not in base64, whatever it says
        return html.escape(text, quote=False)


def text_to_html(text: str) -> str:
    """Plain text as HTML that breaks where it does."""
    return html.escape(text, quote=False).replace("\n", "<br>\n")


def rss_text(element: Element | None) -> str:
    """A title of RSS as plain text. RSS never said whether it is HTML, so markup in it is taken for what it looks like."""
    return "" if element is None else plain_text(inner_html(element))


def atom_text(element: Element | None) -> str:
    """A text construct of Atom as plain text."""
    if element is None:
        return ""
    if len(element) == 0 and element.get("type", "text") == "text" and element.get("mode") is None:
        return " ".join((element.text or "").split())
    return plain_text(atom_html(element))


def resolve_xml_base(element: Element, document_url: str) -> str:
    """What addresses in an element are relative to (XML Base); empty bases and those of other schemes are passed over.

    So are long ones, which every address in the document would repeat.
    """
    bases = [
        element.get(XML_BASE),
        *(ancestor.get(XML_BASE) for ancestor in element.iterancestors()),
    ]
    url = document_url
    for base in reversed(bases):
        if base and base.strip() and len(base) + len(url) < _MAX_BASE_LENGTH:
            url = absolute_url(base.strip(), url) or url
    return url


def absolute_url(address: str, base: str) -> str:
    """The address as an absolute one, where a base is known; other schemes than the web's stay as they are."""
    address = "".join(address.split()) if "\n" in address or "\t" in address else address.strip()
    if not address or address.startswith(("http://", "https://")) or not base:
        return address
    try:
        return urljoin(base, address)
    except ValueError:
        return address
