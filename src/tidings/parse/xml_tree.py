"""XML parser that detects the encoding, repairs malformed documents and expands no entities.

It makes three attempts: first with the document unchanged; then without constructs that XML forbids
but feeds contain (HTML entities, bare ampersands, control characters, text around the root);
finally with balanced tags, as in browsers. libxml2 loads no external entities (XXE) and keeps its
limits on depth and expansion.
"""

import codecs
import html
import re
from functools import lru_cache
from itertools import islice
from typing import Any, TypeAlias

from lxml import etree  # type: ignore[import-untyped]  # it has no types

Element: TypeAlias = Any  # lxml has no types

#: Maximum length in characters of a document that is repaired in Python, which takes at most three
#: seconds. Longer documents are left to the recovery mode of libxml2.
_MAX_REPAIR_CHARACTERS = 2_000_000
#: Maximum number of "<" and "&" in a document. Each may be an element (0.25 kB of memory) or a
#: recovered error (0.5 kB). A document with more is cut, and its first entries are the newest.
_MAX_MARKUP = 500_000
_MARKUP_CHARACTER = re.compile("[<&]")

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: First bytes of a document without byte order mark, by encoding (XML 1.0, appendix F).
_STARTS = (
    (b"<\0\0\0", "utf-32-le"),
    (b"\0\0\0<", "utf-32-be"),
    (b"<\0", "utf-16-le"),
    (b"\0<", "utf-16-be"),
    (b"\x4c\x6f\xa7\x94", "cp037"),
)
#: Encodings that browsers replace by a superset (WHATWG Encoding Standard).
_ENCODING_SUPERSETS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "shift_jis": "cp932",
}
_ENCODING_SUPERSETS |= {"iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874"}
_DECLARED = re.compile(rb"""^\s*<\?xml[^>]*?\bencoding\s*=\s*["']\s*([\w.:-]+)""")
_CHARSET = re.compile(r"""charset\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE)
#: Encodings that documents often declare although they are UTF-8.
_USED_FOR_UTF8 = (b"utf-8", b"iso-8859-1", b"latin1", b"us-ascii", b"windows-1252")
_DOCTYPE = re.compile(rb"<!DOCTYPE[^>\[]*>", re.IGNORECASE)

#: Patterns for the control characters 128 to 159. They are Windows-1252 characters that are
#: declared as Latin-1, and browsers read them as Windows-1252.
_CONTROL = re.compile(rb"\xc2([\x80-\x9f])")
_CONTROL_REFERENCE = re.compile(rb"&#(?:(1[2-5][0-9])|[xX]([89][0-9a-fA-F]));")

_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_ROOT = re.compile(r"<(?:[\w.-]+:)?(?:rss|feed|rdf|channel|opml)[\s>]", re.IGNORECASE)
_ROOT_END = re.compile(r"</(?:[\w.-]+:)?(?:rss|feed|rdf|opml)\s*>", re.IGNORECASE)
_CDATA_OR_ENTITY = re.compile(r"<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|&(#?\w*;?)", re.DOTALL)
_TOKEN = re.compile(
    r"<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|<[?!][^<>]*>"
    r"""|<(?P<close>/?)(?P<name>[a-z_][\w:.-]*)"""
    r"""(?P<rest>(?>(?:[^<>"']+|"[^"<]*"|'[^'<]*')*))(?P<end>>?)|<+(?![a-z_/!?<])|<""",
    re.IGNORECASE | re.DOTALL,
)
_ATTRIBUTE = re.compile(
    r"""(?<![\w:.-])([a-z_][\w:.-]*+)\s*+=\s*+("[^"]*"|'[^']*'|[^\s"'>]+)""", re.IGNORECASE
)
_XML_ENTITIES = frozenset(("amp;", "lt;", "gt;", "quot;", "apos;"))
#: Void elements of HTML, which are never closed. `link` is left out because it is an element of
#: RSS.
_VOID = frozenset(("br", "hr", "img", "input", "wbr"))
_ITEMS = frozenset(("item", "entry"))


def parse_xml(body: bytes, content_type: str = "") -> tuple[Element | None, bool]:
    """Parse XML and return the root element and whether the document was repaired.

    The root element is None if there is none.
    """
    # No check is needed here, because libxml2 validates UTF-8 itself.
    utf8, is_declared = _prepare(body, content_type, check=False)
    is_small = len(utf8) <= _MAX_MARKUP or utf8.count(b"<") <= _MAX_MARKUP
    if is_small and (root := _try_parse(utf8)) is not None:
        return root, not is_declared
    rejected = utf8
    utf8, is_declared = _prepare(body, content_type, check=True)
    if is_small and utf8 != rejected and (root := _try_parse(utf8)) is not None:
        return root, not is_declared
    text = utf8.decode("utf-8", "replace")
    start = _ROOT.search(text)
    if start is None:
        return None, True
    if len(text) <= _MAX_REPAIR_CHARACTERS:
        text = _repair_text(text, start.start())
        if (root := _try_parse(text.encode())) is not None:
            return root, True
        text = _balance_tags(text)
    elif too_many := next(islice(_MARKUP_CHARACTER.finditer(text), _MAX_MARKUP, None), None):
        text = text[: too_many.start()]
    return _try_parse(text.encode("utf-8", "replace"), recover=True), True


def _prepare(body: bytes, content_type: str, *, check: bool) -> tuple[bytes, bool]:
    """Convert a document to UTF-8 without doctype and with Windows-1252 characters repaired.

    Returns the same values as `to_utf8`.
    """
    utf8, is_declared = to_utf8(body, content_type, check=check)
    # External DTDs are not loaded, and libxml2 silently drops the entities that they declare.
    # Without a doctype such entities are errors, which are repaired.
    if doctype := _DOCTYPE.search(utf8, 0, 4096):
        utf8 = utf8[: doctype.start()] + utf8[doctype.end() :]
    # There are two patterns, because each starts with a literal, which is fast to search.
    utf8 = _CONTROL.sub(lambda control: _windows_character(control[1][0], control[0]), utf8)
    utf8 = _CONTROL_REFERENCE.sub(
        lambda r: _windows_character(int(r[1]) if r[1] else int(r[2], 16), r[0]), utf8
    )
    return utf8, is_declared


def _try_parse(utf8: bytes, *, recover: bool = False) -> Element | None:
    """Return the root element, or None if libxml2 rejects the document."""
    try:
        return etree.fromstring(utf8, _parser(recover=recover))
    except (etree.XMLSyntaxError, ValueError):
        return None


def to_utf8(body: bytes, content_type: str = "", *, check: bool = True) -> tuple[bytes, bool]:
    """Convert a document to UTF-8 and return it with whether its declared encoding was right.

    Precedence: byte order mark, HTTP charset, XML declaration (RFC 7303 sect. 3). But non-ASCII
    text that is valid UTF-8 is almost always UTF-8, so UTF-8 has precedence over a declared
    Latin-1, and over the HTTP charset if the document declares nothing else. A declared encoding in
    which the bytes are invalid is ignored. The fallback is Windows-1252. Without ``check``, a
    document declared as UTF-8 is not validated.
    """
    for mark, encoding in _BOMS:
        if body.startswith(mark):
            if encoding == "utf-8":
                body = body[len(mark) :]
            return _decode(body, [encoding], check=check)
    claims = [encoding for start, encoding in _STARTS if body.startswith(start)]
    declared = _DECLARED.match(body[:1000])
    http = _CHARSET.search(content_type)
    label = declared[1].lower() if declared else b"utf-8" if http else b""
    try_utf8 = label in _USED_FOR_UTF8 and not body.isascii()
    if try_utf8:
        claims.append("utf-8")
    if http:
        claims.append(http[1])
    # A declaration that is readable as ASCII is not in UTF-16 or UTF-32.
    if declared and not declared[1].lower().startswith(
        (b"utf-16", b"utf-32", b"ucs", b"iso-10646")
    ):
        claims.append(declared[1].decode("ascii"))
    return _decode(body, claims or ["utf-8"], trusted_claims=2 if try_utf8 else 1, check=check)


def _decode(
    body: bytes, claims: list[str], trusted_claims: int = 1, *, check: bool
) -> tuple[bytes, bool]:
    for claim in [*claims, "utf-8"]:
        try:
            name = codecs.lookup(claim).name
            text = (
                body.decode(_ENCODING_SUPERSETS.get(name, name)) if check or name != "utf-8" else ""
            )
        except (LookupError, UnicodeError):
            continue
        return (body if name == "utf-8" else text.encode("utf-8", "replace")), claim in claims[
            :trusted_claims
        ]
    # A few invalid bytes in UTF-8 are errors, but many of them mean another encoding.
    text = body.decode("utf-8", "replace")
    non_ascii = sum(character > "\x7f" for character in text)
    return (
        text if text.count("\ufffd") * 4 < non_ascii else body.decode("cp1252", "replace")
    ).encode(), False


def _windows_character(code: int, original: bytes) -> bytes:
    return bytes([code]).decode("cp1252", "ignore").encode() if 128 <= code < 160 else original


def _parser(*, recover: bool = False) -> etree.XMLParser:
    return etree.XMLParser(
        encoding="utf-8",
        resolve_entities="internal",
        no_network=True,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
        recover=recover,
    )


def _repair_text(text: str, start: int) -> str:
    """Return the text of the root element with forbidden characters and entities repaired.

    Line numbers stay the same.
    """
    lines_before = text.count("\n", 0, start)
    ends = [end.end() for end in _ROOT_END.finditer(text)]
    text = _FORBIDDEN.sub("", text[start : ends[-1] if ends else len(text)])
    return "\n" * lines_before + _CDATA_OR_ENTITY.sub(_repair_entity, text)


def _repair_entity(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else _entity(match[1])


@lru_cache(maxsize=1024)
def _entity(name: str) -> str:
    """Return the replacement for an entity that XML allows.

    XML entities stay, HTML entities become character references, forbidden characters are dropped,
    and a bare "&" is escaped.
    """
    if name in _XML_ENTITIES:
        return "&" + name
    character = html.unescape("&" + name)
    if character == "&" + name or not name.endswith(";"):
        return "&amp;" + name
    return "".join(f"&#{ord(c)};" for c in _FORBIDDEN.sub("", character.replace("\ufffd", "")))


def _balance_tags(text: str) -> str:
    """Close open elements in order and drop unmatched closing tags.

    A new item or entry closes the one before, as with list items in HTML.
    """
    out: list[str] = []
    open_names: list[str] = []
    counts: dict[str, int] = {}
    position = 0

    def close(name: str) -> None:
        while counts.get(name):
            closing = open_names.pop()
            counts[closing] -= 1
            out.append(f"</{closing}>")
            if closing == name:
                break

    for token in _TOKEN.finditer(text):
        out.append(text[position : token.start()])
        position = token.end()
        name, rest = token["name"], token["rest"]
        if name is None:
            out.append(
                token[0]
                if token[0].startswith("<![CDATA[") and token[0].endswith("]]>")
                else _escape(token[0])
            )
        elif token["close"]:
            close(name)
        elif not token["end"]:
            out.append(_escape(token[0]))
        else:
            if name.lower() in _ITEMS:
                close(name)
            empty = rest.rstrip().endswith("/") or name.lower() in _VOID
            attributes = dict(_attribute(pair) for pair in _ATTRIBUTE.finditer(rest))
            written = "".join(f" {key}={value}" for key, value in attributes.items())
            out.append(f"<{name}{written}{'/' if empty else ''}>")
            if not empty:
                open_names.append(name)
                counts[name] = counts.get(name, 0) + 1
    out.append(text[position:])
    out.extend(f"</{name}>" for name in reversed(open_names))
    return "".join(out)


def _attribute(pair: re.Match[str]) -> tuple[str, str]:
    value = pair[2] if pair[2][0] in "\"'" else f'"{pair[2]}"'
    return pair[1], value.replace("<", "&lt;")


def _escape(token: str) -> str:
    if token.startswith("<![CDATA["):  # the section is unclosed, so the rest is text
        return html.escape(token.removeprefix("<![CDATA["), quote=False)
    return "" if token.startswith(("<!", "<?")) else token.replace("<", "&lt;").replace(">", "&gt;")
