"""Bytes to an XML tree: strictly where the document allows it, mended where it does not.

What is tried, in order: the document as it is; the document without what XML forbids but publishers write (HTML entities, bare
ampersands, control characters, junk around the root); the same with its tags put in balance, as a browser would. libxml2 is
told to fetch nothing, to know no entity but the document's own, and to keep its limits on depth and growth.
"""

import codecs
import html
import re
from functools import lru_cache
from itertools import islice
from typing import Any, TypeAlias

from lxml import etree  # type: ignore[import-untyped]  # it has no types

Element: TypeAlias = Any  # lxml has no types

#: Mending is Python's work, three seconds for this much at worst; a longer document is left to libxml2's own recovery.
_MAX_REPAIR_CHARACTERS = 2_000_000
#: An element takes a quarter of a kilobyte however short it is written, and an error that is recovered from half of one. Each
#: of these may be either; a document with more of them is read up to here. What comes first is newest.
_MAX_MARKUP = 500_000
_MARKUP_CHARACTER = re.compile("[<&]")

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: How "<?" begins where there is no byte order mark (XML 1.0, appendix F).
_STARTS = (
    (b"<\0\0\0", "utf-32-le"),
    (b"\0\0\0<", "utf-32-be"),
    (b"<\0", "utf-16-le"),
    (b"\0<", "utf-16-be"),
    (b"\x4c\x6f\xa7\x94", "cp037"),
)
#: Labels that mean a larger encoding, as browsers read them (WHATWG Encoding).
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
_USED_FOR_UTF8 = (b"utf-8", b"iso-8859-1", b"latin1", b"us-ascii", b"windows-1252")
_DOCTYPE = re.compile(rb"<!DOCTYPE[^>\[]*>", re.IGNORECASE)

#: Control characters 128 to 159 are letters of Windows-1252 that somebody took for Latin-1; browsers read them so.
_CONTROL = re.compile(rb"\xc2([\x80-\x9f])")
_CONTROL_REFERENCE = re.compile(rb"&#(?:(1[2-5][0-9])|[xX]([89][0-9a-fA-F]));")

_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_ROOT = re.compile(r"<(?:[\w.-]+:)?(?:rss|feed|rdf|channel|opml)[\s>]", re.IGNORECASE)
_ROOT_END = re.compile(r"</(?:[\w.-]+:)?(?:rss|feed|rdf|opml)\s*>", re.IGNORECASE)
_CDATA_OR_ENTITY = re.compile(r"<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|&(#?\w*;?)", re.DOTALL)
_TOKEN = re.compile(
    r"<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|<[?!][^<>]*>"
    r"""|<(?P<close>/?)(?P<name>[a-z_][\w:.-]*)(?P<rest>(?>(?:[^<>"']+|"[^"<]*"|'[^'<]*')*))(?P<end>>?)|<+(?![a-z_/!?<])|<""",
    re.IGNORECASE | re.DOTALL,
)
_ATTRIBUTE = re.compile(
    r"""(?<![\w:.-])([a-z_][\w:.-]*+)\s*+=\s*+("[^"]*"|'[^']*'|[^\s"'>]+)""", re.IGNORECASE
)
_XML_ENTITIES = frozenset(("amp;", "lt;", "gt;", "quot;", "apos;"))
#: HTML elements that are never closed: bare in a title they must not swallow the rest. Not `link`: RSS has its own.
_VOID = frozenset(("br", "hr", "img", "input", "wbr"))
_ITEMS = frozenset(("item", "entry"))


def parse_xml(body: bytes, content_type: str = "") -> tuple[Element | None, bool]:
    """The root element, and whether the document had to be mended; None where there is no XML in it at all."""
    utf8, sound = _prepare(
        body, content_type, check=False
    )  # libxml2 looks itself whether what is called UTF-8 is
    few = len(utf8) <= _MAX_MARKUP or utf8.count(b"<") <= _MAX_MARKUP
    if few and (root := _try_parse(utf8)) is not None:
        return root, not sound
    refused = utf8
    utf8, sound = _prepare(body, content_type, check=True)
    if few and utf8 != refused and (root := _try_parse(utf8)) is not None:
        return root, not sound
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
    """As `to_utf8`, without what would be misread."""
    utf8, sound = to_utf8(body, content_type, check=check)
    # An external DTD is never read, and entities that it might declare would be dropped without a word: make them errors.
    if doctype := _DOCTYPE.search(utf8, 0, 4096):
        utf8 = utf8[: doctype.start()] + utf8[doctype.end() :]
    # Two patterns, each beginning with what is quick to find.
    utf8 = _CONTROL.sub(lambda control: _windows_character(control[1][0], control[0]), utf8)
    utf8 = _CONTROL_REFERENCE.sub(
        lambda r: _windows_character(int(r[1]) if r[1] else int(r[2], 16), r[0]), utf8
    )
    return utf8, sound


def _try_parse(utf8: bytes, *, recover: bool = False) -> Element | None:
    """The root element, or None where libxml2 refuses."""
    try:
        return etree.fromstring(utf8, _parser(recover=recover))
    except (etree.XMLSyntaxError, ValueError):
        return None


def to_utf8(body: bytes, content_type: str = "", *, check: bool = True) -> tuple[bytes, bool]:
    """The document in UTF-8 without byte order mark, and whether it was in the encoding that it claims; without ``check``,
    what may be UTF-8 is taken for it.

    The byte order mark wins over HTTP's charset, that over the declaration (RFC 7303 sect. 3); but beyond ASCII hardly anything
    can be read as UTF-8 that is not, so that UTF-8 wins over either where it is called Latin-1, and over HTTP's where the
    document says nothing else. A claim that the bytes belie is dropped. What claims nothing and is not UTF-8 is Windows-1252,
    like most of the old web.
    """
    for mark, encoding in _BOMS:
        if body.startswith(mark):
            if encoding == "utf-8":
                body = body[len(mark) :]
            return _decode(body, [encoding], check=check)
    claims = [encoding for start, encoding in _STARTS if body.startswith(start)]
    declared = _DECLARED.match(body[:1000])
    http = _CHARSET.search(content_type)
    says = declared[1].lower() if declared else b"utf-8" if http else b""
    guessed = says in _USED_FOR_UTF8 and not body.isascii()
    if guessed:
        claims.append("utf-8")
    if http:
        claims.append(http[1])
    # A declaration that can be read as ASCII is not in UTF-16, whatever it says.
    if declared and not declared[1].lower().startswith(
        (b"utf-16", b"utf-32", b"ucs", b"iso-10646")
    ):
        claims.append(declared[1].decode("ascii"))
    return _decode(body, claims or ["utf-8"], trusted_claims=2 if guessed else 1, check=check)


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
    # One bad byte in a page of good UTF-8 is a slip; many of them are another encoding.
    text = body.decode("utf-8", "replace")
    wide = sum(character > "\x7f" for character in text)
    return (
        text if text.count("\ufffd") * 4 < wide else body.decode("cp1252", "replace")
    ).encode(), False


def _windows_character(code: int, written: bytes) -> bytes:
    return bytes([code]).decode("cp1252", "ignore").encode() if 128 <= code < 160 else written


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
    """The root element alone, on its own lines, without characters and entities that XML does not know."""
    lines_before = text.count("\n", 0, start)
    ends = [end.end() for end in _ROOT_END.finditer(text)]
    text = _FORBIDDEN.sub("", text[start : ends[-1] if ends else len(text)])
    return "\n" * lines_before + _CDATA_OR_ENTITY.sub(_repair_entity, text)


def _repair_entity(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else _entity(match[1])


@lru_cache(maxsize=1024)
def _entity(name: str) -> str:
    """XML's own entities stay, HTML's become characters, forbidden characters vanish, a bare ampersand is escaped."""
    if name in _XML_ENTITIES:
        return "&" + name
    character = html.unescape("&" + name)
    if character == "&" + name or not name.endswith(";"):
        return "&amp;" + name
    return "".join(f"&#{ord(c)};" for c in _FORBIDDEN.sub("", character.replace("\ufffd", "")))


def _balance_tags(text: str) -> str:
    """Every tag closed in order: a closing tag closes what is open within its element; one that closes nothing is dropped.

    The next item closes the one before, as in lists of HTML.
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
            out.append(
                f"<{name}{''.join(f' {key}={value}' for key, value in attributes.items())}{'/' if empty else ''}>"
            )
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
    if token.startswith("<![CDATA["):  # not closed: its text counts, to the end
        return html.escape(token.removeprefix("<![CDATA["), quote=False)
    return "" if token.startswith(("<!", "<?")) else token.replace("<", "&lt;").replace(">", "&gt;")
