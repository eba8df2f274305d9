"""Poll constraints: when a feed may be polled, and the cost of a poll."""

import numpy as np
import pytest

from tests.trace_helpers import MONDAY
from tidings.document import NO_HINTS, Hints
from tidings.model import DAY_S, HOUR_S, MINUTE_S
from tidings.policy import Feeds
from tidings.policy.constraints import (
    ASSUMED_CONDITIONAL_SHARE,
    CONDITIONAL_SHARE,
    FULL_DOCUMENT,
    MIN_INTERVAL,
    NOT_MODIFIED_BYTES,
    OVERFLOW,
    OVERRIDE,
    PHASE_JITTER_SHARE,
    TTL,
    UNCONSTRAINED,
    Limits,
    apply_constraints,
    constrain,
    is_skipped,
    learn_transfer,
    marginal_bytes,
    no_facts,
    reason_of,
    skip_hours,
    stated_interval,
    usable_budget,
)
from tidings.reasons import reason

MIN_S = 15 * MINUTE_S
NO_PHASE = np.zeros(1)


def facts(**known):
    """Facts about a feed that was just polled, states no interval and answers with 304."""
    found = no_facts(1)
    for name, value in {"polled_at": MONDAY, "not_modified": 1.0, **known}.items():
        found[name] = value
    return found


def interval_of(found, limits=Limits(), phase=NO_PHASE):  # noqa: B008  # frozen dataclass
    constraints = constrain(found, phase, limits)
    return float(constraints.earliest[0] - MONDAY), int(constraints.code[0])


def stated_facts(**statements):
    zero = np.zeros(1)
    arrays = {name: np.array([value]) for name, value in statements.items()}
    stated, by = stated_interval(
        *(arrays.get(name, zero) for name in ("ttl_s", "period_s", "fresh_s"))
    )
    return {"stated_s": stated, "stated_by": by}


def test_min_interval_of_conditional_feed_is_operators_minimum():
    assert interval_of(facts()) == (MIN_S, MIN_INTERVAL)


def test_full_documents_lengthen_min_interval_by_size():
    assert interval_of(facts(not_modified=0.0)) == (HOUR_S, FULL_DOCUMENT)
    assert interval_of(facts(not_modified=0.0, document_bytes=2 * 262_144)) == (
        2 * HOUR_S,
        FULL_DOCUMENT,
    )
    assert interval_of(facts(not_modified=0.0, document_bytes=1e9)) == (4 * HOUR_S, FULL_DOCUMENT)
    assert interval_of(facts(document_bytes=1e9)) == (MIN_S, MIN_INTERVAL)  # a 304 has no size


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (5 * MINUTE_S, 5 * MINUTE_S),
        (60.0, 5 * MINUTE_S),
        (2 * HOUR_S, 2 * HOUR_S),
        (9 * DAY_S, DAY_S),
    ],
)
def test_stated_interval_applies_within_bounds(stated, expected):
    assert interval_of(facts(**stated_facts(ttl_s=stated))) == (expected, TTL)
    assert interval_of(facts(**stated_facts(ttl_s=stated), not_modified=0.0)) == (expected, TTL)


def test_longest_statement_applies_and_implausible_ones_are_ignored():
    ((stated,), (by,)) = stated_interval(*(np.array([s]) for s in (HOUR_S, 3 * HOUR_S, 2 * HOUR_S)))
    assert (stated, by) == (3 * HOUR_S, TTL + 1)
    assert stated_interval(np.array([6e10]), np.array([-60.0]), np.zeros(1))[0] == [0.0]


def test_operators_minimum_scales_other_intervals():
    limits = Limits(min_interval_s=HOUR_S)
    assert interval_of(facts(), limits) == (HOUR_S, MIN_INTERVAL)
    assert interval_of(facts(not_modified=0.0), limits) == (4 * HOUR_S, FULL_DOCUMENT)
    assert interval_of(facts(**stated_facts(fresh_s=60.0)), limits)[0] == 20 * MINUTE_S


def test_override_applies_but_not_below_stated_interval():
    assert interval_of(facts(not_modified=0.0, override_s=MIN_S)) == (MIN_S, OVERRIDE)
    assert interval_of(facts(override_s=6 * HOUR_S)) == (6 * HOUR_S, OVERRIDE)
    assert interval_of(facts(override_s=MIN_S), Limits(min_interval_s=HOUR_S)) == (HOUR_S, OVERRIDE)
    stated = stated_facts(ttl_s=2 * HOUR_S)
    assert interval_of(facts(override_s=MIN_S, **stated)) == (2 * HOUR_S, TTL)
    assert interval_of(facts(override_s=3 * HOUR_S, **stated)) == (3 * HOUR_S, OVERRIDE)


def test_overflow_shortens_interval_unless_one_is_stated():
    full = {"entries": 10, "window": 10, "mean_gap_s": 60.0}
    assert interval_of(facts(**full)) == (5 * MINUTE_S, OVERFLOW)
    assert interval_of(facts(**full, not_modified=0.0)) == (5 * MINUTE_S, OVERFLOW)
    assert interval_of(facts(**{**full, "mean_gap_s": 0.1})) == (MINUTE_S, OVERFLOW)
    assert interval_of(facts(**{**full, "entries": 9})) == (MIN_S, MIN_INTERVAL)
    # A window of 0 means that the feed drops entries by age.
    assert interval_of(facts(**{**full, "window": 0})) == (MIN_S, MIN_INTERVAL)
    assert interval_of(facts(**full, **stated_facts(ttl_s=HOUR_S))) == (HOUR_S, TTL)


def test_phase_lengthens_default_intervals_but_not_stated_ones():
    phase = np.array([0.5])
    assert interval_of(facts(), phase=phase)[0] == pytest.approx(
        MIN_S * (1 + PHASE_JITTER_SHARE / 2)
    )
    assert interval_of(facts(**stated_facts(ttl_s=HOUR_S)), phase=phase)[0] == HOUR_S


def test_retry_after_and_backoff_always_apply():
    found = facts(retry_at=MONDAY + DAY_S)
    constraints = constrain(found, NO_PHASE, Limits())
    assert constraints.earliest[0] == MONDAY + DAY_S
    assert reason_of(constraints, found, 0) == reason("retry_after", wait_s=DAY_S)
    assert (
        interval_of(facts(retry_at=MONDAY + HOUR_S, backoff_until=MONDAY + 2 * HOUR_S))[0]
        == 2 * HOUR_S
    )


def test_feed_never_polled_is_unconstrained():
    constraints = constrain(no_facts(1), NO_PHASE, Limits())
    assert (constraints.earliest[0], constraints.code[0]) == (-np.inf, UNCONSTRAINED)
    assert not reason_of(constraints, no_facts(1), 0)


def test_zero_limits_do_not_constrain():
    assert interval_of(facts(), Limits(0.0, np.inf))[0] == 0.0


# --- learning the facts ---------------------------------------------------------------------------


def after_poll(found, bytes_, *, unchanged=True, not_modified=False):
    return learn_transfer(
        found, np.array([float(bytes_)]), np.array([unchanged]), np.array([not_modified])
    )


def test_conditional_support_is_learned_from_unchanged_polls():
    found = after_poll(facts(not_modified=ASSUMED_CONDITIONAL_SHARE), 20_000, unchanged=False)
    # A changed document is no evidence.
    assert found["not_modified"][0] == pytest.approx(ASSUMED_CONDITIONAL_SHARE)
    for _ in range(2):
        found = after_poll(found, 20_000)
    assert found["not_modified"][0] < CONDITIONAL_SHARE
    for _ in range(3):
        found = after_poll(found, 0, not_modified=True)
    assert found["not_modified"][0] >= CONDITIONAL_SHARE


def test_poll_cost_is_marginal_transfer_relative_to_304():
    found = after_poll(facts(not_modified=0.0), NOT_MODIFIED_BYTES, unchanged=False)
    assert constrain(found, NO_PHASE, Limits()).cost[0] == pytest.approx(2.0)
    for _ in range(60):
        found = after_poll(found, 0, not_modified=True)
    assert constrain(found, NO_PHASE, Limits()).cost[0] == pytest.approx(1.0, abs=0.01)
    assert found["document_bytes"][0] == NOT_MODIFIED_BYTES


def test_marginal_bytes_is_derivative_of_daily_transfer():
    rate, gap_days, size = 3.0, 0.2, 50_000.0  # changes a day
    found = facts(document_bytes=size, poll_bytes=size * (1 - np.exp(-rate * gap_days)))

    def per_day(polls):
        return size * polls * (1 - np.exp(-rate / polls))

    step = 1e-4
    slope = (per_day(1 / gap_days + step) - per_day(1 / gap_days - step)) / (2 * step)
    assert marginal_bytes(found)[0] == pytest.approx(slope, rel=1e-3)


# --- hours ----------------------------------------------------------------------------------------


def test_skip_hours_and_days_are_packed_as_hours_of_week_in_gmt():
    packed = skip_hours(Hints(skip_hours=frozenset({0, 23}), skip_days=frozenset({6})))
    skipped = [hour for hour in range(168) if is_skipped(packed, MONDAY + hour * HOUR_S + 60)]
    assert skipped[:4] == [0, 23, 24, 47]
    assert skipped[-24:] == list(range(144, 168))


def test_skipping_no_hours_or_all_hours_is_ignored():
    assert skip_hours(NO_HINTS) == b""
    assert skip_hours(Hints(skip_days=frozenset(range(7)))) == b""
    assert not is_skipped(b"", MONDAY)


# --- the policy's table ---------------------------------------------------------------------------


def table(found, phase=None):
    feeds = Feeds.of(np.full(len(found), 10))
    feeds.phase[:] = 0.0 if phase is None else phase
    apply_constraints(feeds, slice(None), constrain(found, feeds.phase, Limits()))
    return feeds


def test_apply_constraints_writes_policy_table():
    found = np.concatenate(
        [
            facts(),
            facts(
                not_modified=0.0, document_bytes=NOT_MODIFIED_BYTES, poll_bytes=NOT_MODIFIED_BYTES
            ),
        ]
    )
    found["skip"][1] = np.frombuffer(skip_hours(Hints(skip_hours=frozenset({3}))), dtype=np.uint8)
    feeds = table(found)
    assert feeds.min_interval_s.tolist() == [MIN_S, HOUR_S]
    assert feeds.earliest.tolist() == [MONDAY + MIN_S, MONDAY + HOUR_S]
    assert feeds.cost.tolist() == pytest.approx([1.0, 2.0])
    assert feeds.skip.sum(axis=1).tolist() == [0, 7]
    found["skip"] = 0
    apply_constraints(feeds, np.array([1]), constrain(found[1:], feeds.phase[1:], Limits()))
    assert not feeds.skip.any()


def test_usable_budget_and_number_of_limited_feeds():
    found = np.concatenate([facts(), facts(not_modified=0.0), facts(**stated_facts(ttl_s=DAY_S))])
    feeds = table(found)
    assert usable_budget(feeds, 3 * 200.0) == (96 + 24 + 1, 3)
    assert usable_budget(feeds, 3 * 12.0) == (pytest.approx(36, rel=0.01), 1)
    assert usable_budget(Feeds.of([10, 10]), 1e6) == (pytest.approx(1e6, rel=0.01), 0)
