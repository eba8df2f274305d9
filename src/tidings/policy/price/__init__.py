"""`price`, our own policy: both how often and when, online, under one budget, with losses counted (docs/policy.md).

`counts` keeps what was seen, `level` and `shape` say when posts are expected, `value` what time is worth, `loss` what a full
window costs, `lookahead` picks the moment, `control` holds the price, and `policy` puts them together.
"""

from tidings.policy.price.policy import PricePolicy

__all__ = ["PricePolicy"]
