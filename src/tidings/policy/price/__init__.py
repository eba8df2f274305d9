"""`price`: the default policy, which decides online when to poll, under one budget.

It minimizes delay and missed posts together; docs/policy.md derives it. Modules:

- `decayed_counts`: post counts by hour of the week, with exponential decay
- `rate_model`, `weekly_profile`: expected posting rate and its pattern over the week
- `value_function`: expected future cost at each hour of the week (Bellman equation)
- `overflow_loss`: expected posts missed when a window overflows
- `lookahead`: the cheapest time for the next poll
- `controller`: feedback control of the price, so that spending meets the budget
- `feed_model`, `policy`: the learning and the deciding part of the policy
- `serialization`: saved state
"""

from tidings.policy.price.policy import PricePolicy

__all__ = ["PricePolicy"]
