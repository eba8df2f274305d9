"""Validators: storage, replacement, and when a full request is sent instead."""

from tests.fetch.origin_server import MONDAY
from tidings.fetch.validators import NO_VALIDATORS, Validators
from tidings.model import DAY_S

URL = "https://example.org/feed"
KNOWN = Validators('"1"', "Monday", URL, MONDAY)


def test_no_validators_are_sent_if_none_are_known() -> None:
    assert NO_VALIDATORS.for_request(URL, MONDAY) == (None, None)


def test_validators_are_sent_only_to_their_url() -> None:
    assert KNOWN.for_request(URL, MONDAY) == ('"1"', "Monday")
    assert KNOWN.for_request(URL + "?", MONDAY) == (None, None)


def test_document_replaces_both_validators_and_304_only_those_it_has() -> None:
    assert KNOWN.after_document(None, "Tuesday", URL, MONDAY + 5) == Validators(
        None, "Tuesday", URL, MONDAY + 5
    )
    assert KNOWN.after_304('"2"', None) == Validators('"2"', "Monday", URL, MONDAY)
    assert KNOWN.after_304(None, "Tuesday") == Validators('"1"', "Tuesday", URL, MONDAY)
    assert KNOWN.after_304(None, "") is KNOWN


def test_full_request_after_four_gaps_and_at_least_eight_days() -> None:
    hourly, weekly = DAY_S / 24, 7 * DAY_S
    assert not KNOWN.needs_full_request(MONDAY + 7.9 * DAY_S, hourly)
    assert KNOWN.needs_full_request(MONDAY + 8 * DAY_S, hourly)
    assert not KNOWN.needs_full_request(MONDAY + 27 * DAY_S, weekly)
    assert KNOWN.needs_full_request(MONDAY + 28 * DAY_S, weekly)
    assert not KNOWN.needs_full_request(MONDAY + 29 * DAY_S)
    assert KNOWN.needs_full_request(MONDAY + 30 * DAY_S)


def test_full_request_is_sent_once_and_keeps_validators() -> None:
    later = MONDAY + 40 * DAY_S
    assert KNOWN.for_request(URL, later) == (None, None)
    validators = KNOWN.after_unconditional_request(later)
    assert validators.for_request(URL, later + 60) == ('"1"', "Monday")
