"""Entry identity and change detection."""

from tests.parse.feeds import parse_document, rss, rss_item
from tidings.parse import unique_entries


def test_guid_is_identity() -> None:
    old = rss_item("<guid>7</guid><title>Old</title><link>/a</link>")
    new = rss_item("<guid> 7 </guid><title>New</title><link>/b</link>")
    assert old.identity == new.identity == "7"
    assert old.digest != new.digest


def test_identity_without_guid_is_title_and_link() -> None:
    first = rss_item("<title>T</title><link>/a</link><description>one</description>")
    edited = rss_item("<title>T</title><link>/a</link><description>two</description>")
    other = rss_item("<title>T</title><link>/b</link><description>one</description>")
    assert first.identity == edited.identity != other.identity


def test_identity_without_title_and_link_is_text() -> None:
    assert (
        rss_item("<description>one</description>").identity
        != rss_item("<description>two</description>").identity
    )


def test_digest_ignores_dates_and_counters() -> None:
    monday = rss_item(
        "<guid>1</guid><title>T</title><pubDate>Mon, 01 Jan 2024 00:00:00 GMT</pubDate>"
        "<slash:comments>1</slash:comments>"
    )
    tuesday = rss_item(
        "<guid>1</guid><title>T</title><pubDate>Tue, 02 Jan 2024 00:00:00 GMT</pubDate>"
        "<slash:comments>9</slash:comments>"
    )
    assert monday.digest == tuesday.digest
    assert len(monday.digest) == 16


def test_digest_changes_with_enclosure() -> None:
    without = rss_item("<guid>1</guid>")
    assert without.digest != rss_item('<guid>1</guid><enclosure url="/a.mp3"/>').digest


def test_digest_separates_fields() -> None:
    assert (
        rss_item("<guid>1</guid><title>ab</title>").digest
        != rss_item("<guid>1</guid><title>a</title><link>b</link>").digest
    )


def test_first_of_duplicate_guids_is_kept() -> None:
    document = unique_entries(
        parse_document(
            rss(
                "<item><guid>1</guid><title>A</title></item><item><guid>1</guid><title>B</title>"
                "</item>"
            )
        )
    )
    assert [entry.title for entry in document.entries] == ["A"]
