"""Lines with steady keys, for people and for programs."""

import io
import json
import logging

import pytest

from tidings import logs


@pytest.fixture
def lines():
    """``lines("text")`` sets up logging and gives what is said from then on, a line at a time."""
    logger = logging.getLogger("tidings")
    before = logger.handlers[:], logger.level, logger.propagate

    def configure_logging(form, level="info"):
        stream = io.StringIO()
        logs.configure_logging(level, form, stream)
        return lambda: stream.getvalue().splitlines()

    yield configure_logging
    logger.handlers[:], logger.level, logger.propagate = before


def test_fields_are_keys_and_values(lines):
    log_lines = lines("text")
    logs.Log("tidings.test").info(
        "polled", feed=12, next=1.5, reason="posts come at any hour", url="http://a/"
    )
    (line,) = log_lines()
    assert (
        line.split(" ", 1)[1]
        == 'info polled feed=12 next=1.5 reason="posts come at any hour" url=http://a/'
    )


def test_or_an_object_on_each_line(lines):
    log_lines = lines("json")
    logs.Log("tidings.test").warning("notice", says='a "word"')
    logged = json.loads(log_lines()[0])
    assert (logged["level"], logged["event"], logged["says"]) == ("warning", "notice", 'a "word"')


def test_what_is_below_the_level_is_not_said(lines):
    log_lines = lines("text", "warning")
    logs.Log("tidings.test").info("polled")
    assert log_lines() == []


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_unexpected_error_has_its_traceback(lines, form):
    log_lines = lines(form)
    try:
        raise RuntimeError("why")
    except RuntimeError:
        logs.Log("tidings.test").exception("failed", feed=3)
    assert "RuntimeError: why" in "\n".join(log_lines())


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_password_in_an_address_is_not_written(lines, form):
    log_lines = lines(form)
    log = logs.Log("tidings.test")
    log.warning(
        "notice", url="https://ann:secret@a.test/feed", says="from https://ann:secret@a.test/feed"
    )
    try:
        raise ValueError("https://ann:secret@a.test/feed")
    except ValueError:
        log.exception("a poll was not finished")
    assert "ann:***@a.test" in log_lines()[0]
    assert "secret" not in str(log_lines())
