"""Who an entry is, and what counts as a change."""

from tidings.parse import unique_entries

from .feeds import parse_document, rss, rss_item


def test_the_guid_is_the_identity_whatever_else_changes() -> None:
    old = rss_item("<guid>7</guid><title>Old</title><link>/a</link>")
    new = rss_item("<guid> 7 </guid><title>New</title><link>/b</link>")
    assert old.identity == new.identity == "7"
    assert old.digest != new.digest


def test_without_an_id_title_and_link_are_the_identity() -> None:
    first = rss_item("<title>T</title><link>/a</link><description>one</description>")
    edited = rss_item("<title>T</title><link>/a</link><description>two</description>")
    other = rss_item("<title>T</title><link>/b</link><description>one</description>")
    assert first.identity == edited.identity != other.identity


def test_without_title_and_link_the_text_is_the_identity() -> None:
    assert (
        rss_item("<description>one</description>").identity
        != rss_item("<description>two</description>").identity
    )


def test_dates_and_counters_are_no_change() -> None:
    monday = rss_item(
        "<guid>1</guid><title>T</title><pubDate>Mon, 01 Jan 2024 00:00:00 GMT</pubDate><slash:comments>1</slash:comments>"
    )
    tuesday = rss_item(
        "<guid>1</guid><title>T</title><pubDate>Tue, 02 Jan 2024 00:00:00 GMT</pubDate><slash:comments>9</slash:comments>"
    )
    assert monday.digest == tuesday.digest
    assert len(monday.digest) == 16


def test_a_new_enclosure_is_a_change() -> None:
    without = rss_item("<guid>1</guid>")
    assert without.digest != rss_item('<guid>1</guid><enclosure url="/a.mp3"/>').digest


def test_text_that_moves_from_one_field_to_the_next_is_a_change() -> None:
    assert (
        rss_item("<guid>1</guid><title>ab</title>").digest
        != rss_item("<guid>1</guid><title>a</title><link>b</link>").digest
    )


def test_of_two_items_with_one_guid_the_first_counts() -> None:
    document = unique_entries(
        parse_document(
            rss(
                "<item><guid>1</guid><title>A</title></item><item><guid>1</guid><title>B</title></item>"
            )
        )
    )
    assert [entry.title for entry in document.entries] == ["A"]
