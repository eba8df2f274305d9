"""Access to the elements of an XML feed by normalized names such as `dc:creator`.

Names are independent of the prefix and namespace URI that a document uses. The namespace of the
root and those of the RSS versions have no prefix. An undeclared prefix is read as the customary
one. Names are in lower case, because some feeds use capitals.
"""

import base64
import html
from urllib.parse import urljoin

from tidings.parse.sanitize import plain_text
from tidings.parse.xml_tree import Element

XML_BASE = "{http://www.w3.org/XML/1998/namespace}base"
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"

#: Prefixes by namespace URI. The URIs are in lower case and without scheme, "www." and trailing
#: slash or hash, because publishers vary these parts.
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
#: Maximum length of a base URL in characters. It is limited because each URL of the document would
#: repeat the base.
_MAX_BASE_LENGTH = 2000
#: Maximum length in characters of a text that is probably an ordinary word although it is valid
#: base64.
_MAX_WORD_LENGTH = 40

#: Child elements by normalized name, in document order.
Children = dict[str, list[Element]]


class TagNames(dict[str, str]):
    """Cache of the normalized names of a document's tags."""

    def __init__(self, root: Element) -> None:
        super().__init__()
        self.root_namespace = _split(root.tag)[0]

    def __missing__(self, tag: str) -> str:
        namespace, local = _split(tag)
        if namespace == self.root_namespace or not namespace:
            # An undeclared prefix stays in the local name.
            prefix, _, name = local.rpartition(":")
            plain = local if prefix in _KNOWN and prefix else name
        else:
            key = namespace.strip().lower().rpartition("://")[2].removeprefix("www.").rstrip("/#")
            known = _PREFIXES.get(key)
            plain = local if known == "" else f"{known or '?'}:{local}"
        self[tag] = plain
        return plain

    def children(self, element: Element) -> Children:
        """Return the child elements of an element by normalized name."""
        children: Children = {}
        for child in element:
            tag = child.tag
            if isinstance(tag, str):
                children.setdefault(self[tag], []).append(child)
        return children


def _split(tag: str) -> tuple[str, str]:
    namespace, _, local = tag.rpartition("}")
    return namespace[1:], local.lower()


def first(children: Children, *names: str) -> Element | None:
    """Return the first element that has the first of the given names that occurs, or None."""
    for name in names:
        if name in children:
            return children[name][0]
    return None


def element_text(element: Element | None) -> str:
    """Return the text of an element without surrounding whitespace."""
    if element is None:
        return ""
    text: str = ((element.text or "") if len(element) == 0 else "".join(element.itertext())).strip()
    return _strip_cdata(text) if text[:2] == "<!" else text


def _strip_cdata(text: str) -> str:
    """Remove a CDATA marker that was escaped into the text (nested CDATA)."""
    if not text.startswith("<![CDATA["):
        return text
    return text.removeprefix("<![CDATA[").removesuffix("]]>").removesuffix("]]&gt;").strip()


def first_text(children: Children, *names: str) -> str:
    """Return the first text that is not empty among the elements with the given names.

    Returns an empty string if there is none.
    """
    for name in names:
        for element in children.get(name, ()):
            if text := element_text(element):
                return text
    return ""


def inner_html(element: Element) -> str:
    """Return the content of an element as HTML.

    Child elements are serialized, and escaped HTML is returned as it is.
    """
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
        for child in element:  # recursion depth is limited by libxml2
            _write(child, out)
        if name not in ("br", "hr", "img", "input", "wbr"):
            out.append(f"</{name}>")
    out.append(html.escape(element.tail or "", quote=False))


def atom_html(element: Element) -> str:
    """Return an Atom text construct or content as HTML (RFC 4287 sect. 3.1 and 4.1.3).

    Atom 0.3 has the attribute `mode` and media types.
    """
    kind = (element.get("type") or "").strip().lower()
    mode = element.get("mode")
    if mode == "base64" or (
        kind and "/" in kind and not kind.startswith("text/") and not kind.endswith(("xml", "html"))
    ):
        return _from_base64(element_text(element), kind)
    is_html = kind in ("html", "text/html") or (mode == "escaped" and kind in ("", "text/html"))
    if len(element):
        children = [child for child in element if isinstance(child.tag, str)]
        # The div of type="xhtml" is not part of the content. Some feeds also wrap escaped HTML.
        if len(children) == 1 and kind.endswith("html") and _split(children[0].tag)[1] == "div":
            return inner_html(children[0]) if is_html else _children_to_html(children[0])
        return _children_to_html(element)
    return element_text(element) if is_html else _children_to_html(element)


def _from_base64(text: str, kind: str) -> str:
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode().strip()
    except UnicodeDecodeError:  # binary data, or a word that is valid base64 by chance
        return (
            ""
            if kind.startswith(("image/", "audio/", "video/")) or len(text) > _MAX_WORD_LENGTH
            else text
        )
    except ValueError:  # the text is declared as base64, but is not
        return html.escape(text, quote=False)


def text_to_html(text: str) -> str:
    """Convert plain text to HTML with the same line breaks."""
    return html.escape(text, quote=False).replace("\n", "<br>\n")


def rss_text(element: Element | None) -> str:
    """Return an RSS title as plain text.

    RSS does not specify whether titles are HTML. Anything that looks like markup is treated as
    markup.
    """
    return "" if element is None else plain_text(inner_html(element))


def atom_text(element: Element | None) -> str:
    """Return an Atom text construct as plain text."""
    if element is None:
        return ""
    if len(element) == 0 and element.get("type", "text") == "text" and element.get("mode") is None:
        return " ".join((element.text or "").split())
    return plain_text(atom_html(element))


def resolve_xml_base(element: Element, document_url: str) -> str:
    """Return the base URL of an element (XML Base). Empty and too long bases are ignored."""
    bases = [
        element.get(XML_BASE),
        *(ancestor.get(XML_BASE) for ancestor in element.iterancestors()),
    ]
    url = document_url
    for base in reversed(bases):
        if base and base.strip() and len(base) + len(url) < _MAX_BASE_LENGTH:
            url = absolute_url(base.strip(), url) or url
    return url


def absolute_url(url: str, base: str) -> str:
    """Resolve a URL against a base URL.

    The URL is returned unchanged if the base is empty or one of the two is invalid.
    """
    url = "".join(url.split()) if "\n" in url or "\t" in url else url.strip()
    if not url or url.startswith(("http://", "https://")) or not base:
        return url
    try:
        return urljoin(base, url)
    except ValueError:
        return url
