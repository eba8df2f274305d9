"""Structured logging as text and JSON."""

import io
import json
import logging

import pytest

from tidings import logs


@pytest.fixture
def lines():
    """Return a function that configures logging and returns a getter of the logged lines."""
    logger = logging.getLogger("tidings")
    before = logger.handlers[:], logger.level, logger.propagate

    def configure_logging(form, level="info"):
        stream = io.StringIO()
        logs.configure_logging(level, form, stream)
        return lambda: stream.getvalue().splitlines()

    yield configure_logging
    logger.handlers[:], logger.level, logger.propagate = before


def test_text_format_has_key_value_fields(lines):
    log_lines = lines("text")
    logs.Log("tidings.test").info(
        "poll_finished", feed=12, next=1.5, reason="posts come at any hour", url="http://a/"
    )
    (line,) = log_lines()
    assert (
        line.split(" ", 1)[1]
        == 'info poll_finished feed=12 next=1.5 reason="posts come at any hour" url=http://a/'
    )


def test_json_format_has_one_object_per_line(lines):
    log_lines = lines("json")
    logs.Log("tidings.test").warning("notice_issued", message='a "word"')
    logged = json.loads(log_lines()[0])
    assert (logged["level"], logged["event"], logged["message"]) == (
        "warning",
        "notice_issued",
        'a "word"',
    )


def test_events_below_level_are_not_logged(lines):
    log_lines = lines("text", "warning")
    logs.Log("tidings.test").info("poll_finished")
    assert log_lines() == []


@pytest.mark.parametrize("form", ["text", "json"])
def test_exception_is_logged_with_traceback(lines, form):
    log_lines = lines(form)
    try:
        raise RuntimeError("the cause")
    except RuntimeError:
        logs.Log("tidings.test").exception("poll_failed", feed=3)
    assert "RuntimeError: the cause" in "\n".join(log_lines())


@pytest.mark.parametrize("form", ["text", "json"])
def test_password_in_url_is_redacted(lines, form):
    log_lines = lines(form)
    log = logs.Log("tidings.test")
    log.warning(
        "notice_issued",
        url="https://ann:secret@a.test/feed",
        message="from https://ann:secret@a.test/feed",
    )
    try:
        raise ValueError("https://ann:secret@a.test/feed")
    except ValueError:
        log.exception("poll_failed")
    assert "ann:***@a.test" in log_lines()[0]
    assert "secret" not in str(log_lines())
