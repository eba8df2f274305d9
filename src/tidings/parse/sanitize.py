"""HTML sanitizer with an allowlist (XSS protection), and conversion of HTML to plain text.

Elements and attributes that are not listed here are removed. Scripts, styles, forms and frames are
dropped; URLs are absolute and use http, https or mailto; links send no Referer. `srcset` is not
allowed: nh3 does not check the schemes in it, so it would let `javascript:` through.
"""

import html as entities
import re
from functools import lru_cache

import nh3


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BLOCKS = _names(
    "address article aside blockquote br center dd details div dl dt figcaption figure footer"
    " h1 h2 h3 h4 h5 h6 header hr li main ol p pre section summary table tbody td tfoot th thead"
    " tr ul video audio"
)
_INLINE = _names(
    "a abbr acronym b bdi bdo big caption cite code col colgroup data del dfn em font i img ins kbd"
    " mark picture q rp rt ruby s samp small source span strike strong sub sup time tt u var wbr"
)
#: Elements that are removed with their content. If another element is not allowed, only its tags
#: are removed. `object` is not listed here, because its content is the fallback that its author
#: provides.
_REMOVED_WITH_CONTENT = {
    "script",
    "style",
    "iframe",
    "embed",
    "noscript",
    "template",
    "svg",
    "math",
    "select",
    "textarea",
    "title",
}
#: Pattern for tags with which HTML parsers would drop the rest of a post. These are elements closed
#: as in XML, which HTML parsers treat as open, and iframes, whose content HTML hides although it is
#: the fallback for browsers without frames (HTML 4.01 sect. 16.5). Such elements are renamed to
#: unknown elements, of which only the tags are removed.
_MISPARSED_TAG = re.compile(
    r"<(?=/?if|[stn])"
    r"(?:(?=(?:script|style|title|textarea|noscript|template|select)\b[^<>]*/>)|/?(?=iframe\b))",
    re.IGNORECASE,
)
#: Patterns for media that need a script. Lazy-loaded images have the URL in a data attribute and a
#: placeholder in `src`. Embedded video players are replaced by a link to the page of the video.
_IMG_OR_IFRAME = re.compile(r"<(?:img|iframe)\b[^<>]*+>", re.IGNORECASE)
_LAZY_SRC = re.compile(r"\sdata-(?:lazy-|orig-)?(?:src|original)\s*=", re.IGNORECASE)
_PLACEHOLDER_SRC = re.compile(r"""\ssrc\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>]*)""", re.IGNORECASE)
_VIDEO_EMBED = re.compile(
    r"""\ssrc\s*=\s*["']?(?:https?:)?//"""
    r"(?:(?:www\.)?youtube(?:-nocookie)?\.com/embed/(?P<youtube>[\w-]{11})"
    r"|player\.vimeo\.com/video/(?P<vimeo>\d{1,15}))",
    re.IGNORECASE | re.ASCII,
)
#: Patterns for MathML, which is not allowed because it has been used to bypass sanitizers. Without
#: its tags a formula would be wrong (½ would become 12), so a formula is replaced by its TeX or
#: text alternative.
_MATH = re.compile(r"<(/?)math\b[^<>]*>", re.IGNORECASE)
_ALTTEXT = re.compile(r"""\salttext\s*=\s*(?:"([^"<>]*)"|'([^'<>]*)')""", re.IGNORECASE)
_TEX = re.compile(
    r"""<annotation\b[^<>]*\bencoding\s*=\s*["']application/x-tex["'][^<>]*>([^<>]*)<""",
    re.IGNORECASE,
)
_ATTRIBUTES = {
    "*": {"dir", "lang", "title"},
    "a": {"href", "hreflang"},
    "audio": {"src"},
    "col": {"span"},
    "colgroup": {"span"},
    "data": {"value"},
    "img": {"src", "alt", "width", "height"},
    "li": {"value"},
    "ol": {"start", "reversed"},
    "source": {"src", "type"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan", "scope"},
    "time": {"datetime"},
    "video": {"src", "poster", "width", "height"},
}
#: Attributes that are added to elements, so that images load when scrolled into view. There is at
#: most one per element, because nh3 orders several differently in each process, and the output must
#: be deterministic.
_SET_ATTRIBUTES = {
    "img": {"loading": "lazy"},
    "audio": {"controls": "controls"},
    "video": {"controls": "controls"},
}
_SCHEMES = {"http", "https", "mailto"}

# The next patterns apply only to the output of nh3, in which each attribute is name="value" and a
# value contains no quotes.
_PIXEL_SIZE = re.compile(r' (?:width|height)="[01](?:px)?"')
_IMAGE = re.compile(r'<img(?: [a-z-]+="[^"]*")*>')
_CLEAN_TAG = re.compile(r"</?([a-z0-9]*)[^>]*>")
# Plain text needs no HTML parser, since it is escaped wherever it is displayed. The patterns do not
# match across a second tag and do not backtrack, so the time is linear. Blocks separate words.
_HIDDEN_ELEMENT = r"<(script|style|title|template|svg)\b(?:[^<>]*/>|.*?(?:</\1\s*>|\Z))"
_HIDDEN = re.compile(rf"<!--.*?(?:-->|\Z)|{_HIDDEN_ELEMENT}", re.DOTALL | re.IGNORECASE)
_HIDDEN_WITHOUT_COMMENTS = re.compile(_HIDDEN_ELEMENT, re.DOTALL | re.IGNORECASE)
_ANY_TAG = re.compile(r"</?(?=[a-z!?])([a-z0-9]*)[^<>]*>", re.IGNORECASE)

#: Pattern for a URL attribute that may be relative. It starts with "=", which is fast to search.
_RELATIVE = re.compile(
    r"""=(?i:(?<=href=)|(?<=src=)|(?<=poster=)|(?<=\s=))\s*+["']?+\s*+(?i:(?!https?://|mailto:|["'>]))"""
)
#: Pattern for a URL attribute that is relative to the page, not to the root of the site.
_RELATIVE_TO_PAGE = re.compile(_RELATIVE.pattern.replace("mailto:|", "mailto:|/|"))
_SITE = re.compile(r"https?://[^/?#\\]+")
_TAG = re.compile(r"<(/?)([a-z][a-z0-9]*)", re.IGNORECASE)
#: Pattern for one attribute as in the HTML standard, and for a tag whose group "more" matches if
#: the tag has more than 100 attributes.
_ATTRIBUTE = (
    r"""(?:[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?+)?+)"""
)
_ATTRIBUTES_OF_TAG = re.compile(
    rf"<[a-z][^\s/>]*+{_ATTRIBUTE}{{0,100}}+(?P<more>{_ATTRIBUTE})?+", re.IGNORECASE
)
#: Maximum length in characters of a text for which the number of attributes does not matter.
_SHORT = 20_000
#: Elements that never stay open, because they are void or the next element of their kind closes
#: them.
_NEVER_OPEN = _names(
    "area br col dd dt hr img input li link meta option p source tbody td tfoot th thead tr wbr"
)


#: Pattern for allowed schemes of links. Others execute code (`javascript:`, `data:`) or read local
#: files.
_LINK_SCHEMES = re.compile(r"(?:https?|ftp|mailto|magnet|gemini|gopher):", re.IGNORECASE)


def sanitize_url(url: str) -> str:
    """Return the URL of a link if its scheme is allowed, otherwise an empty string."""
    return url if _LINK_SCHEMES.match(url) else ""


@lru_cache(maxsize=64)
def _cleaner(base_url: str) -> nh3.Cleaner:
    """Return a cached sanitizer. Creating one takes as long as sanitizing a short post."""
    return nh3.Cleaner(
        tags=_BLOCKS | _INLINE,
        clean_content_tags=_REMOVED_WITH_CONTENT,
        attributes=_ATTRIBUTES,
        set_tag_attribute_values=_SET_ATTRIBUTES,
        url_schemes=_SCHEMES,
        url_relative=("rewrite_with_base", base_url) if base_url else "deny",
        link_rel="noopener noreferrer",
    )


def sanitize_html(html: str, base_url: str) -> str:
    """Return an HTML fragment that is safe to display.

    `base_url` resolves relative URLs. Sanitizing the result again does not change it.
    """
    if "<" not in html and "&" not in html:
        return entities.escape(html.strip(), quote=False)
    if "data-" in html or "<iframe" in html:
        html = _IMG_OR_IFRAME.sub(_replace_lazy_media, html)
    if "<math" in html:
        html = _replace_mathml(html)
    html = _MISPARSED_TAG.sub(lambda start: start[0] + "x-", html)
    html = html.replace("<br></br>", "<br>")  # HTML parsers read both tags as line breaks
    if _expands_too_much(html):
        return entities.escape(plain_text(html), quote=False)
    try:
        clean = _cleaner(_required_base(base_url, html)).clean(html)
    except ValueError:  # the base is not a valid URL
        clean = _cleaner("").clean(html)
    if "width=" in clean and _PIXEL_SIZE.search(clean):
        clean = _IMAGE.sub(_remove_tracking_pixel, clean)
    return clean.strip()


def _replace_lazy_media(tag: re.Match[str]) -> str:
    text = tag[0]
    if text[1:4].lower() == "img":
        return (
            _LAZY_SRC.sub(" src=", _PLACEHOLDER_SRC.sub("", text), count=1)
            if _LAZY_SRC.search(text)
            else text
        )
    if (video := _VIDEO_EMBED.search(text)) is None:
        return text
    page = (
        f"https://www.youtube.com/watch?v={video['youtube']}"
        if video["youtube"]
        else f"https://vimeo.com/{video['vimeo']}"
    )
    return f' <a href="{page}">{page}</a> {text}'


def _replace_mathml(html: str) -> str:
    """Replace formulas by their alternative text. Formulas without one are removed later."""
    parts: list[str] = []
    end, opening = 0, None
    for tag in _MATH.finditer(html):
        if not tag[1]:
            opening = opening or tag
        elif opening is not None:
            alternative = _ALTTEXT.search(opening[0]) or _TEX.search(
                html, opening.end(), tag.start()
            )
            if text := "".join(filter(None, alternative.groups())).strip() if alternative else "":
                parts += (html[end : opening.start()], f"<code>{text}</code>")
                end = tag.end()
            opening = None
    return "".join([*parts, html[end:]])


def _required_base(base_url: str, html: str) -> str:
    """Return the part of the base URL that is needed to resolve the URLs of a fragment.

    It is empty, the site or the whole base. Few distinct bases make the cache of sanitizers
    effective.
    """
    site = _SITE.match(base_url)
    if site is None or not _RELATIVE.search(html):
        return ""
    base = base_url if _RELATIVE_TO_PAGE.search(html) else site[0]
    # The length of the base is limited, because each URL of the fragment repeats the base.
    return base if len(base) * html.count("=") < 1_000_000 + 10 * len(html) else ""


def search_text(clean: str) -> str:
    """Return the text of HTML that `sanitize_html` has returned, for the search index.

    In such HTML each ``<`` starts a tag and each ``>`` ends one.
    """
    if "<" in clean:
        pieces = _CLEAN_TAG.split(clean)
        pieces[1::2] = ["" if name in _INLINE else " " for name in pieces[1::2]]
        clean = "".join(pieces)
    return entities.unescape(clean) if "&" in clean else clean


def plain_text(html: str) -> str:
    """Convert an HTML fragment to plain text on one line, for titles and summaries."""
    if "<" in html:
        html = _without_tags(_HIDDEN.sub(_hidden, html))
    if "<" in html:  # a tag had "<" in an attribute
        html = _without_tags(html)
    if "&" in html:
        html = entities.unescape(html)
    return " ".join(html.split())


def _hidden(match: re.Match[str]) -> str:
    """Return the replacement for a hidden element or comment.

    An unclosed comment ends at the first ``>``; otherwise it would remove the rest of a title.
    """
    text = match[0]
    if text.startswith("<!--") and not text.endswith("-->"):
        return _HIDDEN_WITHOUT_COMMENTS.sub(" ", text.partition(">")[2])
    return " "


def _without_tags(html: str) -> str:
    pieces = _ANY_TAG.split(html)
    pieces[1::2] = [" " if name.lower() in _BLOCKS else "" for name in pieces[1::2]]
    return "".join(pieces)


def _expands_too_much(html: str) -> bool:
    """Return whether an HTML parser would expand this text excessively (denial of service).

    An open formatting element (``<font>``, ``<a>``) is reopened in each later paragraph with all
    its attributes: 40 kB of ``<font color=1><p>x<font color=2><p>x`` become 80 MB. The time for
    nesting is quadratic, and so is that for the attributes of a tag. The cost of a tag is therefore
    the size of all elements that are open there; an element is measured up to the next tag, because
    a quoted ``>`` cannot be distinguished here. Real posts cost a few times their length.
    """
    if len(html) > _SHORT and any(tag["more"] for tag in _ATTRIBUTES_OF_TAG.finditer(html)):
        return True
    allowed = 200_000 + 50 * len(html)
    if html.count("<") * len(html) < allowed:  # the cost if all elements were open at each tag
        return False
    open_names: list[str] = []
    open_sizes: list[int] = []
    open_size = cost = 0
    name, start = "", 0
    for tag in _TAG.finditer(html):
        if name:
            size = tag.start() - start
            open_names.append(name)
            open_sizes.append(size)
            open_size += size
        cost += open_size
        if cost > allowed:
            return True
        name = tag[2].lower()
        if tag[1]:
            if open_names and open_names[-1] == name:
                open_names.pop()
                open_size -= open_sizes.pop()
            name = ""
        elif name in _NEVER_OPEN:
            name = ""
        start = tag.start()
    return False


def _remove_tracking_pixel(image: re.Match[str]) -> str:
    """Remove an image of at most 1 x 1 pixels, which is used for tracking."""
    return "" if len(_PIXEL_SIZE.findall(image[0])) == 2 else image[0]
