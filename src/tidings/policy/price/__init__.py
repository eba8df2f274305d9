"""The default policy, `price`, which decides after each poll when to poll next.

It keeps to one request budget for all feeds and minimizes delay and missed posts together;
docs/policy.md derives it. Modules:

- `decayed_counts`: post counts by hour of the week, with exponential decay
- `rate_model`, `weekly_profile`: expected posting rate and its pattern over the week
- `value_function`: expected future cost at each hour of the week (Bellman equation)
- `overflow_loss`: expected posts missed when a document cannot list all new entries
- `lookahead`: the cheapest time for the next poll
- `controller`: feedback control of the price, so that spending meets the budget
- `feed_model`, `policy`: the part of the policy that learns and the part that decides
- `serialization`: conversion of the saved state to and from bytes
"""

from tidings.policy.price.policy import PricePolicy

__all__ = ["PricePolicy"]
