"""The language lint accepts the project and rejects sentences of the old dialect."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import lint_language  # noqa: E402  (a script beside the package, not a part of it)

SENTENCES = [
    "A store that is being restarted is waited for: whoever comes next is told.",
    "What was skipped is told with its reason.",
    "The feed is asked again in an hour.",
    "Next look in 63 min",
    "57 feeds asked",
    "duplicates and bad rows are told with their lines",
    "its server's wishes are kept",
    "The brain decides for all feeds.",
    "So long a worker waits that found nothing although something is due.",
    "What is known of it",
    "Name and password do not belong together.",
    "Nobody has looked at a feed of ours.",
    "It is shown now and never for ever after.",
    "An entry that a neighbour has told of",
    "Half within 6.8 min, nine in ten within 15 min.",
    "Show unread entries alone",
    "a policy of its own",
    "What shall happen to entries when they arrive.",
    "Its feeds are found by themselves",
    "Invite somebody to read here",
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_sentences_of_the_old_dialect_are_found(sentence, tmp_path):
    (tmp_path / "page.md").write_text(f"# Title\n\n{sentence}\n")
    (tmp_path / "page.html").write_text(f'<p title="Check">{{{{ _("{sentence}") }}}}</p>\n')
    (tmp_path / "module.py").write_text(f'def check():\n    """{sentence}"""\n')
    (tmp_path / "comment.py").write_text(f"#: {sentence}\nX = 1\n")
    (tmp_path / "message.py").write_text(f"TEXT = {sentence!r}\n")
    for file in sorted(tmp_path.iterdir()):
        assert lint_language.check([file]), file.name


def test_plain_sentences_pass(tmp_path):
    (tmp_path / "page.md").write_text(
        "Retry a storage operation with exponential backoff while the database is unavailable.\n"
        "Next check in 63 min. The server asked us to wait 1 h 44 min (Retry-After).\n"
        "FeedEx calls a peer `neighbor`.\n"
    )
    assert lint_language.check([tmp_path]) == []


def test_sources_docs_and_interface_texts_pass():
    paths = [ROOT / name for name in lint_language.DEFAULT_PATHS]
    assert lint_language.check(paths) == []
