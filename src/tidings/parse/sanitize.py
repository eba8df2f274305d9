"""Published HTML made safe to show, and HTML made plain text.

The rule is an allow-list: what is not named here does not get through. Scripts, styles, forms and frames are gone, addresses
are http, https or mailto and absolute, links tell the site nothing about the reader. `srcset` is not allowed: the schemes
within it are not checked by the sanitiser, so it would let `javascript:` pass.
"""

import html as entities
import re
from functools import lru_cache

import nh3


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


_BLOCKS = _names(
    "address article aside blockquote br center dd details div dl dt figcaption figure footer h1 h2 h3 h4 h5 h6 header hr li"
    " main ol p pre section summary table tbody td tfoot th thead tr ul video audio"
)
_INLINE = _names(
    "a abbr acronym b bdi bdo big caption cite code col colgroup data del dfn em font i img ins kbd mark picture q rp rt ruby s"
    " samp small source span strike strong sub sup time tt u var wbr"
)
#: Gone with all that is within them; other unknown elements only lose their tags. What an `object` holds is what its author
#: wants shown in its place.
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
#: Two that HTML and authors read differently, and take the rest of a post with them: elements closed as in XML, which HTML
#: takes for open, and frames, whose words HTML hides, but which are for whoever shows no frames (HTML 4.01 sect. 16.5). Given
#: a name that nobody knows, they lose their tags alone.
_MISPARSED_TAG = re.compile(
    r"<(?=/?if|[stn])(?:(?=(?:script|style|title|textarea|noscript|template|select)\b[^<>]*/>)|/?(?=iframe\b))",
    re.IGNORECASE,
)
#: What a script would show. Of a picture that is to be loaded later an attribute of the script's own has the address, and `src`
#: has a grey dot. A player cannot be let in, but its film has a page.
_IMG_OR_IFRAME = re.compile(r"<(?:img|iframe)\b[^<>]*+>", re.IGNORECASE)
_LAZY_SRC = re.compile(r"\sdata-(?:lazy-|orig-)?(?:src|original)\s*=", re.IGNORECASE)
_PLACEHOLDER_SRC = re.compile(r"""\ssrc\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>]*)""", re.IGNORECASE)
_VIDEO_EMBED = re.compile(
    r"""\ssrc\s*=\s*["']?(?:https?:)?//"""
    r"(?:(?:www\.)?youtube(?:-nocookie)?\.com/embed/(?P<youtube>[\w-]{11})|player\.vimeo\.com/video/(?P<vimeo>\d{1,15}))",
    re.IGNORECASE | re.ASCII,
)
#: MathML has been a way around sanitisers, and without its markup a formula is a wrong one (½ would be 12). But most come with
#: what they say in TeX, or in words.
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
#: A page of fifty posts must not fetch fifty pictures before they are scrolled to. One attribute each: of several, the
#: sanitiser would choose the order anew in every process, and the same post would not be the same text.
_SET_ATTRIBUTES = {
    "img": {"loading": "lazy"},
    "audio": {"controls": "controls"},
    "video": {"controls": "controls"},
}
_SCHEMES = {"http", "https", "mailto"}

# Only ever applied to the sanitiser's own output, where every attribute is name="value" and no value holds a quote.
_PIXEL_SIZE = re.compile(r' (?:width|height)="[01](?:px)?"')
_IMAGE = re.compile(r'<img(?: [a-z-]+="[^"]*")*>')
_CLEAN_TAG = re.compile(r"</?([a-z0-9]*)[^>]*>")
# Words need no parser: what is left over is text, and text is escaped wherever it is shown. No pattern reads on over a second
# tag or comes back, so that a million of them are read once. An end of block is an end of word.
_HIDDEN_ELEMENT = r"<(script|style|title|template|svg)\b(?:[^<>]*/>|.*?(?:</\1\s*>|\Z))"
_HIDDEN = re.compile(rf"<!--.*?(?:-->|\Z)|{_HIDDEN_ELEMENT}", re.DOTALL | re.IGNORECASE)
_HIDDEN_WITHOUT_COMMENTS = re.compile(_HIDDEN_ELEMENT, re.DOTALL | re.IGNORECASE)
_ANY_TAG = re.compile(r"</?(?=[a-z!?])([a-z0-9]*)[^<>]*>", re.IGNORECASE)

#: An address that may be relative: it does not begin like an absolute one. Looks for "=" first, which is quick to find.
_RELATIVE = re.compile(
    r"""=(?i:(?<=href=)|(?<=src=)|(?<=poster=)|(?<=\s=))\s*+["']?+\s*+(?i:(?!https?://|mailto:|["'>]))"""
)
#: One that is relative to more than its site: it does not begin with a slash either.
_RELATIVE_TO_PAGE = re.compile(_RELATIVE.pattern.replace("mailto:|", "mailto:|/|"))
_SITE = re.compile(r"https?://[^/?#\\]+")
_TAG = re.compile(r"<(/?)([a-z][a-z0-9]*)", re.IGNORECASE)
#: One attribute as the HTML standard reads it, and a tag with more of them than anybody writes.
_ATTRIBUTE = (
    r"""(?:[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?+)?+)"""
)
_ATTRIBUTES_OF_TAG = re.compile(
    rf"<[a-z][^\s/>]*+{_ATTRIBUTE}{{0,100}}+(?P<more>{_ATTRIBUTE})?+", re.IGNORECASE
)
#: In less than this, no number of attributes takes long.
_SHORT = 20_000
#: These never stay open: they are empty, or the next of their kind closes them.
_NEVER_OPEN = _names(
    "area br col dd dt hr img input li link meta option p source tbody td tfoot th thead tr wbr"
)


#: What may be followed. Others run something (`javascript:`, `data:`), or read what is the reader's own (`file:`).
_LINK_SCHEMES = re.compile(r"(?:https?|ftp|mailto|magnet|gemini|gopher):", re.IGNORECASE)


def sanitize_url(address: str) -> str:
    """The address of a post, its comments or its files if it may be shown as a link, else nothing."""
    return address if _LINK_SCHEMES.match(address) else ""


@lru_cache(maxsize=64)
def _cleaner(base_url: str) -> nh3.Cleaner:
    """Building a cleaner costs as much as cleaning a short post: most share the one for no base, or that for their site."""
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
    """The fragment, safe to put into a page. Cleaning what is clean changes nothing."""
    if "<" not in html and "&" not in html:
        return entities.escape(html.strip(), quote=False)
    if "data-" in html or "<iframe" in html:
        html = _IMG_OR_IFRAME.sub(_replace_lazy_media, html)
    if "<math" in html:
        html = _replace_mathml(html)
    html = _MISPARSED_TAG.sub(lambda start: start[0] + "x-", html).replace(
        "<br></br>", "<br>"
    )  # two lines, as HTML reads it
    if _expands_too_much(html):
        return entities.escape(plain_text(html), quote=False)
    try:
        clean = _cleaner(_required_base(base_url, html)).clean(html)
    except ValueError:  # a base that is no URL
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
    if (film := _VIDEO_EMBED.search(text)) is None:
        return text
    page = (
        f"https://www.youtube.com/watch?v={film['youtube']}"
        if film["youtube"]
        else f"https://vimeo.com/{film['vimeo']}"
    )
    return f' <a href="{page}">{page}</a> {text}'


def _replace_mathml(html: str) -> str:
    """Formulas as the text that they come with; what comes with none is left to be dropped."""
    done: list[str] = []
    end, begun = 0, None
    for tag in _MATH.finditer(html):
        if not tag[1]:
            begun = begun or tag
        elif begun is not None:
            found = _ALTTEXT.search(begun[0]) or _TEX.search(html, begun.end(), tag.start())
            if text := "".join(filter(None, found.groups())).strip() if found else "":
                done += (html[end : begun.start()], f"<code>{text}</code>")
                end = tag.end()
            begun = None
    return "".join([*done, html[end:]])


def _required_base(base_url: str, html: str) -> str:
    """As much of the base as the addresses in the fragment are relative to: nothing, the site, or all of it."""
    site = _SITE.match(base_url)
    if site is None or not _RELATIVE.search(html):
        return ""
    base = base_url if _RELATIVE_TO_PAGE.search(html) else site[0]
    return (
        base if len(base) * html.count("=") < 1_000_000 + 10 * len(html) else ""
    )  # every address would repeat it


def search_text(clean: str) -> str:
    """The words of what `clean_html` has made, where each ``<`` begins a tag and each ``>`` ends one: for the search index."""
    if "<" in clean:
        pieces = _CLEAN_TAG.split(clean)
        pieces[1::2] = ["" if name in _INLINE else " " for name in pieces[1::2]]
        clean = "".join(pieces)
    return entities.unescape(clean) if "&" in clean else clean


def plain_text(html: str) -> str:
    """The words of a fragment on one line: for titles and summaries."""
    if "<" in html:
        html = _without_tags(_HIDDEN.sub(_hidden, html))
    if "<" in html:  # a tag whose attribute holds one
        html = _without_tags(html)
    if "&" in html:
        html = entities.unescape(html)
    return " ".join(html.split())


def _hidden(found: re.Match[str]) -> str:
    """A comment that is never closed ends with the first ``>``: it would take the rest of a title with it."""
    text = found[0]
    if text.startswith("<!--") and not text.endswith("-->"):
        return _HIDDEN_WITHOUT_COMMENTS.sub(" ", text.partition(">")[2])
    return " "


def _without_tags(html: str) -> str:
    pieces = _ANY_TAG.split(html)
    pieces[1::2] = [" " if name.lower() in _BLOCKS else "" for name in pieces[1::2]]
    return "".join(pieces)


def _expands_too_much(html: str) -> bool:
    """Whether the HTML standard would make far more of this text than there is.

    An element of formatting that stays open (``<font>``, ``<a>``) is opened again in every later paragraph with all its
    attributes: 40 kB of ``<font color=1><p>x<font color=2><p>x`` become 80 MB. Deep nesting takes time that grows with the
    square. So every tag costs what stands open at that point, counted with the text up to the next tag since a quoted ``>``
    cannot be told from a real one here; real posts cost a few times their length. A tag's attributes are compared each with
    all others.
    """
    if len(html) > _SHORT and any(tag["more"] for tag in _ATTRIBUTES_OF_TAG.finditer(html)):
        return True
    allowed = 200_000 + 50 * len(html)
    if html.count("<") * len(html) < allowed:  # as if everything stood open at every tag
        return False
    open_names: list[str] = []
    open_sizes: list[int] = []
    standing = cost = 0
    name, start = "", 0
    for tag in _TAG.finditer(html):
        if name:
            size = tag.start() - start
            open_names.append(name)
            open_sizes.append(size)
            standing += size
        cost += standing
        if cost > allowed:
            return True
        name = tag[2].lower()
        if tag[1]:
            if open_names and open_names[-1] == name:
                open_names.pop()
                standing -= open_sizes.pop()
            name = ""
        elif name in _NEVER_OPEN:
            name = ""
        start = tag.start()
    return False


def _remove_tracking_pixel(image: re.Match[str]) -> str:
    """A picture of one dot shows nothing: it reports who reads."""
    return "" if len(_PIXEL_SIZE.findall(image[0])) == 2 else image[0]
