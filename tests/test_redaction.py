"""Redaction of passwords in URLs."""

import pytest

from tidings.errors import UsageError
from tidings.redaction import redact_password, strip_credentials


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("https://ann:secret@a.test/feed", "https://ann:***@a.test/feed"),
        ("https://ann:se@cr:et@a.test/feed", "https://ann:***@a.test/feed"),
        ("https://:secret@a.test", "https://:***@a.test"),
        (
            "moved from http://a:b@c.test/ to http://a:b@c.test/d.",
            "moved from http://a:***@c.test/ to http://a:***@c.test/d.",
        ),
        ("https://ann@a.test/feed", "https://ann@a.test/feed"),
        ("https://a.test:8080/@ann", "https://a.test:8080/@ann"),
        ("https://a.test:8080?mail=a:b@c", "https://a.test:8080?mail=a:b@c"),
        ("at 9:30 write to ann@a.test", "at 9:30 write to ann@a.test"),
        ("", ""),
    ],
)
def test_redact_password_keeps_the_rest(written, expected):
    assert redact_password(written) == expected


def test_strip_credentials():
    assert strip_credentials("https://ann:se@cret@a.test/@b") == "https://a.test/@b"
    assert strip_credentials("https://a.test/@b") == "https://a.test/@b"


def test_error_message_is_redacted():
    assert (
        str(UsageError("https://ann:secret@a.test/: not found"))
        == "https://ann:***@a.test/: not found"
    )
