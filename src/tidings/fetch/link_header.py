"""Parser for Link headers (RFC 8288), which contain the hub and self links of WebSub."""

import re
from urllib.parse import urljoin

_LINK = re.compile(r'<([^<>]*)>((?:\s*;\s*[^\s=;,]+(?:\s*=\s*(?:"[^"]*"|[^\s;,"]*))?)*)')
_REL = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,"]*))', re.IGNORECASE)


def parse_link_header(text: str, base_url: str) -> dict[str, list[str]]:
    """Return the absolute URLs of a Link header by relation, in the order of the header."""
    links: dict[str, list[str]] = {}
    for target, parameters in _LINK.findall(text):
        rel = _REL.search(parameters)
        try:
            url = urljoin(base_url, target.strip())
        except ValueError:
            continue
        for name in (rel[1] or rel[2] or "").lower().split() if rel else ():
            links.setdefault(name, []).append(url)
    return links
