"""Full-text search: normalization, tokenizer, scripts without spaces, index maintenance."""

import random
import sqlite3
import sys
import unicodedata

import pytest

from tests.store.conftest import entry
from tests.store.schema_versions import CONSTRAINT_FACTS_VERSION, UNDO_CONSTRAINT_FACTS
from tidings.store.search import normalize_texts, tokenize

#: Text, queries that find it, queries that do not.
TEXTS = [
    ("Ein Café in Łódź, ÄPFEL", ["cafe", "CAFÉ", "łódź", "apfel"], ["caf", "lodz"]),
    ("ΛΌΓΟΣ και λόγος", ["λογος", "ΛΟΓΟΣ", "λόγος"], ["λογο"]),
    ("Съешь ещё этих булок", ["съешь", "ЕЩЕ", '"этих булок"'], ["еш"]),
    ("cafe\u0301 cre\u0300me", ["café", '"creme"'], ["cr"]),  # combining accents
    ("Donaudampf\u00adschiff", ["donaudampfschiff"], ["schiff"]),  # soft hyphen
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
def test_search_in_many_scripts(store, text, found, missed):
    store.record_poll(
        store.subscribe(),
        new=[entry(1, text=f"before {text} after"), entry(2, text="another"), entry(3, title=text)],
    )
    for query in found:
        assert store.titles(search=query) == [text, "Post 1"], query
    for query in missed:
        assert store.titles(search=query) == [], query


def test_normalization_does_not_depend_on_batch():
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


def test_normalization_is_idempotent():
    codes = [
        code
        for code in range(0x80, sys.maxunicode + 1)
        if unicodedata.category(chr(code)) not in ("Cn", "Co")
    ]
    once = normalize_texts([f"a{chr(code)}b" for code in codes])
    for code, first, second in zip(codes, once, normalize_texts(once), strict=True):
        assert tokenize(second) == tokenize(first), hex(code)


def test_letters_are_kept_and_punctuation_separates():
    """Compares with Unicode categories, which do not say which hyphens and accents are removed."""
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
    """Content of SQLite's index: every word with its entries and positions."""
    with sqlite3.connect(store.location) as db:
        db.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab (main, search, instance)")
        terms = db.execute(
            "SELECT term, doc, col, offset FROM vocabulary ORDER BY 1, 2, 3, 4"
        ).fetchall()
    db.close()
    return terms


@pytest.mark.parametrize("location", ["sqlite"], indirect=True)
def test_changed_and_deleted_entries_leave_the_index(store):
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


@pytest.mark.parametrize("location", ["sqlite"], indirect=True)
def test_migration_rebuilds_the_search_index(open_store, location, monkeypatch):
    with open_store() as store:
        store.record_poll(
            store.subscribe(), new=[entry(1, title="Größe", text="Straße 東京"), entry(2)]
        )
        expected = index_of(store)
    with sqlite3.connect(location) as db:
        db.execute("DROP TABLE search")
        db.execute(
            "CREATE VIRTUAL TABLE search "
            "USING fts5 (title, body, columnsize=0, tokenize='unicode61')"
        )
        db.execute(
            "INSERT INTO search (rowid, title, body) "
            "VALUES (1, 'Größe', 'Straße 東京'), (2, 'Post 2', '')"
        )
        for statement in UNDO_CONSTRAINT_FACTS:
            db.execute(statement)
        db.execute("CREATE INDEX stories_at ON stories (at)")
        db.execute(f"PRAGMA user_version = {CONSTRAINT_FACTS_VERSION - 2}")
    db.close()
    with open_store() as store:
        assert index_of(store) == expected
        assert store.titles(search="京") == ["Größe"]
        assert store.check() == []


@pytest.mark.parametrize("location", ["postgres"], indirect=True)
def test_migration_normalizes_final_sigma(open_store):
    def as_before(db):
        db.command("UPDATE entries SET words = '''λογος'':1,7 ''και'':2'::tsvector")
        for statement in UNDO_CONSTRAINT_FACTS:
            db.command(statement)
        db.command("CREATE INDEX stories_at ON stories (at)")
        db.execute("UPDATE tidings_version SET version = ?", (CONSTRAINT_FACTS_VERSION - 2,))

    with open_store() as store:
        store.record_poll(store.subscribe(), new=[entry(1)])
        store.write(as_before)
    with open_store() as store:
        for query in ("λόγος", '"ΛΟΓΟΣ και"'):
            assert store.titles(search=query) == ["Post 1"]
