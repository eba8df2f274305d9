"""`price` policy: parts against independent computations, behavior on simple traces."""

import io
import math

import numpy as np
import pytest

from tests.trace_helpers import MONDAY, document, poisson_trace, trace_of
from tidings.errors import UsageError
from tidings.lab.compare import compare
from tidings.lab.simulate import budget_polls, simulate
from tidings.model import DAY_S, HOUR_S, Documents
from tidings.policy import Feeds, make_policy
from tidings.policy.price.controller import SLOT_S, SLOTS_PER_DAY, SLOTS_PER_WEEK, PriceController
from tidings.policy.price.lookahead import optimal_steady_gap
from tidings.policy.price.overflow_loss import expected_loss, gamma_cdf
from tidings.policy.price.rate_model import RateModel
from tidings.policy.price.value_function import value_decrease
from tidings.policy.price.weekly_profile import (
    STRENGTH_CANDIDATES,
    SharedProfiles,
    TemperedCounts,
    fit_profiles,
    fit_strength_prior,
    hours_between,
    leave_one_out_strengths,
    mass_between,
    minute_factor,
    responsibilities,
    unobserved_posts,
    weekly_profile,
)
from tidings.reasons import render


def poisson_loss(mean, window):
    """E (N - S)+ summed term by term."""
    terms = range(int(mean + 12 * math.sqrt(mean) + 30))
    weights = [math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in terms]
    return sum(max(k - window, 0) * weight for k, weight in zip(terms, weights, strict=True))


@pytest.mark.parametrize("mean", [0.5, 3.0, 9.0, 15.0, 40.0])
@pytest.mark.parametrize("window", [1, 5, 12, 30])
def test_expected_loss_of_poisson_count(mean, window):
    lost = expected_loss(np.array([mean]), np.array([float(window)]), np.ones(1))[0]
    assert lost == pytest.approx(poisson_loss(mean, window), abs=0.02 * mean)


def test_expected_loss_grows_with_fano_factor():
    lost = expected_loss(np.full(3, 8.0), np.full(3, 12.0), np.array([1.0, 2.0, 4.0]))
    assert lost[0] < lost[1] < lost[2]


def test_gamma_cdf_with_shape_1_is_exponential():
    # P(1, x) = 1 - e^-x.
    x = np.linspace(0.05, 6, 50)
    assert gamma_cdf(np.ones(50), x) == pytest.approx(1 - np.exp(-x), abs=0.012)


def test_steady_gap_without_losses_is_square_root_rule():
    rate_per_day, scale = np.array([0.2, 3.0, 50.0]), np.array([4.0, 2.0, 1.0])
    cost, gap = optimal_steady_gap(
        rate_per_day, np.full(3, np.inf), np.ones(3), np.ones(3), scale, 1.0
    )
    assert gap == pytest.approx(np.sqrt(2 / (scale * rate_per_day)))
    assert cost == pytest.approx(np.sqrt(2 * scale * rate_per_day))


def test_small_window_shortens_steady_gap_and_tiny_window_stops_polling():
    rate_per_day, scale = np.array([20.0, 20.0, 20.0]), np.array([0.3, 0.3, 0.05])
    _, gap = optimal_steady_gap(
        rate_per_day, np.array([np.inf, 8.0, 1.0]), np.ones(3), np.ones(3), scale, 1.0
    )
    assert gap[1] < gap[0]
    assert gap[2] == np.inf  # one post per poll is not worth the price


def test_unavoidable_loss_of_large_batches_does_not_shorten_gap():
    rate_per_day, window, fano, scale = (
        np.full(2, 20.0),
        np.full(2, 12.0),
        np.ones(2),
        np.full(2, 1.0),
    )
    _, gap = optimal_steady_gap(rate_per_day, window, fano, np.array([1.0, 20.0]), scale, 1.0)
    assert gap[1] > gap[0]


def test_value_decreases_uniformly_for_uniform_profile():
    for gap in (8.0, 2.0, 0.5, 0.2, 0.05):
        decrease = value_decrease(np.ones((1, 168)), np.array([2 / gap**2]))
        assert decrease[0] == pytest.approx(np.full(168, np.sqrt(2) / 24), rel=0.06)


def test_value_decrease_follows_profile():
    profile = np.tile(np.repeat([0.1, 1.9], 12), 7)[None, :]
    day = value_decrease(profile, np.array([2 / 0.15**2]))[0].reshape(7, 24).mean(axis=0)
    assert day[14:22].mean() > 2 * day[2:10].mean()  # busy hours cost more than quiet ones


def test_value_of_feed_with_one_posting_hour_is_one_poll_per_day():
    """The daily cost is one poll plus the delay of the posts within their hour."""
    profile = np.zeros((1, 168))
    profile[0, 9::24] = 24.0
    rho = 4.0
    decrease = value_decrease(profile, np.array([rho]))[0] * np.sqrt(rho)
    assert decrease.sum() / 7 == pytest.approx(1 + rho / 48, rel=0.01)
    assert decrease.reshape(7, 24)[:, 9].sum() > 0.99 * decrease.sum()


def profile_of(hours, shared_profiles):
    """Return the weekly profile of feeds without bursts, with at most one post per day."""
    total = hours.sum(axis=1)
    evidence = TemperedCounts.of(hours, total, total)
    z = responsibilities(evidence.hours, shared_profiles)
    return weekly_profile(
        evidence, z, leave_one_out_strengths(evidence, z, shared_profiles)[0], shared_profiles
    )


def test_profile_is_own_with_many_posts_and_the_clusters_without():
    center = np.full((1, 168), 1 / 168)
    center[0, :24] *= 2
    center /= center.sum()
    own = np.zeros((2, 168))
    own[0, 9::24] = 10_000
    profile = profile_of(own, SharedProfiles(center, np.ones(1)))
    assert profile[0].reshape(7, 24)[:, 9].sum() / profile[0].sum() > 0.99
    of_day = profile[1].reshape(7, 24).sum(axis=0)
    assert of_day == pytest.approx(np.full(24, of_day.mean()))
    assert profile[1].reshape(7, 24).sum(axis=1)[0] > 1.5 * profile[1].reshape(7, 24).sum(axis=1)[1]
    assert profile.mean(axis=1) == pytest.approx(np.ones(2))


def test_profile_of_regular_feed_is_sharp_among_irregular_feeds():
    rng = np.random.default_rng(4)
    hours = rng.multinomial(60, np.full(168, 1 / 168), size=40).astype(float)
    hours[0] = 0
    hours[0, 18::24] = [8, 9, 8, 9, 9, 8, 9]
    profile = profile_of(hours, fit_profiles(hours))
    of_day = profile.reshape(40, 7, 24).mean(axis=1)
    assert of_day[0, 18] / 24 > 0.95
    assert np.abs(of_day[1:] - 1).mean() < 0.25


def test_strength_prior_is_large_for_similar_feeds():
    rng = np.random.default_rng(0)
    profile = rng.dirichlet(np.full(168, 5.0))
    similar = rng.multinomial(200, profile, size=300).astype(float)
    different = np.array(
        [rng.multinomial(200, rng.dirichlet(np.full(168, 0.05))) for _ in range(300)], dtype=float
    )

    def mean_strength(hours):
        rows = np.arange(len(hours))
        evidence = TemperedCounts(hours, hours).take
        fitted = fit_strength_prior(evidence, rows, fit_profiles(hours))
        return (fitted.strength_prior[1] * STRENGTH_CANDIDATES[1]).sum()

    assert mean_strength(similar) > 5 * mean_strength(different)


def test_posts_of_one_day_count_once_as_evidence_about_days():
    """Twenty posts on one Tuesday have less weight than one post on each of twenty Tuesdays."""
    hours = np.zeros((1, 168))
    hours[0, 24:48] = 20 / 24
    even = SharedProfiles(np.full((1, 168), 1 / 168), np.ones(1))
    once = TemperedCounts.of(hours, np.array([20.0]), np.array([1.0]))
    profile = weekly_profile(
        once, np.ones((1, 1)), leave_one_out_strengths(once, np.ones((1, 1)), even)[0], even
    )
    assert profile[0, 24:48].mean() < 2.5
    often = TemperedCounts.of(hours, np.array([20.0]), np.array([20.0]))
    profile = weekly_profile(
        often, np.ones((1, 1)), leave_one_out_strengths(often, np.ones((1, 1)), even)[0], even
    )
    assert profile[0, 24:48].mean() > 4


def test_minute_factor_needs_evidence():
    on_the_hour = np.zeros((2, 12))
    on_the_hour[:, 0] = [2, 60]
    factor = minute_factor(on_the_hour, np.array([2.0, 60.0]))
    assert factor[0] == pytest.approx(np.ones(12))
    assert factor[1, 0] > 6
    assert factor[1].mean() == pytest.approx(1)


def test_mass_between_counts_full_weeks_and_parts():
    profile = np.ones((3, 168))
    profile[1, 0] = 5.0
    begin = np.array([MONDAY, MONDAY - HOUR_S / 2, MONDAY])
    end = begin + np.array([14 * DAY_S, HOUR_S, 90.0])
    assert mass_between(profile, begin, end) == pytest.approx([336.0, 0.5 + 2.5, 90 / 3600])


def test_hours_between_adds_up_to_elapsed_time():
    begin, end = (
        np.array([MONDAY, MONDAY + 30.5 * HOUR_S]),
        np.array([MONDAY + 9 * DAY_S, MONDAY + 31.25 * HOUR_S]),
    )
    hours = hours_between(begin, end)
    assert hours.sum(axis=1) == pytest.approx([216.0, 0.75])
    assert hours[0, :48] == pytest.approx(np.full(48, 2.0))
    assert hours[1, 30:32] == pytest.approx([0.5, 0.25])


def test_rate_prior_is_strong_only_for_similar_feeds():
    similar, different = make_policy("price"), make_policy("price")
    rng = np.random.default_rng(1)
    for policy, rates in ((similar, np.full(200, 2.0)), (different, rng.lognormal(0, 2.0, 200))):
        trace = poisson_trace(rates, 28, seed=3)
        policy.start(
            Feeds.of(trace.window), trace.history(trace.end), trace.start, trace.end, 200.0
        )
    assert similar.rate_model.prior[0][1] > 3 * different.rate_model.prior[0][1]


def test_weak_rate_prior_does_not_shrink_busy_feeds():
    # Rates differ by orders of magnitude, and only three days are known: a new installation.
    policy = make_policy("price")
    state = np.zeros(200, dtype=policy.row_dtype)
    RateModel.initialize(state)
    model, rates = RateModel(), np.concatenate([np.full(190, 0.05), np.full(10, 40.0)])
    state["posts"], state["days"] = 3 * rates[:, None], 3.0
    model.fit_prior(state)
    assert model.rate_per_day(state)[-1] == pytest.approx(40.0, rel=0.05)
    assert model.rate_per_day(state)[0] < 0.25


def test_rates_of_few_young_feeds_are_not_shrunk():
    policy = make_policy("price")
    state = np.zeros(4, dtype=policy.row_dtype)
    RateModel.initialize(state)
    model = RateModel()
    state["posts"], state["days"] = 20.0, 5.0
    model.fit_prior(state)
    assert model.rate_per_day(state) == pytest.approx(np.full(4, 4.0), rel=0.05)


def test_unobserved_hours_are_imputed_from_the_same_hour_of_observed_days():
    # Two posts at nine on Saturday and on Sunday; nothing is known of the other days.
    hours = np.zeros((2, 168))
    hours[:, [5 * 24 + 9, 6 * 24 + 9]] = 2.0
    begin, end = np.full(2, MONDAY + 5 * DAY_S), np.array([MONDAY + 7 * DAY_S, MONDAY + 12 * DAY_S])
    imputed = unobserved_posts(hours, begin, end).reshape(2, 7, 24)
    assert imputed[0, :5, 9] == pytest.approx(4 / 3, rel=0.1)  # (4 + 1/12) posts in 3 hours
    assert imputed[0, 5:] == pytest.approx(0.0)
    assert imputed[0, 0].argmax() == 9
    assert imputed[1] == pytest.approx(0.0)  # a full week was observed


def test_feeds_known_from_a_weekend_only_are_not_taken_for_weekend_feeds():
    trace = poisson_trace(np.full(30, 15.0), 2, seed=3, start=MONDAY - 2 * DAY_S)
    policy = make_policy("price")
    policy.start(Feeds.of(trace.window), trace.history(MONDAY), trace.start, MONDAY, 300.0)
    week = policy._weekly_profile(np.arange(30)).mean(axis=0).reshape(7, 24)
    assert week[5:].sum() / 168 == pytest.approx(2 / 7, abs=0.03)
    assert policy.rate_model.rate_per_day(policy.state).mean() == pytest.approx(15.0, rel=0.1)


def test_rate_model_recovers_constant_rate():
    rates = np.repeat([0.2, 1.0, 5.0, 20.0], 40)
    trace = poisson_trace(rates, 60, seed=2)
    policy = make_policy("price")
    policy.start(Feeds.of(trace.window), trace.history(trace.end), trace.start, trace.end, 100.0)
    found = policy.rate_model.rate_per_day(policy.state).reshape(4, 40).mean(axis=1)
    assert found == pytest.approx([0.2, 1.0, 5.0, 20.0], rel=0.25)
    assert isinstance(policy.rate_model, RateModel)


def test_controller_meets_budget_with_wrong_demand_curve():
    """The real demand is 1.7 times the curve and varies over the day."""
    prices = np.geomspace(0.01, 100, 40)
    controller = PriceController(
        240.0, 0.5, 0.0, prices, 100 / np.sqrt(prices), 0.2, np.full(SLOTS_PER_WEEK, 240.0)
    )
    spent, week = 0, []
    for slot in range(1, 60 * SLOTS_PER_DAY + 1):
        swing = 1 + 0.8 * np.sin(2 * np.pi * slot / SLOTS_PER_DAY)
        polls = round(1.7 * 100 / np.sqrt(controller.price) / SLOTS_PER_DAY * swing)
        spent += polls
        week.append(polls)
        controller.tick(slot * SLOT_S, spent)
    assert spent == pytest.approx(240 * 60, rel=0.005)
    weekly = np.convolve(week[14 * SLOTS_PER_DAY :], np.ones(7 * SLOTS_PER_DAY), "valid") / (
        7 * 240
    )
    assert np.abs(weekly - 1).max() < 0.01


def test_controller_finds_common_price_of_twenty_peers_in_three_days():
    """We make a twentieth of all polls, so the price must fall by a factor of 400."""
    prices = np.geomspace(1e-6, 1e3, 100)
    controller = PriceController(
        30.0, 1.0, 0.0, prices, 30 / np.sqrt(prices), 1.0, np.full(SLOTS_PER_WEEK, 30.0)
    )
    rng, spent, days = np.random.default_rng(1), 0, []
    for slot in range(1, 20 * SLOTS_PER_DAY + 1):
        polls_with_peers = rng.poisson(30 / np.sqrt(controller.price) / SLOTS_PER_DAY)
        own = rng.binomial(polls_with_peers, 1 / 20)
        spent += own
        controller.tick(slot * SLOT_S, spent, polls_with_peers - own)
        days.append(polls_with_peers * SLOTS_PER_DAY)
    assert np.mean(days[3 * SLOTS_PER_DAY : 6 * SLOTS_PER_DAY]) == pytest.approx(600, rel=0.25)
    assert spent - sum(days[: 3 * SLOTS_PER_DAY]) / SLOTS_PER_DAY / 20 == pytest.approx(
        17 * 30, rel=0.1
    )
    assert controller.participation == pytest.approx(3 / 20, rel=0.5)
    for slot in range(20 * SLOTS_PER_DAY + 1, 24 * SLOTS_PER_DAY + 1):  # the peers have left
        own = rng.poisson(30 / np.sqrt(controller.price) / SLOTS_PER_DAY)
        spent += own
        controller.tick(slot * SLOT_S, spent)
    assert controller.participation == 1.0
    assert own * SLOTS_PER_DAY < 90


def test_peers_keep_one_price_and_share_polls_equally():
    """Twenty peers with equal budgets; a lower price or a higher participation gives more polls."""
    prices = np.geomspace(1e-6, 1e3, 100)
    peers = [
        PriceController(
            30.0, 1.0, 0.0, prices, 30 / np.sqrt(prices), 1.0, np.full(SLOTS_PER_WEEK, 30.0)
        )
        for _ in range(20)
    ]
    rng, spent, deviations = np.random.default_rng(1), np.zeros(20, dtype=np.int64), []
    for slot in range(1, 12 * SLOTS_PER_DAY + 1):
        price = np.array([controller.price for controller in peers])
        polls_with_peers = rng.poisson(30 / np.sqrt(np.exp(np.log(price).mean())) / SLOTS_PER_DAY)
        weight = np.array([controller.participation for controller in peers]) / price
        own = rng.multinomial(polls_with_peers, weight / weight.sum())
        spent += own
        for controller, polls, total in zip(peers, own.tolist(), spent.tolist(), strict=True):
            controller.tick(slot * SLOT_S, total, polls_with_peers - polls)
        deviations.append(np.log(price).std())
    assert np.mean(deviations[6 * SLOTS_PER_DAY :]) < 0.12
    assert spent / (12 * 30) == pytest.approx(np.ones(20), abs=0.2)


def test_budget_is_met_over_any_seven_days():
    trace = poisson_trace(np.random.default_rng(2).lognormal(0, 1.0, 200), 63, seed=9)
    start = trace.training_end(28)
    polls = simulate(trace, make_policy("price"), 2.0, start)
    assert len(polls) == pytest.approx(budget_polls(trace, 2.0, start), rel=0.005)
    times = np.sort(polls.times)
    begin = np.arange(start, trace.end - 7 * DAY_S, 3 * HOUR_S)
    weekly = (np.searchsorted(times, begin + 7 * DAY_S) - np.searchsorted(times, begin)) / (
        7 * 2 * 200
    )
    assert np.abs(weekly - 1).max() < 0.04
    assert np.abs(weekly - 1).mean() < 0.015


def test_downtime_is_not_made_up_for():
    prices = np.geomspace(0.01, 100, 40)
    controller = PriceController(
        240.0, 0.5, 0.0, prices, 100 / np.sqrt(prices), 0.2, np.full(SLOTS_PER_WEEK, 240.0)
    )
    controller.tick(SLOT_S, 40)
    poll_deficit = controller.poll_deficit(SLOT_S, 40)
    controller.tick(20 * DAY_S, 80)
    assert controller.poll_deficit(20 * DAY_S, 80) == pytest.approx(poll_deficit, abs=1.0)


def test_regular_feed_is_polled_soon_after_its_posts():
    posts = [d * DAY_S + 9 * HOUR_S + m for d in range(56) for m in (0, 20, 40)]
    trace = trace_of(*[np.array(posts) + 600 * f for f in range(12)], window=20, start=MONDAY)
    polls = simulate(trace, make_policy("price"), 1.0, trace.training_end(28))
    after = (polls.times - 600 * polls.feed - 9 * HOUR_S) % DAY_S
    assert np.median(after) < 0.5 * HOUR_S


def test_polls_of_identical_feeds_are_spread():
    posts = np.array([d * DAY_S + 9 * HOUR_S for d in range(28)])
    trace = trace_of(*[posts] * 60, window=20, start=MONDAY)
    policy = make_policy("price")
    policy.start(Feeds.of(trace.window), trace.history(trace.end), trace.start, trace.end, 60.0)
    times = policy.decide(np.arange(60), np.full(60, trace.end)).times
    # At most 15 of 60 feeds in any of the five minutes of a bin.
    assert np.unique(times // 60, return_counts=True)[1].max() <= 15
    assert len(np.unique(np.ceil(times))) > 50


def test_polls_come_before_window_overflows():
    rng = np.random.default_rng(3)
    rates = np.where(np.arange(60) < 6, 60.0, 0.5)
    trace = poisson_trace(rates, 56, seed=4, window=rng.integers(10, 16, 60))
    compared = compare(trace, ["price", "price:loss=false", "combined"], 1.0, 28)
    missed = {result.policy: result.figures()["missed_share"] for result in compared.results}
    assert missed["price"] < 0.7 * missed["combined"]
    assert missed["price"] < missed["price:loss=false"]


def test_feed_that_resumes_posting_is_polled_more():
    quiet_then_busy = np.concatenate(
        [np.arange(5) * HOUR_S, 40 * DAY_S + np.arange(800) * HOUR_S / 2]
    )
    others = [np.sort(np.random.default_rng(f).integers(0, 56 * 86400, 60)) for f in range(40)]
    trace = trace_of(quiet_then_busy, *others, window=15, start=MONDAY)
    start = trace.training_end(28)
    polls = simulate(trace, make_policy("price"), 1.0, start)
    mine = polls.times[polls.offsets[0] : polls.offsets[1]]
    before = ((mine > MONDAY + 30 * DAY_S) & (mine < MONDAY + 40 * DAY_S)).sum() / 10
    after = ((mine > MONDAY + 46 * DAY_S) & (mine < MONDAY + 56 * DAY_S)).sum() / 10
    assert after > 4 * max(before, 0.1)


def started_policy(n=12, budget=1.0):
    trace = poisson_trace(np.full(n, 3.0), 28, seed=6)
    policy = make_policy("price")
    feeds = Feeds.of(trace.window)
    policy.start(feeds, trace.history(trace.end), trace.start, trace.end, budget * n)
    return policy, feeds, np.arange(n), np.full(n, trace.end)


def test_decisions_respect_poll_constraints():
    policy, feeds, rows, now = started_policy()
    free = policy.decide(rows, now).times
    feeds.earliest[0] = free[0] + 5 * HOUR_S
    feeds.max_interval_s[1] = HOUR_S
    feeds.skip = np.zeros((12, 168), dtype=bool)
    feeds.skip[2] = True
    feeds.skip[2, 30] = False
    times = policy.decide(rows, now).times
    assert times[0] >= feeds.earliest[0]
    assert times[1] <= now[1] + HOUR_S
    assert int((times[2] // HOUR_S + 72) % 168) == 30
    assert np.array_equal(times[3:], free[3:])


def test_weight_advances_and_cost_delays_polls():
    policy, feeds, rows, now = started_policy()
    free = policy.decide(rows, now).times
    feeds.weight[0], feeds.cost[1] = 16.0, 16.0
    times = policy.decide(rows, now).times
    assert times[0] < free[0]
    assert times[1] > free[1]


def test_values_are_solved_again_when_strengths_change():
    """The values of an old profile would cause polls at hours without posts."""
    policy, _, _, now = started_policy()
    row, changes = np.array([0]), 0
    for day in range(40):
        at, strengths = now[0] + (day + 1) * DAY_S, policy.state["strengths"][0].copy()
        policy.observe(row, np.array([at]), document(at - 6 * HOUR_S))
        if (policy.state["strengths"][0] != strengths).any():
            changes += 1
            value = policy.state["value"][0].copy()
            policy._solve_values(row, policy.controller.price)
            assert np.array_equal(policy.state["value"][0], value)
    assert changes


def test_pushed_share_reduces_polls():
    policy, feeds, rows, now = started_policy()
    free = policy.decide(rows, now).times
    feeds.pushed_share[0] = 0.95
    assert policy.decide(rows, now).times[0] - now[0] > 2 * (free[0] - now[0])


def test_rate_of_overflowing_feed_does_not_decay():
    """Polls see only the last posts of a busy day; the rate must not fall to what is seen."""
    rng = np.random.default_rng(8)
    day = np.arange(84)[:, None] * DAY_S
    busy = [
        np.sort((day + rng.uniform(8 * HOUR_S, 18 * HOUR_S, (84, 200))).ravel()) for _ in range(4)
    ]
    slow = [np.sort(rng.uniform(0, 84 * DAY_S, 80)) for _ in range(40)]
    trace = trace_of(*[np.floor(f) for f in busy + slow], window=12, start=MONDAY)
    policy = make_policy("price")
    simulate(trace, policy, 0.5, trace.training_end(28))
    assert (policy.rate_model.rate_per_day(policy.state)[:4] > 100).all()


def test_feeds_can_be_added_and_state_saved_and_restored():
    policy, feeds, _, now = started_policy()
    more = poisson_trace(np.full(2, 5.0), 10, seed=3)
    since = np.full(2, now[0] - 10 * DAY_S)
    rows = policy.extend(Feeds.of(more.window), more.history(more.end + 1), since, float(now[0]))
    assert rows.tolist() == [12, 13]
    saved = [policy.save_row(row) for row in range(14)], policy.save_shared_state()
    restored = make_policy("price")
    restored.restore(feeds, *saved, policy.budget_per_day, float(now[0]))
    for spent in (3, 9):
        later = np.full(14, now[0] + spent * SLOT_S)
        assert np.array_equal(
            policy.decide(np.arange(14), later).times, restored.decide(np.arange(14), later).times
        )
        policy.tick(later[0], spent)
        restored.tick(later[0], spent)
    with pytest.raises(UsageError, match="version"):
        make_policy("price").restore(feeds, [b"x"] * 14, saved[1], 1.0, float(now[0]))
    with pytest.raises(UsageError, match="version"):
        make_policy("price").restore(feeds, saved[0], b"invalid", 1.0, float(now[0]))


#: Keys of the shared state as written since the first version, with the fields of the controller.
STORED_KEYS = {
    "control_budget_per_day": "budget_per_day",
    "control_mean_gap_days": "mean_gap_days",
    "control_started": "started_at",
    "control_prices": "prices",
    "control_demand": "demand",
    "control_price": "price",
    "control_rehearsed": "simulated_polls",
    "control_spent": "spent",
    "control_forgiven": "waived_polls",
    "control_last_tick": "last_tick",
    "control_ticks": "tick_count",
    "control_polls": "polls",
    "control_looks": "polls_with_peers",
    "control_foretold": "predicted_polls",
    "control_timetable": "slot_shares",
    "control_turns": "participation",
    "control_bias": "demand_bias",
}


def test_shared_state_with_old_keys_is_restored():
    """Blocks of earlier versions restore every field, and new blocks have the same keys."""
    policy, feeds, rows, now = started_policy()
    for slot in (1, 2):
        policy.peer_polls = 2
        policy.tick(float(now[0]) + slot * SLOT_S, 3 * slot)
    arrays = {key: np.asarray(getattr(policy.controller, f)) for key, f in STORED_KEYS.items()}
    profiles = policy.shared_profiles
    arrays |= {f"preferred_{k}": layer for k, layer in enumerate(profiles.strength_prior)}
    arrays |= {"centres": profiles.centers, "shares": profiles.shares}
    arrays |= {"prior": np.stack(policy.rate_model.prior), "feeds": np.asarray(len(feeds))}
    block = io.BytesIO()
    np.savez(block, **arrays)

    restored = make_policy("price")
    saved_rows = [policy.save_row(row) for row in rows.tolist()]
    restored.restore(feeds, saved_rows, block.getvalue(), policy.budget_per_day, float(now[0]))
    for name in STORED_KEYS.values():
        stored, expected = getattr(restored.controller, name), getattr(policy.controller, name)
        assert type(stored) is type(expected), name
        assert np.array_equal(stored, expected), name
    assert restored.participation == policy.participation
    later = now + 3 * SLOT_S
    assert np.array_equal(policy.decide(rows, later).times, restored.decide(rows, later).times)
    with np.load(io.BytesIO(policy.save_shared_state())) as written:
        assert set(written.files) == set(arrays)


def test_policy_starts_without_feeds():
    policy = make_policy("price")
    rows, times = np.zeros(0, dtype=int), np.zeros(0)
    policy.start(Feeds.of(rows), Documents(times, rows, rows, rows, rows > 0), 0.0, MONDAY, 100.0)
    first = document(MONDAY - 9 * DAY_S, MONDAY - 5 * DAY_S, MONDAY - DAY_S)
    rows = policy.extend(Feeds.of([15]), first, np.array([MONDAY - 9 * DAY_S]), MONDAY)
    assert MONDAY < policy.decide(rows, np.full(1, MONDAY)).times[0] < MONDAY + DAY_S


def test_reason_of_price_decision():
    posts = [d * DAY_S + (8 + h) * HOUR_S for d in range(28) if d % 7 < 5 for h in (0, 1, 2)]
    trace = trace_of(*[posts] * 10, window=20, start=MONDAY)
    policy = make_policy("price")
    policy.start(
        Feeds.of(trace.window), trace.history(trace.end + 1), trace.start, trace.end + 1, 10.0
    )
    decided = policy.decide(np.array([0]), np.array([trace.end + 1]))
    reason = policy.reason(int(decided.code[0]), decided.numbers[0])
    assert reason.code == "price"
    assert reason.params["days"] == "weekdays"
    assert reason.params["per_day"] == pytest.approx(2.1, abs=0.6)
    assert "usually appear on weekdays, 0" in render(reason)


def test_state_is_small():
    assert make_policy("price").row_dtype.itemsize < 1024


def test_invalid_parameters_are_rejected():
    with pytest.raises(UsageError, match="loss_days"):
        make_policy("price:loss_days=-1")
