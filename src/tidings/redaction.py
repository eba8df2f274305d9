"""Redaction of user names and passwords in URLs that are displayed, logged or sent."""

import re

#: User name and password of a URL. They end at the last @ before the path, because a password may
#: contain an @ that is not percent-encoded.
_LOGIN = re.compile(r"(?<=://)[^/?#\s]*@")
_PASSWORD = re.compile(r"(?<=://)([^/?#@:\s]*):[^/?#\s]*@")


def redact_password(text: str) -> str:
    """Replace the passwords of all URLs in a text, as in ``https://ann:***@host/feed``."""
    return _PASSWORD.sub(r"\1:***@", text) if "@" in text else text


def strip_credentials(address: str) -> str:
    """Return a URL without its user name and password, for links that a browser follows."""
    return _LOGIN.sub("", address, count=1)
