"""Parsing of all feed formats to the same document model."""

import json

import pytest

from tests.parse.feeds import URL, atom, atom_entry, only_entry, parse_document, rss, rss_item
from tidings.document import Enclosure
from tidings.parse import ParseError, parse


def test_rss_2() -> None:
    document = parse_document(
        rss(
            "<title>News &amp;amp; more</title><link>https://example.org/</link>"
            "<description>All of it</description>",
            "<language>en_GB</language><managingEditor>ed@example.org (Ed)</managingEditor>",
            "<image><url>/logo.png</url></image>",
            "<item><title>First</title><link>/first</link><guid>g1</guid>",
            "<dc:creator>Ann</dc:creator><dc:creator>Bob</dc:creator>",
            "<pubDate>Mon, 01 Jan 2024 00:00:00 GMT</pubDate>",
            "<category>a</category><category>b</category><category>a</category>",
            "<description>short</description>"
            "<content:encoded>&lt;p&gt;long&lt;/p&gt;</content:encoded>",
            "<comments>/first#comments</comments></item>",
        )
    )
    assert document.format == "rss 2.0"
    assert (document.title, document.description) == ("News & more", "All of it")
    assert (document.language, document.author, document.icon_url) == (
        "en-GB",
        "Ed",
        "https://example.org/logo.png",
    )
    assert document.links.site == "https://example.org/"
    assert not document.repaired
    (entry,) = document.entries
    assert (entry.identity, entry.title, entry.url) == ("g1", "First", "https://example.org/first")
    assert (entry.content, entry.summary) == ("<p>long</p>", "short")
    assert (entry.author, entry.tags) == ("Ann, Bob", ("a", "b"))
    assert entry.published == 1704067200.0
    assert entry.comments_url == "https://example.org/first#comments"


def test_atom_1() -> None:
    document = parse_document(
        atom(
            '<title type="html">A &amp;lt;b&amp;gt; title</title><subtitle>about</subtitle>'
            "<icon>/i.ico</icon>",
            '<link href="https://example.org/"/><link rel="self" href="/atom"/><author>'
            "<name>Ann</name></author>",
            '<entry><id>tag:1</id><title>&lt;b> is a tag</title><link rel="alternate" href="one"/>',
            "<published>2024-01-01T01:00:00+01:00</published>"
            "<updated>2024-01-02T00:00:00Z</updated>",
            '<category term="x" label="The X"/><author><name>Bob</name>'
            "<email>b@example.org</email></author>",
            '<content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><p>a &lt; b<br/>'
            "</p></div></content>",
            "<summary>1 &lt; 2</summary></entry>",
        )
    )
    assert (document.format, document.title, document.description) == (
        "atom 1.0",
        "A <b> title",
        "about",
    )
    assert (document.author, document.icon_url) == ("Ann", "https://example.org/i.ico")
    (entry,) = document.entries
    assert entry.title == "<b> is a tag", "type=text is plain text even if it looks like HTML"
    assert entry.url == "https://example.org/blog/one"
    assert (entry.content, entry.summary) == ("<p>a &lt; b<br></p>", "1 &lt; 2")
    assert (entry.published, entry.updated) == (1704067200.0, 1704153600.0)
    assert (entry.author, entry.tags) == ("Bob", ("The X",))


def test_atom_03() -> None:
    entry = only_entry(
        '<feed version="0.3" xmlns="http://purl.org/atom/ns#"><entry><id>1</id>'
        "<issued>2004-01-01</issued>"
        "<modified>2004-01-02T00:00:00Z</modified><title mode='escaped' "
        "type='text/html'>&lt;i>T&lt;/i></title>"
        '<content type="text/html" mode="escaped">&lt;b>x&lt;/b></content></entry></feed>'
    )
    assert (entry.title, entry.content) == ("T", "<b>x</b>")
    assert entry.date_only
    assert entry.updated == 1073001600.0


def test_cdf_channel() -> None:
    document = parse_document(
        '<CHANNEL HREF="http://example.org/"><TITLE>C</TITLE>'
        '<ITEM HREF="/1" LASTMOD="2004-01-02"><TITLE>T</TITLE>'
        "<ABSTRACT>words</ABSTRACT></ITEM></CHANNEL>"
    )
    (entry,) = document.entries
    assert (document.title, document.links.site) == ("C", "http://example.org/")
    assert (entry.title, entry.url, entry.summary, entry.updated) == (
        "T",
        "https://example.org/1",
        "words",
        1073001600.0,
    )


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [
        ("http://purl.org/rss/1.0/", "rdf 1.0"),
        ("http://my.netscape.com/rdf/simple/0.9/", "rdf 0.90"),
    ],
)
def test_rdf_items_next_to_channel(namespace: str, expected: str) -> None:
    document = parse_document(
        f'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="{namespace}" '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><channel><title>R</title></channel>'
        '<item rdf:about="urn:1"><title>T</title><link>https://example.org/1</link>'
        "<dc:date>2024-01-01T00:00:00Z</dc:date></item></rdf:RDF>"
    )
    assert (document.format, document.title) == (expected, "R")
    assert (document.entries[0].identity, document.entries[0].published) == ("urn:1", 1704067200.0)


def test_json_feed() -> None:
    feed = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": "J",
        "home_page_url": "https://example.org/",
        "feed_url": URL,
        "next_url": "https://example.org/page2.json",
        "hubs": [
            {"type": "WebSub", "url": "https://hub.example.org/"},
            {"type": "rssCloud", "url": "https://cloud.example.org/"},
        ],
        "authors": [{"name": "Ann"}, {"name": "Bob"}],
        "items": [
            {
                "id": 17,
                "url": "/17",
                "title": "So",
                "content_text": "1 < 2\n\n3",
                "date_published": "2024-01-01T00:00:00Z",
            },
            {
                "id": "x",
                "content_html": "<p>x</p>",
                "author": {"name": "Eve"},
                "tags": ["t", 3],
                "date_published": 1704067200,
                "attachments": [
                    {"url": "/a.mp3", "mime_type": "audio/mpeg", "size_in_bytes": 12.0},
                    {"url": None},
                ],
            },
            "not an item",
        ],
    }
    document = parse_document(json.dumps(feed))
    assert (document.format, document.author) == ("json feed 1.1", "Ann, Bob")
    assert (document.links.hubs, document.links.next_page) == (
        ("https://hub.example.org/",),
        "https://example.org/page2.json",
    )
    first, second = document.entries
    assert (first.identity, first.url, first.content) == (
        "17",
        "https://example.org/17",
        "1 &lt; 2<br>\n<br>\n3",
    )
    assert first.published == second.published == 1704067200.0
    assert (second.author, second.tags) == ("Eve", ("t",))
    assert second.enclosures == (Enclosure("https://example.org/a.mp3", "audio/mpeg", 12),)


def test_feed_without_entries_is_parsed() -> None:
    assert parse_document(rss("<title>Quiet</title>")).entries == ()
    assert parse_document(atom()).entries == ()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<!DOCTYPE html><html><body>Hello</body></html>", "an HTML page, not a feed"),
        (b"<html><head><title>x</title></head><body>a <b> & c</body>", "an HTML page, not a feed"),
        (b"  \n", "empty"),
        (b"plain words", "neither XML nor JSON"),
        (b"\x89PNG\r\n\x1a\n\0\0", "binary"),
        (b"<urlset></urlset>", "XML file that starts with <urlset>"),
        (b"<opml version='2.0'></opml>", "a list of feeds"),
        (b'{"a": 1}', "not a JSON Feed"),
        (b"{", "not a valid JSON Feed"),
        (b"/etc/passwd", "neither XML nor JSON"),
    ],
)
def test_not_a_feed_raises_with_description(body: bytes, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse(body)


def test_capital_names_and_undeclared_prefixes() -> None:
    document = parse_document(
        "<RSS><CHANNEL><TITLE>Loud</TITLE><item><media:content url='https://e.org/a.jpg'/>"
        "<dc:creator>Ann</dc:creator></item></CHANNEL></RSS>"
    )
    assert document.title == "Loud"
    assert document.entries[0].author == "Ann"
    assert document.entries[0].enclosures[0].url == "https://e.org/a.jpg"


def test_enclosures_are_deduplicated() -> None:
    entry = rss_item(
        '<enclosure url="/a.mp3" type="audio/mpeg" length="1,000"/>'
        '<enclosure url="/b.mp3" length="7"/>',
        '<atom:link rel="enclosure" href="/c.mp3" type="audio/mpeg" length="9"/>',
        '<media:content url="/a.mp3" fileSize="5"/><media:group>'
        '<media:content url="/d.jpg" type="image/jpeg"/></media:group>',
    )
    assert entry.enclosures == (
        Enclosure("https://example.org/a.mp3", "audio/mpeg", None),
        Enclosure("https://example.org/b.mp3", "", 7),
        Enclosure("https://example.org/c.mp3", "audio/mpeg", 9),
        Enclosure("https://example.org/d.jpg", "image/jpeg", None),
    )


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("AT&amp;amp;T", "AT&T"),
        ("<![CDATA[<b>Bold</b> &amp; plain]]>", "Bold & plain"),
        ("1 &lt; 2 and a&lt;b", "1 < 2 and a<b"),
        ("<b>naked</b> <i>markup</i>", "naked markup"),
        (" two\n lines ", "two lines"),
        ("&lt;![CDATA[Wrapped twice]]&gt;", "Wrapped twice"),
    ],
)
def test_rss_titles_are_plain_text(title: str, text: str) -> None:
    assert rss_item(f"<title>{title}</title>").title == text


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("<author>ann@example.org (Ann)</author>", "Ann"),
        ("<author>Ann &lt;ann@example.org&gt;</author>", "Ann"),
        ("<author>ann@example.org</author>", "ann@example.org"),
        ("<itunes:author>Ann</itunes:author>", "Ann"),
        ("<atom:author><atom:name>Ann</atom:name></atom:author>", "Ann"),
        ("<author><b>Ann</b> Lee</author>", "Ann Lee"),
        ("<itunes:author>Ann &amp;amp; Bob</itunes:author>", "Ann & Bob"),
        ("<dc:creator><![CDATA[<b>Ann</b> Lee]]></dc:creator>", "Ann Lee"),
        ("<author>a@example.org (Ann), b@example.org (Bob)</author>", "Ann, Bob"),
        ("<author>Ann &lt;a@example.org&gt;; Bob &lt;b@example.org&gt;</author>", "Ann, Bob"),
        ("<source url='https://b.example/'>Another</source>", ""),
    ],
)
def test_authors(written: str, name: str) -> None:
    assert rss_item(written).author == name


def test_atom_author_is_inherited_from_source_or_feed() -> None:
    ann, bob, eve = (f"<author><name>{name}</name></author>" for name in ("Ann", "Bob", "Eve"))
    entries = parse_document(
        atom(ann, f"<entry><source>{bob}</source></entry>", "<entry/>", f"<entry>{eve}</entry>")
    ).entries
    assert [entry.author for entry in entries] == ["Bob", "Ann", "Eve"]


def test_nonstandard_tags() -> None:
    assert rss_item("<tags>one, two</tags><category>three</category>").tags == (
        "three",
        "one",
        "two",
    )


def test_content_and_summary_elements() -> None:
    assert rss_item("<xhtml:body><p>b</p></xhtml:body>").content == "<p>b</p>"
    assert (
        rss_item("<description><p>naked &amp; bold</p></description>").summary
        == "<p>naked &amp; bold</p>"
    )
    assert (
        rss_item("<media:group><media:description>film</media:description></media:group>").summary
        == "film"
    )
    within = "<media:description>use #include &lt;stdio.h&gt;\n\nhere</media:description>"
    assert rss_item(f"<media:content url='/f'>{within}</media:content>").summary == (
        "use #include &lt;stdio.h&gt;<br>\n<br>\nhere"
    )
    assert rss_item("<itunes:subtitle>a talk</itunes:subtitle>").summary == "a talk"
    assert rss_item("<description>teaser</description><summary>text</summary>").content == "text"
    assert atom_entry('<content type="text/plain">a &lt;b></content>').content == "a &lt;b&gt;"
    assert (
        atom_entry('<content type="application/octet-stream">PGI+eDwvYj4=</content>').content
        == "<b>x</b>"
    )
    assert (
        atom_entry('<content type="text/html" mode="base64">PGI+\n  eDwvYj4=</content>').content
        == "<b>x</b>"
    )
    assert atom_entry('<content type="image/png">iVBORw0KGgo=</content>').content == ""
    assert atom_entry('<title type="application/x-own">word</title>').title == "word", (
        "base64 by chance"
    )
    assert (
        rss_item("<content:encoded>&lt;![CDATA[&lt;p>b&lt;/p>]]&gt;</content:encoded>").content
        == "<p>b</p>"
    )


def test_xml_base_is_inherited() -> None:
    entry = atom_entry(
        '<id>relative</id><link href="page"/><content type="html" xml:base="deep/">&lt;a '
        'href="x">x&lt;/a></content>',
        attributes='xml:base="http://other.example.org/a/"',
    )
    assert entry.identity == "http://other.example.org/a/relative"
    assert entry.url == "http://other.example.org/a/page"
    assert entry.base_url == "http://other.example.org/a/deep/"


def test_text_base_defaults_to_page() -> None:
    assert (
        rss_item("<link>/posts/1</link><description>x</description>").base_url
        == "https://example.org/posts/1"
    )
    assert rss_item("<description>x</description>").base_url == URL


def test_page_link_selection() -> None:
    assert (
        atom_entry('<link rel="edit" href="/edit"/><link href="/page"/>').url
        == "https://example.org/page"
    )
    assert (
        atom_entry(
            '<link type="application/json" href="/j"/><link type="text/html" href="/h"/>'
        ).url
        == "https://example.org/h"
    )
    assert rss_item("<guid>https://example.org/p</guid>").url == "https://example.org/p"
    assert rss_item('<guid isPermaLink="false">https://example.org/p</guid>').url == ""
    assert rss_item("<guid>tag:1</guid>").url == ""
    assert atom_entry("<id>https://example.org/p</id>").url == "https://example.org/p"
    assert (
        atom_entry('<id>https://example.org/p</id><link href="/page"/>').url
        == "https://example.org/page"
    )
    assert atom_entry("<id>urn:uuid:1</id>").url == ""
    assert only_entry(
        '{"version": "https://jsonfeed.org/version/1", "items": [{"id": "https://example.org/p"}]}'
    ).url == ("https://example.org/p")


def test_external_content_is_file_or_page() -> None:
    film = atom_entry('<link href="/page"/><content type="video/mp4" src="/film.mp4"/>')
    assert (film.url, film.enclosures) == (
        "https://example.org/page",
        (Enclosure("https://example.org/film.mp4", "video/mp4"),),
    )
    text = atom_entry(
        '<content type="text/html" src="text" xml:base="https://other.example.org/a/"/>'
    )
    assert (text.url, text.enclosures) == ("https://other.example.org/a/text", ())
    assert (
        atom_entry('<content src="/somewhere"/><summary>x</summary>').url
        == "https://example.org/somewhere"
    )


def test_empty_href_is_xml_base() -> None:
    link = '<link rel="self" href=""/>'
    assert (
        parse_document(atom(link, attributes='xml:base="https://example.org/atom"')).links.self_url
        == "https://example.org/atom"
    )
    assert parse_document(atom(link)).links.self_url == ""


def test_feed_links() -> None:
    document = parse_document(
        rss(
            "<link>https://example.org/</link>",
            '<atom:link rel="self" href="feed.xml"/><atom:link rel="hub" href="https://a.hub/"/>'
            '<atom:link rel="hub" href="https://b.hub/"/>',
            '<atom:link rel="next" href="?page=2"/><atom:link rel="prev-archive" '
            'href="/2023.xml"/><fh:archive/>',
        )
    )
    assert document.links.site == "https://example.org/"
    assert document.links.self_url == URL
    assert document.links.hubs == ("https://a.hub/", "https://b.hub/")
    assert document.links.next_page == URL + "?page=2"
    assert document.links.prev_archive == "https://example.org/2023.xml"
    assert document.archive
    assert not document.complete
    assert parse_document(atom("<fh:complete/>")).complete


@pytest.mark.parametrize(
    ("url", "page"),
    [
        ("https://example.org/feed/", "https://example.org/feed/?paged=2"),
        ("https://example.org/?feed=rss2#top", "https://example.org/?feed=rss2&paged=2"),
        ("https://example.org/?paged=9&feed=rss2", "https://example.org/?paged=10&feed=rss2"),
        ("", ""),
    ],
)
def test_wordpress_next_page_is_guessed(url: str, page: str) -> None:
    for generator in (
        "<generator>https://wordpress.org/?v=6.4</generator>",
        '<generator uri="https://wordpress.org/">x</generator>',
    ):
        body = f"<rss version='2.0'><channel><title>a</title>{generator}</channel></rss>"
        assert parse(body.encode(), url=url).links.likely_page == page
    assert (
        parse(
            b"<rss version='2.0'><channel><generator>Hugo</generator></channel></rss>", url=url
        ).links.likely_page
        == ""
    )
