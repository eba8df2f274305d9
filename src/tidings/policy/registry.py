"""Policies by name. A specification may carry parameters: ``fixed:interval_h=24``, ``min-delay:refit_days=1``."""

import inspect

from tidings.errors import UsageError
from tidings.policy import adaptive, planned
from tidings.policy.base import Policy
from tidings.policy.price import Price

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        Price,
        planned.Uniform,
        planned.Scheduling,
        planned.MinDelay,
        planned.Combined,
        planned.MinMissing,
        planned.CgmAge,
        planned.CgmFreshness,
        adaptive.Fixed,
        adaptive.FixedLearned,
        adaptive.MovingAverage,
        adaptive.PostRate,
        adaptive.FreshnessRate,
        adaptive.AdaptiveTtl,
        adaptive.Lru2,
        adaptive.IndividualHistory,
    )
}


def make_policy(spec: str, **overrides: object) -> Policy:
    """Build a policy from ``name[:parameter=value...]``."""
    name, *settings = spec.split(":")
    if name not in POLICIES:
        raise UsageError(f"unknown policy {name!r}; choose from {', '.join(POLICIES)}")
    policy = POLICIES[name]
    allowed = inspect.signature(policy.__init__).parameters
    values: dict[str, object] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or key not in allowed or key == "self":
            known = ", ".join(f"{k}={p.default}" for k, p in allowed.items() if k != "self")
            raise UsageError(f"policy {name!r} has no parameter {key!r}; it takes {known}")
        values[key] = _parse(name, key, text, type(allowed[key].default))
    return policy(**{**values, **overrides})  # type: ignore[arg-type]  # checked against the signature above


def _parse(policy: str, key: str, text: str, kind: type) -> object:
    try:
        if kind is bool:
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        return kind(text)
    except (KeyError, ValueError):
        raise UsageError(f"policy {policy!r}: {key}={text} is not a {kind.__name__}") from None
