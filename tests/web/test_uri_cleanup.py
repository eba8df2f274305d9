"""Whatever publishers write, what we hand on is valid; each case is one that W3C's validator refused."""

import pytest
from lxml import etree

from tests.local_server import LocalServer
from tests.web.test_output_feeds import A, addresses
from tidings.document import Enclosure
from tidings.web.uri_cleanup import clean_uri, media_type

RSS = """<rss version="2.0"><channel><title>Odd &amp; &lt;b&gt;old&lt;/b&gt;</title><link>https://a.test/</link><description/>
<item><title>1 &amp;lt; 2 &amp;amp; others</title><guid>1</guid><link>https://a.test/ü b?c=[1]&amp;d=5%#x#y</link>
<enclosure url="ftp://a.test/x.mp3" type="audio/mpeg" length="1"/>
<enclosure url="https://a.test/x y.mp3?z" type="mp3" length="2"/></item></channel></rss>"""


@pytest.mark.parametrize(
    ("written", "told"),
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
def test_an_address_is_a_uri(written, told):
    assert clean_uri(written) == told
    assert clean_uri(told) == told


@pytest.mark.parametrize(
    ("url", "written", "told"),
    [
        ("https://a.test/x", "audio/mpeg", "audio/mpeg"),
        ("https://a.test/x", 'video/mp4; codecs="a, b"', 'video/mp4; codecs="a, b"'),
        ("https://a.test/x.mp3?y", "mp3", "audio/mpeg"),
        ("https://a.test/x.pdf", "", "application/pdf"),
        ("https://a.test/x", "sound", "application/octet-stream"),
    ],
)
def test_the_type_of_a_file_is_one(url, written, told):
    assert media_type(Enclosure(url, written)) == told


def test_what_is_odd_is_handed_on_in_order(ada):
    with LocalServer() as there:
        there.pages["/feed"] = RSS
        ada.subscribe(f"{there.address}/feed")
    link, file = "https://a.test/%C3%BC%20b?c=%5B1%5D&d=5%25#x%23y", "https://a.test/x%20y.mp3?z"

    atom = etree.fromstring(ada.get(addresses(ada, "atom")["All entries"]).body)
    links = [
        (one.get("rel"), one.get("href"), one.get("type"))
        for one in atom.findall(f"{A}entry/{A}link")
    ]
    assert links == [
        ("alternate", link, None),
        ("enclosure", "ftp://a.test/x.mp3", "audio/mpeg"),
        ("enclosure", file, "audio/mpeg"),
    ]

    written = ada.get(addresses(ada, "rss")["All entries"]).body
    (item,) = etree.fromstring(written).iter("item")
    assert (item.findtext("link"), item.findtext("title")) == (link, "1 < 2 & others")
    assert [dict(one.items()) for one in item.iter("enclosure")] == [
        {"url": file, "type": "audio/mpeg", "length": "2"}
    ]
    assert (
        b"<title>1 &#x3C; 2 &#x26; others</title>" in written
    )  # the RSS profile: so it is plain text

    (item,) = ada.get(addresses(ada, "json")["All entries"]).json["items"]
    assert item["attachments"][1] == {"url": file, "mime_type": "audio/mpeg", "size_in_bytes": 2}
