"""Redaction of credentials in URLs, for everything that is displayed, logged or sent on."""

import re

#: User information of a URL: up to the last @ before the path, since passwords may have a bare @.
_LOGIN = re.compile(r"(?<=://)[^/?#\s]*@")
_PASSWORD = re.compile(r"(?<=://)([^/?#@:\s]*):[^/?#\s]*@")


def redact_password(text: str) -> str:
    """Replace the passwords of all URLs in a text: ``https://ann:***@host/feed``."""
    return _PASSWORD.sub(r"\1:***@", text) if "@" in text else text


def strip_credentials(address: str) -> str:
    """Remove user name and password from a URL, for links that a browser follows."""
    return _LOGIN.sub("", address, count=1)
