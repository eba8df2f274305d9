"""Words are found as people mean them, in every script, and no longer than they stand in an entry."""

import random
import sqlite3
import sys
import unicodedata

import pytest

from tests.store.conftest import entry
from tests.store.schema_versions import CONSTRAINT_FACTS_VERSION, DROP_CONSTRAINT_FACTS
from tidings.store.search import normalize_texts, tokenize

#: With what is typed, and whether it is found.
TEXTS = [
    ("Ein Café in Łódź, ÄPFEL", ["cafe", "CAFÉ", "łódź", "apfel"], ["caf", "lodz"]),
    ("ΛΌΓΟΣ και λόγος", ["λογος", "ΛΟΓΟΣ", "λόγος"], ["λογο"]),
    ("Съешь ещё этих булок", ["съешь", "ЕЩЕ", '"этих булок"'], ["еш"]),
    ("cafe\u0301 cre\u0300me", ["café", '"creme"'], ["cr"]),  # accents as signs of their own
    ("Donaudampf\u00adschiff", ["donaudampfschiff"], ["schiff"]),  # a hyphen that is not shown
    ("“Quoted”—so…\u00a0so", ["quoted", "so", '"so so"'], ["quotedso"]),
    ("東京タワーの夜景", ["東京", "タワー", "夜景", '"東京タワー"'], ["京東", "夜の"]),
    ("我爱北京天安门", ["北京", "天安门"], ["京北"]),
    ("สวัสดีชาวโลก", ["ชาว", "สวัสดี"], ["ดีส"]),
    ("हिन्दी में समाचार", ["हिन्दी", "समाचार"], ["हिन"]),
    ("한국어 뉴스", ["한국어", "한국*"], ["국어"]),
    ("released🎉today", ["released", "today", "🎉"], ["releasedtoday"]),
    ("I ❤\ufe0fcats 1\ufe0f\u20e3st", ["cats", '"i cats"', "1st"], ["❤"]),
    ("İstanbul'da", ["istanbul", "da"], ["stanbul"]),
    ("snake_case and C3PO", ["snake", "case", "c3po"], ["c3"]),
]


@pytest.mark.parametrize(("text", "found", "missed"), TEXTS, ids=[text for text, *_ in TEXTS])
def test_words_of_every_script(store, text, found, missed):
    store.record_poll(
        store.subscribe(),
        new=[entry(1, text=f"before {text} after"), entry(2, text="another"), entry(3, title=text)],
    )
    for query in found:
        assert store.titles(search=query) == [text, "Post 1"], query
    for query in missed:
        assert store.titles(search=query) == [], query


def test_texts_are_folded_the_same_alone_and_among_others():
    rng = random.Random(3)
    letters = [
        "a",
        "B",
        " ",
        "é",
        "Σ",
        "東",
        "ส",
        "🎉",
        "\u0301",
        "\u00ad",
        "’",
        "\0",
        "ß",
        "й",
        "\x01",
        "\ud83c",
    ]
    texts = ["".join(rng.choices(letters, k=rng.randint(0, 30))) for _ in range(500)] * 20
    assert list(map(tokenize, normalize_texts(texts))) == [
        tokenize(normalize_texts([text])[0]) for text in texts
    ]


def test_folding_what_is_folded_changes_no_word():
    codes = [
        code
        for code in range(0x80, sys.maxunicode + 1)
        if unicodedata.category(chr(code)) not in ("Cn", "Co")
    ]
    once = normalize_texts([f"a{chr(code)}b" for code in codes])
    for code, first, second in zip(codes, once, normalize_texts(once), strict=True):
        assert tokenize(second) == tokenize(first), hex(code)


def test_every_letter_is_kept_and_no_sign_of_writing():
    """By another road: Unicode's own kinds. What cannot be told from them are the hyphens and accents that vanish."""
    codes = range(0x80, 0x10000)
    for code, text in zip(
        codes, normalize_texts([f"a{chr(code)}b" for code in codes]), strict=True
    ):
        kind = unicodedata.category(chr(code))
        if kind[0] in "PSZ":
            assert tokenize(text) == ["a", "b"], hex(code)
        elif kind[0] in "LN":
            assert len("".join(tokenize(text))) == 3, hex(code)


def index_of(store):
    """What stands in SQLite's index: every word with the entries that have it."""
    with sqlite3.connect(store.location) as db:
        db.execute("CREATE VIRTUAL TABLE temp.told USING fts5vocab (main, search, instance)")
        terms = db.execute("SELECT term, doc, col, offset FROM told ORDER BY 1, 2, 3, 4").fetchall()
    db.close()
    return terms


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_what_is_changed_or_forgotten_leaves_nothing_in_the_index(store):
    feed = store.subscribe()
    old = [
        entry(n, title=f"Größe {n}", text=f"Füße <b>&amp;</b> Straße {n} 東京") for n in range(1, 5)
    ]
    store.record_poll(feed, new=old[:1])
    before = index_of(store)
    assert {word for word, *_ in before} == {"große", "fuße", "straße", "1", "東", "京"}
    store.record_poll(feed, new=old[1:])
    store.record_poll(
        feed,
        changed=tuple(entry(n, title="Neu", text="anders", digest=b"2") for n in (2, 3)),
        document=("id:1",),
    )
    assert store.titles(search="straße") == ["Größe 4", "Größe 1"]
    assert store.titles(search="anders") == ["Neu", "Neu"]
    store.clock.forward(days=100)
    assert store.apply_retention(days=1, min_entries=0).entries == 3
    assert index_of(store) == before
    assert store.check() == []


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_file_whose_index_held_the_texts_is_brought_up_to_date(open_store, location, monkeypatch):
    with open_store() as store:
        store.record_poll(
            store.subscribe(), new=[entry(1, title="Größe", text="Straße 東京"), entry(2)]
        )
        expected = index_of(store)
    with sqlite3.connect(location) as db:
        db.execute("DROP TABLE search")
        db.execute(
            "CREATE VIRTUAL TABLE search USING fts5 (title, body, columnsize=0, tokenize='unicode61')"
        )
        db.execute(
            "INSERT INTO search (rowid, title, body) VALUES (1, 'Größe', 'Straße 東京'), (2, 'Post 2', '')"
        )
        db.execute("CREATE INDEX stories_at ON stories (at)")
        for statement in DROP_CONSTRAINT_FACTS:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {CONSTRAINT_FACTS_VERSION - 2}")
    db.close()
    with open_store() as store:
        assert index_of(store) == expected
        assert store.titles(search="京") == ["Größe"]
        assert store.check() == []


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_database_whose_words_were_folded_otherwise_is_brought_up_to_date(open_store):
    def as_before(db):
        db.command("UPDATE entries SET words = '''λογος'':1,7 ''και'':2'::tsvector")
        db.command("CREATE INDEX stories_at ON stories (at)")
        for statement in DROP_CONSTRAINT_FACTS:
            db.command(statement)
        db.execute("UPDATE tidings_version SET version = ?", (CONSTRAINT_FACTS_VERSION - 2,))

    with open_store() as store:
        store.record_poll(store.subscribe(), new=[entry(1)])
        store.write(as_before)
    with open_store() as store:
        for query in ("λόγος", '"ΛΟΓΟΣ και"'):
            assert store.titles(search=query) == ["Post 1"]
