"""URL and media type cleanup in output feeds; each case was rejected by W3C's validator."""

import pytest
from lxml import etree

from tests.local_server import LocalServer
from tests.web.test_output_feeds import A, output_paths
from tidings.document import Enclosure
from tidings.web.uri_cleanup import clean_uri, media_type

RSS = """<rss version="2.0"><channel><title>Odd &amp; &lt;b&gt;old&lt;/b&gt;</title>
<link>https://a.test/</link><description/>
<item><title>1 &amp;lt; 2 &amp;amp; others</title><guid>1</guid>
<link>https://a.test/ü b?c=[1]&amp;d=5%#x#y</link>
<enclosure url="ftp://a.test/x.mp3" type="audio/mpeg" length="1"/>
<enclosure url="https://a.test/x y.mp3?z" type="mp3" length="2"/></item></channel></rss>"""


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("https://a.test/b?c=d&e=%20f#g", "https://a.test/b?c=d&e=%20f#g"),
        ("http://[::1]:80/[a]?[b]#[c]", "http://[::1]:80/%5Ba%5D?%5Bb%5D#%5Bc%5D"),
        ("https://a.test/100%", "https://a.test/100%25"),
        ("https://a.test/ä b", "https://a.test/%C3%A4%20b"),
        ("https://a.test/#a#b", "https://a.test/#a%23b"),
        ("mailto:a@b.test", "mailto:a@b.test"),
        ("", ""),
    ],
)
def test_clean_uri_follows_rfc_3986(declared, expected):
    assert clean_uri(declared) == expected
    assert clean_uri(expected) == expected


@pytest.mark.parametrize(
    ("url", "declared", "expected"),
    [
        ("https://a.test/x", "audio/mpeg", "audio/mpeg"),
        ("https://a.test/x", 'video/mp4; codecs="a, b"', 'video/mp4; codecs="a, b"'),
        ("https://a.test/x.mp3?y", "mp3", "audio/mpeg"),
        ("https://a.test/x.pdf", "", "application/pdf"),
        ("https://a.test/x", "sound", "application/octet-stream"),
    ],
)
def test_media_type_is_valid(url, declared, expected):
    assert media_type(Enclosure(url, declared)) == expected


def test_output_feeds_have_clean_urls_and_types(ada):
    with LocalServer() as server:
        server.pages["/feed"] = RSS
        ada.subscribe(f"{server.address}/feed")
    url, file = "https://a.test/%C3%BC%20b?c=%5B1%5D&d=5%25#x%23y", "https://a.test/x%20y.mp3?z"

    atom = etree.fromstring(ada.get(output_paths(ada, "atom")["All posts"]).body)
    links = [
        (link.get("rel"), link.get("href"), link.get("type"))
        for link in atom.findall(f"{A}entry/{A}link")
    ]
    assert links == [
        ("alternate", url, None),
        ("enclosure", "ftp://a.test/x.mp3", "audio/mpeg"),
        ("enclosure", file, "audio/mpeg"),
    ]

    rss = ada.get(output_paths(ada, "rss")["All posts"]).body
    (item,) = etree.fromstring(rss).iter("item")
    assert (item.findtext("link"), item.findtext("title")) == (url, "1 < 2 & others")
    assert [dict(enclosure.items()) for enclosure in item.iter("enclosure")] == [
        {"url": file, "type": "audio/mpeg", "length": "2"}
    ]
    # Escaping for plain text titles, as the RSS profile recommends.
    assert b"<title>1 &#x3C; 2 &#x26; others</title>" in rss

    (item,) = ada.get(output_paths(ada, "json")["All posts"]).json["items"]
    assert item["attachments"][1] == {"url": file, "mime_type": "audio/mpeg", "size_in_bytes": 2}
