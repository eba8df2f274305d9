"""Polling policies: decide when each feed is polled next, and record the reason.

Pure numpy: arrays of feeds in, poll times out. No I/O, and no access to the clock.

`base` defines the policy interface and `registry` lists the policies by name. `constraints` has the
poll constraints. `estimate`, `allocation` and `schedule` implement the formulas of the papers;
`planned` and `adaptive` are the policies built from them. `price` is the default policy.
"""

from tidings.policy.base import Decisions, Feeds, Policy
from tidings.policy.registry import POLICIES, make_policy, policy_class

__all__ = ["POLICIES", "Decisions", "Feeds", "Policy", "make_policy", "policy_class"]
