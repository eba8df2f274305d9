"""`Link` headers (RFC 8288), as far as feeds use them: WebSub's hub and self win over what the document says."""

import re
from urllib.parse import urljoin

_LINK = re.compile(r'<([^<>]*)>((?:\s*;\s*[^\s=;,]+(?:\s*=\s*(?:"[^"]*"|[^\s;,"]*))?)*)')
_REL = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,"]*))', re.IGNORECASE)


def parse_link_header(text: str, base_url: str) -> dict[str, list[str]]:
    """Absolute addresses by relation, in the order of the header."""
    found: dict[str, list[str]] = {}
    for target, parameters in _LINK.findall(text):
        rel = _REL.search(parameters)
        try:
            address = urljoin(base_url, target.strip())
        except ValueError:
            continue
        for name in (rel[1] or rel[2] or "").lower().split() if rel else ():
            found.setdefault(name, []).append(address)
    return found
