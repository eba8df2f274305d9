"""WHEN TO LOOK. Pure numpy: no I/O and no clock of its own; arrays of feeds in, poll times out, each with a reason.

`base` says what a policy is; `registry` names them all. `estimate`, `allocation` and `schedule` are the papers' mathematics,
`planned` and `adaptive` the policies made of them.
"""

from tidings.policy.base import Decisions, Feeds, Policy
from tidings.policy.registry import POLICIES, make_policy, policy_class

__all__ = ["POLICIES", "Decisions", "Feeds", "Policy", "make_policy", "policy_class"]
