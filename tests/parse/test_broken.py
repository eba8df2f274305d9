"""Repair of malformed XML and detection of wrongly declared encodings."""

import pytest

from tests.parse.feeds import only_entry, parse_document, rss


def item(title: str, declaration: str = "") -> str:
    return f"{declaration}<rss><channel><item><title>{title}</title></item></channel></rss>"


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("Ben & Jerry", "Ben & Jerry"),
        ("caf&eacute;&nbsp;noir &hellip;", "café noir …"),
        ("a &unknown; b", "a &unknown; b"),
        ("x?a=1&b=2", "x?a=1&b=2"),
        ("bell\x07 and nul\x00", "bell and nul"),
        ("&#0;&#x1f;clean", "clean"),
        ("A & B <br> C", "A & B C"),
        ("<p>one<p>two", "one two"),
        ("1 < 2 & 3", "1 < 2 & 3"),
        ("<![CDATA[a & b &nbsp; <b>c</b>]]> & d", "a & b c & d"),
    ],
)
def test_malformed_markup_is_repaired(title: str, text: str) -> None:
    document = parse_document(item(title))
    assert document.repaired
    assert [entry.title for entry in document.entries] == [text]


def test_item_after_malformed_item_is_separate() -> None:
    document = parse_document(
        "<rss><channel><item><title>A <br> & B</title></item><item><title>C</item><item>"
        "<title>D</title></item></channel></rss>"
    )
    assert [entry.title for entry in document.entries] == ["A & B", "C", "D"]


def test_unclosed_item_ends_at_next_item() -> None:
    document = parse_document(
        "<rss><channel><item><title>A</title><item><title>B</title><link>/b</channel></rss>"
    )
    assert [entry.title for entry in document.entries] == ["A", "B"]


@pytest.mark.parametrize(
    "body",
    [
        "\n\n <?xml version='1.0'?>" + item("T"),
        "PHP Warning: x in <b>y</b>\n" + item("T"),
        item("T") + "<script>track()</script>",
        item("T").removesuffix("</channel></rss>"),
        "\ufeff" + item("T"),
    ],
)
def test_text_around_root_is_ignored(body: str) -> None:
    assert only_entry(body).title == "T"


def test_truncated_document_keeps_parsed_entries() -> None:
    complete = rss(
        *(
            f"<item><guid>{number}</guid><description>{'x' * 50}</description></item>"
            for number in range(20)
        )
    )
    document = parse_document(complete[: len(complete) // 2])
    assert document.repaired
    assert 8 <= len(document.entries) <= 11


def test_entities_of_external_dtd_are_kept() -> None:
    doctype = (
        '<!DOCTYPE rss PUBLIC "-//Netscape Communications//DTD RSS 0.91//EN" '
        '"http://my.netscape.com/publish/formats/rss-0.91.dtd">'
    )
    assert only_entry(doctype + item("caf&eacute;")).title == "café"


def test_internal_entities_are_resolved() -> None:
    assert only_entry('<!DOCTYPE rss [<!ENTITY me "Ann">]>' + item("by &me;")).title == "by Ann"


UMLAUTS = "Grüße – “quoted”"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (item(UMLAUTS).encode(), ""),
        (item(UMLAUTS, '<?xml version="1.0" encoding="windows-1252"?>').encode("cp1252"), ""),
        (item(UMLAUTS, '<?xml version="1.0" encoding="iso-8859-1"?>').encode("cp1252"), ""),
        (item(UMLAUTS, '<?xml version="1.0" encoding="utf-8"?>').encode("cp1252"), ""),
        (item(UMLAUTS, '<?xml version="1.0" encoding="ISO-8859-1"?>').encode(), ""),
        (
            item(UMLAUTS, '<?xml version="1.0" encoding="iso-8859-1"?>').encode(),
            "text/xml; charset=utf-8",
        ),
        (
            item(UMLAUTS, '<?xml version="1.0" encoding="utf-8"?>').encode("cp1252"),
            'application/xml; charset="windows-1252"',
        ),
        (
            item(UMLAUTS, '<?xml version="1.0" encoding="utf-8"?>').encode(),
            "text/xml; charset=no-such-thing",
        ),
        (
            item(UMLAUTS, '<?xml version="1.0" encoding="utf-8"?>').encode(),
            "text/xml; charset=iso-8859-1",
        ),
        (item(UMLAUTS).encode(), "text/xml; charset=us-ascii"),
        (item(UMLAUTS, '<?xml version="1.0" encoding="utf-16"?>').encode("utf-16"), ""),
        (item(UMLAUTS, '<?xml version="1.0" encoding="utf-16"?>').encode("utf-16-le"), ""),
        (item(UMLAUTS, '<?xml version="1.0" encoding="utf-16"?>').encode(), ""),
        (item(UMLAUTS, '<?xml version="1.0"?>').encode("utf-32"), ""),
        (
            b"\xef\xbb\xbf" + item(UMLAUTS, '<?xml version="1.0" encoding="iso-8859-1"?>').encode(),
            "",
        ),
        (item("Gr&#252;&#223;e &#150; &#x93;quoted&#148;").encode(), ""),
        (item(UMLAUTS).encode("cp1252").decode("latin-1").encode(), ""),
    ],
)
def test_encodings(body: bytes, content_type: str) -> None:
    assert parse_document(body, content_type).entries[0].title == UMLAUTS


def test_declared_encoding_needs_no_repair() -> None:
    assert not parse_document(
        item(UMLAUTS, '<?xml version="1.0" encoding="iso-8859-1"?>').encode("cp1252")
    ).repaired
    assert parse_document(
        item(UMLAUTS, '<?xml version="1.0" encoding="utf-8"?>').encode("cp1252")
    ).repaired


def test_single_invalid_byte_keeps_utf8() -> None:
    body = item("Grüße, Füße, Öl, Äther, Übel | cut").encode().replace(b"|", b"\xc3")
    assert only_entry(body).title.startswith("Grüße, Füße")


def test_east_asian_encodings() -> None:
    assert (
        only_entry(
            item("日本語", '<?xml version="1.0" encoding="Shift_JIS"?>').encode("shift_jis")
        ).title
        == "日本語"
    )
    assert (
        only_entry(item("中文", '<?xml version="1.0" encoding="gb2312"?>').encode("gb18030")).title
        == "中文"
    )
