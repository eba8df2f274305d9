"""Polling policies, which decide when each feed is polled next and record the reason.

This package computes on numpy arrays with one element per feed. It does no I/O and does not read
the clock.

`base` defines the policy interface and `registry` lists the policies by name. `constraints` has the
poll constraints. `estimate`, `allocation` and `schedule` implement the formulas of the papers;
`planned` and `adaptive` are the policies built from them. `price` is the default policy.
"""

from tidings.policy.base import Decisions, Feeds, Policy
from tidings.policy.registry import POLICIES, make_policy, policy_class

__all__ = ["POLICIES", "Decisions", "Feeds", "Policy", "make_policy", "policy_class"]
