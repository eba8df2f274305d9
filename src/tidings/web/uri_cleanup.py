"""Clean up publishers' URLs and media types, so that output feeds pass validators."""

import mimetypes
import re
from urllib.parse import quote

from tidings.document import Enclosure

_PARTS = re.compile(r"([^/?#]*//[^/?#]*)?([^#]*)#?(.*)", re.DOTALL)
_LONE_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_MEDIA_TYPE = re.compile(
    r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(\s*;\s*[\w-]+=(\"[^\"]*\"|[\w.+-]+))*", re.ASCII
)
_SAFE_CHARACTERS = "%/:=&?~+!$,;'@()*"


def clean_uri(url: str) -> str:
    """Return a URL in which the characters that RFC 3986 does not allow are percent-encoded.

    Brackets stay only in the host; a % without two hex digits becomes %25.
    """
    parts = _PARTS.fullmatch(_LONE_PERCENT.sub("%25", url))
    assert parts is not None  # the pattern matches any string
    host, rest, fragment = parts[1] or "", parts[2], parts[3]
    return (
        quote(host, _SAFE_CHARACTERS + "[]")
        + quote(rest, _SAFE_CHARACTERS)
        + ("#" + quote(fragment, _SAFE_CHARACTERS) if fragment else "")
    )


def media_type(file: Enclosure) -> str:
    """Return the declared media type if it is valid, or a guess from the file extension."""
    if _MEDIA_TYPE.fullmatch(file.type):
        return file.type
    return mimetypes.guess_type(re.split("[?#]", file.url)[0])[0] or "application/octet-stream"
