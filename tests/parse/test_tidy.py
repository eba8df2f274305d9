"""Tidy HTML is made safe without the sanitiser, and comes out as if it had been."""

import random

import pytest

from tidings.parse.sanitise import _ADDED, _ATTRIBUTES, clean_html, sanitise
from tidings.parse.tidy import tidy

BASE = "https://blog.example/posts/1"
LINK = '<a href="https://blog.example/x?a=1&amp;b=%20#c">'
#: Whole and broken, tidy and hostile; put together at random, they make what is almost tidy, which is where mistakes hide.
PIECES = [
    *("<p>", "</p>", "<em>", "</em>", "<b>", "</b>", "<code>", "</code>", "<span class='x'>", "</span>", "<ul>", "</ul>"),
    *("<ol start='2'>", "</ol>", "<li>", "</li>", "<li value='3'>", '<div id="d">', "</div>", "<blockquote>", "</blockquote>"),
    *("<h2>", "</h2>", "<h3 title='t'>", "</h3>", LINK, "</a>", "<a>", "<a name='x'>", "<br>", "<br/>", "<br />", "</br>"),
    *("<img src='http://127.0.0.1:80/i.png' alt=''>", '<img alt="it\'s" src="https://x.example/i.jpg" onerror="x()"/>'),
    *(
        "<img src='/i.png'>",
        "<img src='i.png' width='1' height='1'>",
        "<a href='javascript:alert(1)'>",
        "<a href=' https://x.y'>",
    ),
    *("<a href='https://x.y' href='javascript:x'>", "<a href='https://1.2.3.999/'>", "<a href='https://a.b:99999/'>"),
    *("<a href='https://xn--a.example/'>", "<a href='https://a.b/\\t'>", "<a href='//a.b'>", '<a href="https://a.b/\'">'),
    *(
        "<a title='a &lt; b' href='mailto:a@b.example'>",
        "<p/>",
        "<P>",
        "<p >",
        "</p >",
        "< p>",
        "<p title=x>",
        "<p\ntitle='x'>",
    ),
    *(
        "<p title='\"'>",
        "<p title='>'>",
        "<p lang='de' dir='ltr' onclick='x'>",
        "<q>",
        "</q>",
        "<u>",
        "</u>",
        "<sup>",
        "</sup>",
    ),
    *(
        "<script>",
        "</script>",
        "<style>",
        "</style>",
        "<svg>",
        "<math>",
        "<table>",
        "<td>",
        "<pre>\n",
        "</pre>",
        "<!-- ",
        "-->",
    ),
    *("<!doctype html>", "<?x ?>", "<![CDATA[", "]]>", "<x-y>", "</x-y>", "<hr>", "<title>", "<textarea>", "<noscript>", "<"),
    *(
        ">",
        "&",
        "&amp;",
        "&lt;",
        "&gt;",
        "&nbsp;",
        "&quot;",
        "&#60;",
        "&ampx",
        "&notit;",
        "\xa0",
        "\r\n",
        "\n",
        " ",
        "\x00",
        "\x0b",
    ),
    *("\ufeff", "text", "ä", "'", '"', "=", "/", "<font>", "</font>", "<b ", "\u2028", "<p\x0btitle='x'>", "<em/>", "<strong>"),
]
OPEN_AND_CLOSE = [("<p>", "</p>"), ("<em>", "</em>"), ("<ul><li>", "</li></ul>"), (LINK, "</a>"), ("<div>", "</div>")]
OPEN_AND_CLOSE += [("<li>", "</li>"), ("<blockquote>", "</blockquote>"), ("<h1>", "</h1>"), ("<ol>", "</ol>"), ("<b>", "</b>")]


def fragment(dice: random.Random, depth: int = 0) -> str:
    """Mostly well-nested, with something else thrown in."""
    parts = []
    for _ in range(dice.randint(0, 4)):
        if depth < 6 and dice.random() < 0.7:
            before, after = dice.choice(OPEN_AND_CLOSE)
            parts.append(before + fragment(dice, depth + 1) + after)
        else:
            parts.append(dice.choice(PIECES) if dice.random() < 0.1 else dice.choice(["words", " ", "&amp;", "<br>", "é"]))
    return "".join(parts)


def test_what_is_tidy_comes_out_as_the_sanitiser_would_have_it() -> None:
    dice, taken = random.Random(0), 0
    for number in range(9_000):
        html = fragment(dice) if number % 4 else "".join(dice.choices(PIECES, k=dice.randint(1, 6)))
        tidied = tidy(html, _ATTRIBUTES, _ADDED)
        if tidied is not None:
            taken += "<" in html
            assert tidied == sanitise(html, BASE), repr(html)
    assert taken > 700  # else this has shown nothing


@pytest.mark.parametrize("piece", [piece for piece in PIECES if piece[:1] == "<" and piece[-1:] == ">"])
def test_each_piece_by_itself_and_closed(piece: str) -> None:
    for html in (piece, f"{piece}x</{piece.strip('</>').split(' ')[0]}>", f"<p>{piece}</p>", f"<ul>{piece}</li></ul>"):
        tidied = tidy(html, _ATTRIBUTES, _ADDED)
        assert tidied is None or tidied == sanitise(html, BASE)


def test_a_post_as_programs_write_it_is_taken() -> None:
    post = f'<div class="c"><p>One, <em>two</em>. {LINK}three</a>.</p><ul><li>4</li><li>5</li></ul></div><p>é&nbsp;<br/>x</p>'
    tidied = tidy(post, _ATTRIBUTES, _ADDED)
    assert tidied == clean_html(post, BASE) == sanitise(post, BASE)
