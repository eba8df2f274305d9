"""A password in an address is not told, wherever the address stands."""

import pytest

from tidings.errors import UsageError
from tidings.redaction import redact_password, strip_credentials


@pytest.mark.parametrize(
    ("written", "told"),
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
def test_a_text_keeps_all_but_the_password(written, expected):
    assert redact_password(written) == expected


def test_a_link_has_neither_name_nor_password():
    assert strip_credentials("https://ann:se@cret@a.test/@b") == "https://a.test/@b"
    assert strip_credentials("https://a.test/@b") == "https://a.test/@b"


def test_no_error_tells_one():
    assert (
        str(UsageError("https://ann:secret@a.test/: not found"))
        == "https://ann:***@a.test/: not found"
    )
