"""What publishers wrote, as other programs' validators want to read it: addresses that are URIs, files whose type is one."""

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


def clean_uri(address: str) -> str:
    """As RFC 3986 wants it, whatever its publisher wrote: brackets are for hosts alone, and % begins two digits."""
    parts = _PARTS.fullmatch(_LONE_PERCENT.sub("%25", address))
    assert parts is not None  # it takes anything
    host, rest, fragment = parts[1] or "", parts[2], parts[3]
    return (
        quote(host, _SAFE_CHARACTERS + "[]")
        + quote(rest, _SAFE_CHARACTERS)
        + ("#" + quote(fragment, _SAFE_CHARACTERS) if fragment else "")
    )


def media_type(file: Enclosure) -> str:
    """As its publisher says where that can be one; else as the ending of its name tells, if it does."""
    if _MEDIA_TYPE.fullmatch(file.type):
        return file.type
    return mimetypes.guess_type(re.split("[?#]", file.url)[0])[0] or "application/octet-stream"
