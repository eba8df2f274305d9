"""A password that stands in an address is its reader's: whatever is shown, logged or handed on goes through here."""

import re

#: In any text: up to the last @ before the path, since some write an @ of the password as it is.
_LOGIN = re.compile(r"(?<=://)[^/?#\s]*@")
_PASSWORD = re.compile(r"(?<=://)([^/?#@:\s]*):[^/?#\s]*@")


def redact_password(text: str) -> str:
    """``https://ann:***@host/feed``: all addresses of a text as they may be seen."""
    return _PASSWORD.sub(r"\1:***@", text) if "@" in text else text


def strip_credentials(address: str) -> str:
    """To follow with a browser, which asks whoever sits there."""
    return _LOGIN.sub("", address, count=1)
