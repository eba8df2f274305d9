"""Hostile documents: time and memory stay within limits.

The time limit is generous, for slow machines; the usual time is up to three seconds.
"""

import resource
import sys
import time
from pathlib import Path

import pytest

from tidings.document import Document
from tidings.parse import ParseError, parse
from tidings.parse.entry_identity import MAX_ENTRIES

LIMIT_S = 12.0
#: Unit of ru_maxrss: bytes on macOS, kB elsewhere.
KB_IN_MB = 1_000_000 if sys.platform == "darwin" else 1_000


def parse_within_limit(body: bytes) -> Document | None:
    start = time.process_time()
    try:
        return parse(body, url="https://example.org/feed")
    except ParseError:
        return None
    finally:
        assert time.process_time() - start < LIMIT_S


def with_item(title: bytes, doctype: bytes = b"") -> bytes:
    return (
        doctype
        + b"<rss><channel><item><guid>1</guid><title>"
        + title
        + b"</title></item></channel></rss>"
    )


def test_entity_bomb() -> None:
    levels = b"".join(
        b'<!ENTITY a%d "%s">' % (level, b"&a%d;" % (level - 1) * 10) for level in range(1, 10)
    )
    document = parse_within_limit(
        with_item(b"&a9;", b'<!DOCTYPE rss [<!ENTITY a0 "lol">' + levels + b"]>")
    )
    assert document is not None
    assert len(document.entries[0].title) < 1000


def test_repeated_long_entity() -> None:
    document = parse_within_limit(
        with_item(b"&a;" * 50_000, b'<!DOCTYPE rss [<!ENTITY a "' + b"x" * 100_000 + b'">]>')
    )
    assert document is not None
    assert len(document.entries[0].title) < 10_000_000


@pytest.mark.parametrize(
    "doctype",
    [
        b'<!DOCTYPE rss [<!ENTITY x SYSTEM "file://%s">]>',
        b'<!DOCTYPE rss [<!ENTITY %% p SYSTEM "file://%s"> %%p; <!ENTITY x "&p;">]>',
        b'<!DOCTYPE rss SYSTEM "file://%s">',
    ],
)
def test_external_entities_are_not_loaded(doctype: bytes, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    document = parse_within_limit(with_item(b"&x;", doctype % bytes(secret)))
    assert document is None or "the secret" not in document.entries[0].title


def test_long_base_is_ignored() -> None:
    entries = b'<entry><link href="../x"/></entry>' * 2000
    document = parse_within_limit(
        b'<feed xml:base="http://example.org/' + b"a/" * 500_000 + b'">' + entries + b"</feed>"
    )
    assert document is not None
    assert document.entries[0].url == "https://example.org/x"


def test_path_as_body_is_not_opened(tmp_path: Path) -> None:
    feed = tmp_path / "feed.xml"
    feed.write_bytes(with_item(b"local"))
    assert parse_within_limit(bytes(feed)) is None


@pytest.mark.parametrize(
    "body",
    [
        b"<rss><channel><item><description>" + b"<a>" * 300_000,
        b"<rss><channel><item>" + b"<a>" * 300_000 + b"</a>" * 300_000 + b"</item></channel></rss>",
        b"<rss "
        + b" ".join(b'a%d="x"' % number for number in range(100_000))
        + b"><channel/></rss>",
        b"<rss " + b" ".join(b'a%d="x"' % number for number in range(100_000)) + b"><channel>",
        b"<" * 5_000_000,
        b"<rss>" + b"< " * 400_000,
        b"<rss>" + b"&a;" * 600_000,
        b"<rss>" + b"&" * 900_000,
        b"<rss><a x='" * 100_000,
        b"<rss>" + b"<!" * 500_000,
        b"<rss><a " + b"b" * 1_000_000 + b">",
        b"<rss><a " + b"b= " * 300_000 + b">",
        b"<rss><channel><item><author>" + b"a@" * 200_000 + b"</author></item></channel></rss>",
        b"<rss><channel><item><pubDate>" + b"1 " * 200_000 + b"</pubDate></item></channel></rss>",
        b"<!DOCTYPE [" * 200_000,
        b"<?x?>" * 200_000,
        b"<rss>" + b"<a></b>" * 100_000,
        b"<rss><channel><item>"
        + (b"<category>" * 200 + b"x" * 2000 + b"</category>" * 200) * 500
        + b"</item></channel></rss>",
        b'{"version": "https://jsonfeed.org/version/1", "items": ' + b"[" * 1_000_000,
    ],
    ids=lambda body: body[:12].decode() + f"-{len(body)}",
)
def test_hostile_documents_are_parsed_in_time(body: bytes) -> None:
    parse_within_limit(body)


def test_document_with_many_errors_is_cut() -> None:
    """libxml2 needs 0.5 kB for each error; all of them would take 800 MB."""
    item = b"<item><guid>%d</guid></item>"
    document = parse_within_limit(
        b"<rss><channel>" + item % 1 + b"& <b " * 1_900_000 + item % 2 + b"</channel></rss>"
    )
    assert document is not None
    assert [entry.identity for entry in document.entries] == ["1"]


def test_number_of_entries_is_limited() -> None:
    document = parse_within_limit(
        b"<rss><channel>"
        + b"".join(b"<item><guid>%d</guid></item>" % n for n in range(250_000))
        + b"</channel></rss>"
    )
    assert document is not None
    assert len(document.entries) == MAX_ENTRIES


def test_empty_elements_are_limited_in_memory() -> None:
    """Each element takes 0.25 kB of memory; 19 MB of them took 680 MB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    latin = b"<?xml version='1.0' encoding='iso-8859-1'?><rss><channel><title>\xc9t\xe9</title>"
    document = parse_within_limit(latin + b"<item/>" * 2_700_000 + b"</channel></rss>")
    assert document is not None
    assert (document.title, len(document.entries), document.repaired) == ("Été", MAX_ENTRIES, True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * KB_IN_MB


def test_too_many_json_objects_raise() -> None:
    """10 MB of empty objects took 260 MB of memory."""
    head = b'{"version": "https://jsonfeed.org/version/1", "items": ['
    for empty in (b"{}", b"[]", b'{"id":1}'):
        with pytest.raises(ParseError, match="too many objects"):
            parse(head + b",".join([empty] * 600_000) + b"]}")
    many = parse(head + b",".join(b'{"id":"%d"}' % i for i in range(100_000)) + b"]}")
    assert len(many.entries) == MAX_ENTRIES


def test_too_large_document_raises() -> None:
    with pytest.raises(ParseError, match="the limit is"):
        parse(b"<rss>" + b"x" * 1000, max_bytes=1000)
    with pytest.raises(ParseError, match="the limit is"):
        parse(b"x" * 100_000_000)


def test_nul_characters_are_replaced() -> None:
    """PostgreSQL cannot store NUL; the transaction with the polls of other feeds would fail."""
    title = rb"a\u0000\u0000b \\\\u0000 \\\u0000"
    document = parse(
        b'{"version": "https://jsonfeed.org/version/1", "items": [{"id": "1", "title": "%s"}]}'
        % title
    )
    assert document.entries[0].title == "a\ufffd\ufffdb \\\\u0000 \\\ufffd"
    assert (
        parse_within_limit(
            rb'{"version": "https://jsonfeed.org/version/1", "items": [{"id": "1", "title": '
            rb'"\u00\u000000"}]}'
        )
        is None
    )


def test_lone_surrogates_are_replaced() -> None:
    title = rb"\ud83d\ude00 cut \ud83d \uDE00 \ud83d\ud83d\ude00 \\ud83d"
    document = parse(
        b'{"version": "https://jsonfeed.org/version/1", "items": [{"id": "1", "title": "%s"}]}'
        % title
    )
    assert document.entries[0].title == "\U0001f600 cut \ufffd \ufffd \ufffd\U0001f600 \\ud83d"
