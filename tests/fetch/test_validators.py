"""Validators are kept, replaced together, sent to their own address alone, and doubted seldom."""

from tests.fetch.origin_server import MONDAY
from tidings.fetch.validators import NO_VALIDATORS, Validators
from tidings.model import DAY_S

URL = "https://example.org/feed"
KNOWN = Validators('"1"', "Monday", URL, MONDAY)


def test_nothing_known_nothing_sent() -> None:
    assert NO_VALIDATORS.for_request(URL, MONDAY) == (None, None)


def test_sent_to_their_own_address_alone() -> None:
    assert KNOWN.for_request(URL, MONDAY) == ('"1"', "Monday")
    assert KNOWN.for_request(URL + "?", MONDAY) == (None, None)


def test_a_document_replaces_both_a_304_only_what_it_names() -> None:
    assert KNOWN.after_document(None, "Tuesday", URL, MONDAY + 5) == Validators(
        None, "Tuesday", URL, MONDAY + 5
    )
    assert KNOWN.after_304('"2"', None) == Validators('"2"', "Monday", URL, MONDAY)
    assert KNOWN.after_304(None, "Tuesday") == Validators('"1"', "Tuesday", URL, MONDAY)
    assert KNOWN.after_304(None, "") is KNOWN


def test_silence_is_credible_for_four_usual_gaps_and_at_least_eight_days() -> None:
    hourly, weekly = DAY_S / 24, 7 * DAY_S
    assert not KNOWN.needs_full_request(MONDAY + 7.9 * DAY_S, hourly)
    assert KNOWN.needs_full_request(MONDAY + 8 * DAY_S, hourly)
    assert not KNOWN.needs_full_request(MONDAY + 27 * DAY_S, weekly)
    assert KNOWN.needs_full_request(MONDAY + 28 * DAY_S, weekly)
    assert not KNOWN.needs_full_request(MONDAY + 29 * DAY_S)
    assert KNOWN.needs_full_request(MONDAY + 30 * DAY_S)


def test_doubt_is_voiced_once_and_the_validators_are_not_forgotten() -> None:
    later = MONDAY + 40 * DAY_S
    assert KNOWN.for_request(URL, later) == (None, None)
    request = KNOWN.after_unconditional_request(later)
    assert request.for_request(URL, later + 60) == ('"1"', "Monday")
