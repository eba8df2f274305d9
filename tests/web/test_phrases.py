"""Old interface phrases are gone: templates, JavaScript and message strings of src."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src" / "tidings"

#: Parts of old texts, found anywhere in a text (case and whitespace do not matter).
OLD_PHRASES = (
    # everywhere
    "next look",
    "look now",
    "last looks",
    "looks and decisions",
    "feeds asked",
    "not asked any more",
    "would be asked sooner",
    "between polls is the least",
    "bad rows are told",
    "is told with its reason",
    # setup, welcome, demo
    "the same again",
    "no feeds at hand",
    "miniature blogosphere",
    "a week in twenty minutes",
    "demo world",
    "a world is being made",
    "bring your feeds along",
    "found by themselves",
    # import, add
    "one address on each line",
    "is followed now",
    "are followed now",
    "passed over",
    "known already",
    "you follow %",
    "you no longer follow",
    "this is not a feed, and names none",
    "give the address of the feed itself",
    "cannot be resolved: domain name not found",
    "many at once",
    # empty states, list, help
    "you follow nothing yet",
    "you have read everything",
    "what arrives appears by itself",
    "nothing has these words",
    "nothing is open",
    ">+{{",
    "unread entries alone",
    "unread alone, or all",
    "show what has arrived",
    "these keys",
    "close what is open",
    # article, search
    "fetch the whole article",
    "the article cannot be had",
    "sound of this entry",
    "film of this entry",
    "{{ host(file.url) }}: {{ file.type",
    "keep this search",
    "forget this search",
    # feeds, feed page
    "no feed of yours",
    "what is known of it",
    "its document holds",
    "at that pace it shows",
    "expected by the next",
    "how much it matters to you",
    "always early",
    "can wait",
    "leaves its looks to others",
    "that have only the beginning",
    "why then",
    "it is not looked at by itself",
    "the reason stands below",
    "draw over a part",
    "told by a neighbour",
    "sent by its hub",
    # settings
    "apps and feeds out",
    "feeds out",
    "new addresses",
    "as the system",
    "ordered by",
    "entries at once",
    "fold stories that several feeds tell",
    "the second arrives as read",
    "fetch pictures through this service",
    "where to, one address",
    "all that is new is posted to",
    "signed with this secret",
    "what did not arrive",
    "everything was taken",
    "present one",
    "the new one again",
    "take the token of",
    "shown now and never again",
    "log out %(name)s",
    # users, rules
    "invite somebody",
    "first password",
    "make a reader",
    "with all that is theirs",
    "never seen",
    "what shall happen to entries",
    "conditions of a rule must hold",
    "if it shall tag",
    "a name for it, if you like",
    "alert me at once",
    "the rule holds for what arrives",
    "the rule is gone",
    # timing, statistics, lab, peers
    "how late the news reached you",
    "what a bigger budget would buy",
    "half were here within",
    "nine in ten within",
    "and waited for you",
    "feeds that need a look",
    "hosts that limit us",
    "left alone until",
    "requests saved against asking hourly",
    "missed and repaired",
    "read each day",
    "take it along",
    "like those of",
    "is not exchanged with anybody",
    "set exchange.enabled to begin",
    # errors, login, offline
    "begin at the start",
    "does not know itself by that name",
    "do not belong together",
    "articles are there again",
    # command line
    "follow the feed at",
    "those who read here",
    "let name read here",
    "so many at most",
    "of this feed alone",
    "that arrived since",
    "that hold all the words",
    "the whole: budget and spending",
    "posts thought lost",
    "asked not to be asked",
    "times as fast as life",
    "another seed is another world",
)

#: Old labels that are common words: compared with complete interface texts only.
OLD_LABELS = frozenset(
    {
        "After",
        "Before",
        "Begin",
        "Charged",
        "Colours",
        "End it",
        "Enter",
        "For you",
        "Keys",
        "Leave",
        "Manage",
        "Name",
        "New one",
        "Not here",
        "People",
        "Take back",
        "Your name",
        "came",
        "given up",
        "half in",
        "you read",
    }
)

TEMPLATES = sorted(SRC.rglob("templates/*.html"))
SCRIPTS = sorted(SRC.rglob("static/*.js"))
MODULES = sorted(SRC.rglob("*.py"))
GETTEXT = re.compile(r"""\b(?:_|gettext)\(\s*(["'])(.*?)\1""", re.DOTALL)
NGETTEXT = re.compile(r"""\bngettext\(\s*(["'])(.*?)\1\s*,\s*(["'])(.*?)\3""", re.DOTALL)


def normalize(text: str) -> str:
    return " ".join(text.split()).casefold()


def docstrings(tree: ast.AST) -> set[int]:
    """Return the ids of the docstring nodes of a module."""
    found = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            found.add(id(body[0].value))
    return found


def message_strings(path: Path) -> Iterator[str]:
    """Yield the string literals of a module that contain a space, without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    excluded = docstrings(tree)
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and " " in text and id(node) not in excluded:
            yield text


def gettext_strings(path: Path) -> Iterator[str]:
    """Yield the texts that a template or module passes to gettext."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        for match in GETTEXT.finditer(source):
            yield match[2]
        for match in NGETTEXT.finditer(source):
            yield from (match[2], match[4])
        return
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        if node.func.id in ("_", "n_"):
            for argument in node.args[:2]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value


@pytest.fixture(scope="module")
def interface_texts() -> list[tuple[Path, str]]:
    texts = [(path, normalize(path.read_text(encoding="utf-8"))) for path in TEMPLATES + SCRIPTS]
    texts += [(path, normalize(text)) for path in MODULES for text in message_strings(path)]
    return texts


def test_sources_are_found():
    assert len(TEMPLATES) > 20
    assert len(SCRIPTS) > 5
    assert len(MODULES) > 50


@pytest.mark.parametrize("phrase", OLD_PHRASES)
def test_old_phrase_is_gone(interface_texts, phrase):
    assert [str(path.relative_to(SRC)) for path, text in interface_texts if phrase in text] == []


def test_old_labels_are_gone():
    found = {
        (str(path.relative_to(SRC)), text)
        for path in TEMPLATES + MODULES
        for text in gettext_strings(path)
        if text in OLD_LABELS
    }
    assert found == set()
