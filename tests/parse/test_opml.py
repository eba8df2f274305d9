"""Import and export of OPML, import of URL lists."""

import pytest

from tidings.parse import ParseError
from tidings.parse.opml import Outline, RowError, parse_opml, parse_url_list, write_opml


def opml(*lines: str) -> bytes:
    return "\n".join(["<opml version='2.0'><head/><body>", *lines, "</body></opml>"]).encode()


def test_folders_titles_and_sites() -> None:
    outlines, problems = parse_opml(
        opml(
            "<outline text='News'><outline title='Local / City'>",
            "<outline text='A' title='other' type='rss' xmlUrl='https://a.org/feed' "
            "htmlUrl='https://a.org/'/>",
            "</outline></outline>",
            "<outline text='B' xmlurl=' https://b.org/feed '/>",
            "<outline url='https://c.org/feed' category='/tech/web,/other'/>",
            "<outline title='D' xmlUrl='feed://d.org/feed'/>",
        )
    )
    assert problems == []
    assert outlines == [
        Outline("https://a.org/feed", "A", "https://a.org/", "News/Local - City", 3),
        Outline("https://b.org/feed", "B", line=5),
        Outline("https://c.org/feed", folder="tech/web", line=6),
        Outline("http://d.org/feed", "D", line=7),
    ]


def test_invalid_rows_are_reported_with_line() -> None:
    outlines, problems = parse_opml(
        opml(
            "<outline text='A' xmlUrl='https://a.org/feed'/>",
            "<outline text='again' xmlUrl='https://a.org/feed'/>",
            "<outline text='nothing'/>",
            "<outline text='file' xmlUrl='file:///etc/passwd'/>",
            "<outline text='more' type='include' url='https://e.org/list.opml'/>",
            "<outline text='B' xmlUrl='https://b.org/feed'/>",
        )
    )
    assert [outline.title for outline in outlines] == ["A", "B"]
    assert [problem.line for problem in problems] == [3, 4, 5, 6]
    assert problems[0] == RowError(3, "https://a.org/feed is a duplicate of line 2")
    assert "no feed address" in problems[1].text
    assert "not a web address" in problems[2].text
    assert "another list" in problems[3].text


def test_unescaped_ampersands_are_repaired() -> None:
    outlines, problems = parse_opml(
        opml("<outline text='Q & A&nbsp;!' xmlUrl='https://a.org/?a=1&b=2'/>", "<outline/>")
    )
    assert outlines == [Outline("https://a.org/?a=1&b=2", "Q & A !", line=2)]
    assert [problem.line for problem in problems] == [3]


def test_empty_opml_and_namespace() -> None:
    assert parse_opml(b"<opml/>") == ([], [])
    outlines, _problems = parse_opml(
        b"<opml xmlns='http://opml.org/spec2'><body><outline xmlUrl='https://a.org/'/></body>"
        b"</opml>"
    )
    assert len(outlines) == 1


@pytest.mark.parametrize("body", [b"", b"<rss/>", b"https://a.org/feed"])
def test_not_opml_raises(body: bytes) -> None:
    with pytest.raises(ParseError, match="not an OPML"):
        parse_opml(body)


def test_url_list() -> None:
    outlines, problems = parse_url_list(
        b"# my feeds\nhttps://a.org/feed\n\n  https://b.org/feed  The "
        b"B\nnonsense\nhttps://a.org/feed\n"
    )
    assert outlines == [
        Outline("https://a.org/feed", line=2),
        Outline("https://b.org/feed", "The B", line=4),
    ]
    assert [problem.line for problem in problems] == [5, 6]


def test_written_opml_round_trips() -> None:
    feeds = [
        Outline("https://a.org/feed?x=1&y=2", 'A & "B" <C>', "https://a.org/", "news/local"),
        Outline("https://b.org/feed", "bell\x07", "", "news"),
        Outline("https://c.org/feed", "C"),
    ]
    body = write_opml(feeds, "my <feeds>")
    outlines, problems = parse_opml(body)
    assert problems == []
    assert [(o.url, o.title, o.site_url, o.folder) for o in outlines] == [
        ("https://a.org/feed?x=1&y=2", 'A & "B" <C>', "https://a.org/", "news/local"),
        ("https://b.org/feed", "bell", "", "news"),
        ("https://c.org/feed", "C", "", ""),
    ]
    assert b'<outline text="news">' in body, (
        "validators require a type on an outline with attributes other than text"
    )
